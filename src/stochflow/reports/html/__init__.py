"""The shell of a page: markup helpers, the template, and the plotly bundle inside.

It knows nothing of runs, so that forecasts use it too.
"""

"""HTML pages: markup helpers, the template, and the plotly bundle.

Nothing here depends on runs, so that forecasts use it too.
"""

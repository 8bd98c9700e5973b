"""From files and frames to arrays: shipped series, tables of the user's own, timelines, features.

The packed series lie beside the code.
"""

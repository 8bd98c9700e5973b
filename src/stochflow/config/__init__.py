"""Settings: every field of a run, the methods by name, and how both are read from YAML and the command line.

A `Config` is checked when it is made and never changes afterwards. A method is a named set of settings with its
description. Imports `core` alone.
"""

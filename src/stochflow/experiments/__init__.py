"""Whole runs: built from a config, launched into a run directory, swept over methods, tasks and seeds.

`build` is the one place that names concrete classes; `launch` resolves settings and opens the directory; `sweep` is
`stochflow compare`. Imports what stands before it, up to `training`.
"""

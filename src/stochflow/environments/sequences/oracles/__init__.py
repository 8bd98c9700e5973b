"""Oracles: user score functions, called in worker processes, once per design.

Scores are kept in a cache on disk that runs may share. A function is imported only if the user names it, never because
a file does.
"""

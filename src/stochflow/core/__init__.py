"""Helpers that know nothing of the subject: errors, random streams, arithmetic in log space, files, signals.

Everything here could be lifted into another project as it is. It imports nothing of stochflow.
"""

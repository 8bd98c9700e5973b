"""Pages on this machine about the runs and campaigns of a folder, for people who do not live in a terminal.

It calls the public functions of `stochflow` and nothing below them; what takes long runs in processes of its own.
"""

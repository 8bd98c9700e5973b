"""The command `stochflow`: parse, call, print; no maths.

Nothing heavy is imported before a command needs it. It may import everything, and is the only place that prints.
"""

"""Environments that build a sequence letter by letter: shipped tasks, user tables and oracles.

Subpackages add constraints on designs, designs of variable length, and score functions in separate processes. The
measured tables of the shipped tasks are in `data/`. Imports `core` and `config`.
"""

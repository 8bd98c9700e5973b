"""Environments that write a sequence letter by letter: shipped tasks, your tables, your oracles.

Subfolders add constraints on designs, designs of variable length, and score functions in processes of their own. The
measured tables of the shipped tasks lie in `data/`.
"""

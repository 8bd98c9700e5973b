"""What can be built and how the world answers: tasks, channels, and environments made of both.

An environment says what can be intended, what comes of it, and what the result is worth; sequences and graphs are the
two families. Tasks are found by name in `registry`, and `factory` makes what a config describes. Imports `core` and
`config`.
"""

"""Score functions of the user's own, run in processes of their own and asked once per design.

Answers that were paid for are kept in a cache that runs may share. Nothing here is imported because a file names it.
"""

"""What a run leaves on disk: its directory, checkpoints, trackers, and the monitor that reads them.

Files are written atomically and checked when they are read; checkpoints are safetensors without pickles. Imports what
stands before it, up to `evaluation`.
"""

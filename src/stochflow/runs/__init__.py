"""Run directories: everything that a run keeps on disk, and the monitoring of a run from its records.

`directory` is the folder with its files and its lock, `checkpoint` the saved state, `trackers` the adapters of
TensorBoard, Weights & Biases and MLflow; `monitor` raises alarms. Imports what stands before it, up to `evaluation`.
"""

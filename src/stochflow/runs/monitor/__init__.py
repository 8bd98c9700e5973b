"""Monitoring of a run: its history from its records, the alarms during training, and the diagnosis afterwards.

`history` is what the rules read, `alarms` and `checks` are the rules, `findings` what they return; `watcher` warns
during training, `diagnosis` serves `stochflow doctor`, and `throughput` is for the progress line.
"""

"""The training loop: sample, fit the dynamics, compute the loss, step the optimizer, record.

`Trainer` is the page to read; `optimizer` is Adam on a flat buffer, `distributed` shares one run among processes.
Imports what stands before it, up to `runs`.
"""

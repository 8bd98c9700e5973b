"""stochflow beside gfnx and torchgfn: CPU time of a training step, and CPU time to a quality."""

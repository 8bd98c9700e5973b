"""From a policy to episodes: the sampling loop over time, trajectories, replay, and what was paid for.

A `Sampler` steps a batch forward during training; a `Policy` is what is evaluated in the end. Memories keep the scores
of designs, by sequence or by history. Imports what stands before it, up to `models`.
"""

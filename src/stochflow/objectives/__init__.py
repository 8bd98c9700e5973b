"""What a policy minimises: balance conditions, divergences, entropy terms, and the baselines.

Every objective turns a batch of trajectories into losses, one per update. Residuals are pure functions above the
classes. Imports what stands before it, up to `sampling`.
"""

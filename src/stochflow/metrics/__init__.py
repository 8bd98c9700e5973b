"""What a set of designs is worth: one file per family of metrics, pure functions on tensors."""

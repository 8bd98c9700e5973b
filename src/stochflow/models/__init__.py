"""Networks: a body that reads prefixes, heads for policy and flow, and the dynamics model."""

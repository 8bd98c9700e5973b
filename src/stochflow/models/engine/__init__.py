"""The hand-written forward and backward pass of the k-mer network on a prefix tree, in numpy and torch.

It exists for speed alone, and tests compare all of it with autograd. Nothing outside `models` imports it.
"""

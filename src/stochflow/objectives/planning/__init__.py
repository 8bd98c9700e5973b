"""The plan: exact backward recursion on visited prefixes, with a reward model where nothing was paid for.

`planned_kl` distils it into the network.
"""

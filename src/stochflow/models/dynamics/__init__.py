"""Models of the forward dynamics P̂(outcome|s,a), learned and known.

Tables are fitted by cross-entropy from counts, graphs count with an empirical-Bayes prior.
"""

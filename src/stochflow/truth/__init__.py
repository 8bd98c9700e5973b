"""What is true exactly: terminal distributions, the attainable optimum under noise, and its certificate.

On a prefix tree it is one backward recursion over states; on a directed acyclic graph, and for orders of whole strings,
a convex programme. No network takes part in it. (The function `stochflow.exact` has the name that this package would
have.) Imports `core`, `config` and `environments`.
"""

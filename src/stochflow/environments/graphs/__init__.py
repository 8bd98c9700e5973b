"""Environments whose states form a directed acyclic graph: the hypergrid and Gymnasium's tabular environments.

A `Graph` holds the whole world as tables, so that its truth is always known. `explore` makes one of any small world
that is written down as a class.
"""

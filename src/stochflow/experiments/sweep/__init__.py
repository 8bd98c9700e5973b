"""Many runs side by side: the specification, its workers on this machine or a Ray cluster, the results.

A sweep is a folder that the same command continues.
"""

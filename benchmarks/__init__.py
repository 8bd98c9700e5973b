"""Measurements: each module prints its table and keeps it under `benchmarks/results/`."""

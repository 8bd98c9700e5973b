"""Training and judging on tasks whose states form a directed acyclic graph."""

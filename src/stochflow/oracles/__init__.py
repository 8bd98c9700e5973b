"""A user's own function as a task: workers, retries, and a cache so that nothing is paid for twice."""

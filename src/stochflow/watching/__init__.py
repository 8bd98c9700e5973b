"""Long work watched: alarms while a run goes on, what they mean, and how fast and large it is."""

"""Run directories as one HTML page."""

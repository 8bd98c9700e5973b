"""Models of the score, fitted to what was paid for."""

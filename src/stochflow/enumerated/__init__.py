"""What is true, computed and never estimated."""

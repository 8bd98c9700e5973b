"""Many runs, compared: what to run, who runs it, what came out."""

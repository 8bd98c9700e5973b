"""`python -m stochflow`."""

from stochflow.cli import main

main()

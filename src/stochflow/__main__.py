"""`python -m stochflow`, and what the command `stochflow` calls."""

from stochflow.core.signals import importing


def main() -> None:
    """Import the command line and run it."""
    with importing():
        from stochflow.cli import app as cli
    cli.main()


if __name__ == "__main__":
    main()

"""`python -m stochflow`, and what the command `stochflow` calls."""

import signal


def main() -> None:
    """Import the command line, which takes a while, and run it."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a Ctrl-C in the middle of an import just ends it
    from stochflow.cli import app as cli

    signal.signal(signal.SIGINT, before)
    cli.main()


if __name__ == "__main__":
    main()

"""Whether this process was started by torchrun beside others, without asking torch."""

import os


def launched() -> bool:
    """True in a process that torchrun started beside others."""
    return "TORCHELASTIC_RUN_ID" in os.environ and os.environ["WORLD_SIZE"] != "1"


def leads() -> bool:
    """True in the one process that speaks for its run."""
    return not launched() or os.environ["RANK"] == "0"

"""The process of a job: one call of a public function. What is to be done comes on standard input."""

import json
import signal
import sys
import threading
import traceback
import warnings
from pathlib import Path
from typing import Any

import stochflow
from stochflow.core.files import write_atomically
from stochflow.studio.jobs import RESULT


def perform(kind: str, target: Path, arguments: dict[str, Any]) -> None:
    """Do a job."""
    if kind == "train":
        # a stop that comes before the first step ends the run in order too
        asked = threading.Event()
        signal.signal(signal.SIGINT, lambda *_: asked.set())
        stochflow.train(**arguments, out=target, stop=asked.is_set)
    elif kind == "ask":
        stochflow.Campaign.open(target).ask(**arguments)
    else:
        raise ValueError(f"unknown job '{kind}'")


def main(folder: Path) -> None:
    """Do the job that standard input describes, and write down in its folder how it ended."""
    warnings.simplefilter("always")
    todo = json.load(sys.stdin)
    error = ""
    try:
        perform(todo["kind"], Path(todo["target"]), todo["arguments"])
    except stochflow.StochflowError as found:
        error = str(found)
    except Exception:
        traceback.print_exc()
        error = f"the program failed; {folder / 'log.txt'} says where"
    write_atomically(folder / RESULT, json.dumps({"error": error}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

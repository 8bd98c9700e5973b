"""What each process does that torchrun starts for test_distributed.py: the cases of a file, one after the other."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import stochflow
from stochflow.core.errors import StochflowError


def train(folder: Path, name: str, case: dict[str, Any]) -> None:
    """One run; what the oracle is asked and how the run ends is written down by process."""
    rank = os.environ["RANK"]

    def oracle(designs: list[str]) -> list[float]:
        with (folder / f"{name}.asked-by-{rank}").open("a") as file:
            file.writelines(f"{design}\n" for design in designs)
        return [-1.0 if case.get("broken") else design.count("A") / len(design) for design in designs]

    options = dict(case["options"])
    if case.get("own_oracle"):
        options |= {"oracle": oracle, "length": 6, "alphabet": "dna"}
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return rank == "1" and asked > case["stop_after"]

    try:
        stochflow.train(out=folder / name, stop=stop if "stop_after" in case else None, **options)
    except StochflowError as error:
        (folder / f"{name}.error-of-{rank}").write_text(f"{type(error).__name__}: {error}")


def main() -> None:
    folder = Path(sys.argv[1])
    for name, case in json.loads((folder / "cases.json").read_text()).items():
        train(folder, name, case)


if __name__ == "__main__":
    main()

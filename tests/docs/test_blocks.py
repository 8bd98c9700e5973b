"""Every code block of README and docs runs as it stands, in the order of its page, with smaller budgets."""

import gzip
import inspect
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import stochflow
from stochflow.forecasting.config import ForecastConfig
from tests.docs.pages import PAGES, ROOT, RUN, blocks_of, name_of
from tests.docs.sessions import BUDGETS, SMALL, looked_up, run_blocks, run_shell, smaller

# it has a test of its own, which compares what is printed
ELSEWHERE = {"docs/tutorials/campaign.md"}
# in the shell, and then the same in Python
TWICE = {"docs/how-to/campaigns.md"}
TESTED = [
    path for path in PAGES if name_of(path) not in ELSEWHERE and any(block.language in RUN for block in blocks_of(path))
]


def strings(num: int, length: int, letters: str = "ACGT") -> list[str]:
    draw = random.Random(0)
    return sorted({"".join(draw.choices(letters, k=length)) for _ in range(num)})


def scored(num: int, length: int, name: str = "sequence") -> pd.DataFrame:
    designs = strings(num, length)
    return pd.DataFrame({name: designs, "score": [each.count("A") / length + 0.1 for each in designs]})


def prepare_own_task(folder: Path) -> None:
    """What a user of that page has: tables, reads, motifs, and a function."""
    scored(24, 4, "seq").to_csv(folder / "scores.csv", index=False)
    scored(24, 5).to_csv(folder / "plate.csv", index=False)
    orders = strings(20, 12)
    pd.DataFrame({"order": orders}).to_csv(folder / "orders.csv", index=False)
    reads = "".join(f"@read{i}\n{order}\n+\n{'I' * len(order)}\n" for i, order in enumerate(orders * 3))
    (folder / "reads.fastq.gz").write_bytes(gzip.compress(reads.encode()))
    rows = "\n".join(["0.7 0.1 0.1 0.1", "0.1 0.7 0.1 0.1", "0.1 0.1 0.7 0.1", "0.1 0.1 0.1 0.7"] * 2)
    meme = "MEME version 4\n\nALPHABET= ACGT\n\nMOTIF mine\nletter-probability matrix: alength= 4 w= 8\n"
    (folder / "mine.meme").write_text(f"{meme}{rows}\n")
    page = blocks_of(ROOT / "docs/how-to/your-own-task.md")
    (oracle,) = (block.text for block in page if block.text.startswith("def affinity"))
    (folder / "lab.py").write_text(oracle)
    (table,) = (block.text for block in page if block.language == "csv" and "ABAB" in block.text)
    (folder / "mixed.csv").write_text(table)


def prepare_campaign(folder: Path) -> None:
    scored(24, 20).to_csv(folder / "measured.csv", index=False)
    scored(48, 20)[24:].to_csv(folder / "results.csv", index=False)
    (folder / "channel.yaml").write_text(
        "letters: ACGT\nmatrix: [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]\n"
    )


def prepare_forecast(folder: Path) -> None:
    hours = pd.date_range("2025-01-01", periods=96, freq="h")
    frame = pd.DataFrame({"unique_id": "a", "ds": hours, "y": [hour.hour + hour.day % 3 for hour in hours]})
    frame.to_csv(folder / "data.csv", index=False)


def prepare_oracle(folder: Path) -> None:
    (folder / "lab.py").write_text("def affinity(designs):\n    return [0.1 + each.count('A') for each in designs]\n")
    stochflow.train(oracle="lab:affinity", length=6, alphabet="dna", oracle_calls=32, out=folder / "runs/mine")
    task = ["oracle.length=6", "oracle.alphabet=dna"]
    few = {"methods": ["genetic"], "seeds": 1, "jobs": 1, "trajectories": 32}
    stochflow.compare(oracle=["lab:affinity"], settings=task, out=folder / "runs/compare", **few)


def prepare_run(folder: Path) -> None:
    """A run and a comparison that pages about runs speak of."""
    stochflow.train(method="genetic", trajectories=32, out=folder / "runs/first")
    stochflow.compare(methods=["genetic"], noise=[0.25], seeds=1, jobs=1, trajectories=32, out=folder / "runs/compare")


def prepare_readme(folder: Path) -> None:
    stochflow.train(method="genetic", trajectories=32, out=folder / "runs/demo")
    shutil.copytree(ROOT / "examples", folder / "examples")
    table = folder / "examples/campaign/measured.csv"
    table.write_text("".join(table.read_text().splitlines(keepends=True)[:33]))


# what takes the time of a forecast, switched off
FORECAST = {"network": "none", "calibration_origins": 0, "direct_share": 0.0, "ridge_share": 0.0, "num_paths": 32}

PREPARED: dict[str, Callable[[Path], None]] = {
    "README.md": prepare_readme,
    "docs/how-to/your-own-task.md": prepare_own_task,
    "docs/how-to/campaigns.md": prepare_campaign,
    "docs/how-to/forecasting.md": prepare_forecast,
    "docs/how-to/doctor.md": prepare_run,
    "docs/how-to/report.md": prepare_run,
    "docs/how-to/studio.md": prepare_run,
    "docs/explanation/security.md": prepare_oracle,
}


def bounded(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the interface with budgets that a test can afford."""
    known = inspect.signature(function).parameters

    def call(*args: Any, **given: Any) -> Any:
        capped = {"trajectories": int(BUDGETS["--trajectories"]), "oracle_calls": 32, "seeds": 1, "support": 16}
        for name in capped.keys() & given.keys():
            given[name] = min(given[name], capped[name])
        if not {"trajectories", "oracle_calls", "steps", "minutes"} & given.keys() and "trajectories" in known:
            given["trajectories"] = capped["trajectories"]
        if function.__name__ == "pretrain":
            given["steps"] = 2
        given["settings"] = [*given.get("settings", ()), *SMALL]
        if "overwrite" in known:
            given["overwrite"] = True
        return function(*args, **given)

    return call


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", TESTED, ids=name_of)
def test_the_blocks_of_a_page_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("train", "compare", "pretrain"):
        monkeypatch.setattr(stochflow, name, bounded(getattr(stochflow, name)))
    checked = ForecastConfig.checked
    monkeypatch.setattr(ForecastConfig, "checked", lambda given: checked({**FORECAST, **given}))
    together = [RUN] if name_of(path) not in TWICE else [{language} for language in sorted(RUN)]
    for number, languages in enumerate(together):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.chdir(folder)
        monkeypatch.syspath_prepend(str(folder))
        PREPARED.get(name_of(path), lambda folder: None)(folder)
        run_blocks([block for block in blocks_of(path) if block.language in languages], folder)


def test_budgets_of_a_page_become_small() -> None:
    assert smaller(["train", "--trajectories", "32000", "--out", "x"])[:5] == [
        "train",
        "--trajectories",
        "96",
        "--out",
        "x",
    ]
    assert smaller(["sample", "x", "-n", "10"]) == ["sample", "x", "-n", "10"]


@pytest.mark.parametrize("block", ["stochflow tasks --no-such", "stochflow nothing", "make nothing", "cat nothing"])
def test_a_block_that_does_not_work_fails(block: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        run_shell(block, tmp_path)


def test_programs_that_measure_are_looked_up() -> None:
    assert looked_up("python", ["-m", "benchmarks.long_spaces", "--curves"]) == (0, "")
    assert looked_up("python", ["-m", "benchmarks.no_such"])[0] == 1
    assert looked_up("pip", ["install", "-e", ".[report]"]) == (0, "")
    assert looked_up("pip", ["install", "-e", ".[no_such]"])[0] == 1

"""Many training runs, one process each on one core, and a table of what they reached."""

import argparse
import multiprocessing
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

import stochflow

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Case:
    """One training run and the columns that identify it in the table."""

    label: dict[str, Any]
    arguments: dict[str, Any] = field(default_factory=dict)
    settings: tuple[str, ...] = ()


def run_case(case: Case) -> dict[str, Any]:
    """Train in a temporary directory; CPU seconds count everything: training, evaluation and files."""
    started = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        run = stochflow.train(**case.arguments, settings=case.settings, out=Path(folder) / "run")
        summary = run.summary.model_dump()
    return case.label | summary | {"cpu_seconds": round(time.process_time() - started, 1)}


def sweep(cases: list[Case], name: str, jobs: int) -> pd.DataFrame:
    """Run all cases, `jobs` at a time, and keep every run as one row of results/<name>.csv."""
    rows = []
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=1) as pool:
        for row in pool.imap_unordered(run_case, cases):
            rows.append(row)
            print(f"{len(rows)}/{len(cases)}  " + _one_line(row), flush=True)
    frame = pd.DataFrame(rows).sort_values(list(cases[0].label)).reset_index(drop=True)
    RESULTS.mkdir(exist_ok=True)
    frame.to_csv(RESULTS / f"{name}.csv", index=False)
    return frame


def medians(frame: pd.DataFrame, by: list[str], columns: list[str]) -> pd.DataFrame:
    """Median over seeds, with the number of runs and the range of regret."""
    groups = frame.groupby(by, sort=False, dropna=False)
    table = groups[columns].median()
    table.insert(0, "runs", groups.size())
    table["regret_min"], table["regret_max"] = groups["regret"].min(), groups["regret"].max()
    return table.reset_index()


def publish(table: pd.DataFrame, name: str, title: str) -> None:
    """Print a table and keep it as text beside the raw rows."""
    text = f"{title}\n\n{table.to_string(index=False, float_format=lambda value: f'{value:.4f}')}\n"
    print("\n" + text)
    (RESULTS / f"{name}.txt").write_text(text, encoding="utf-8")


def parser(description: str | None) -> argparse.ArgumentParser:
    """Options that all sweeps share."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--jobs", type=int, default=2)
    return options


def _one_line(row: dict[str, Any]) -> str:
    kept = {key: value for key, value in row.items() if key in ("regret", "tv", "cpu_seconds", "dynamics_ce")}
    label = {key: row[key] for key in list(row)[:6]}
    return "  ".join(
        f"{key}={value:.4f}" if isinstance(value, float) else f"{key}={value}" for key, value in (label | kept).items()
    )

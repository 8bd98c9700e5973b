"""What the page of a run shows, as JSON: where it stands, its curves, its designs, and what the doctor says."""

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import stochflow
from stochflow.core.files import read_limited

NUM_DESIGNS = 200
_MAX_POINTS = 300
_MAX_SAMPLES = 64 * 2**20
# measures that are drawn: title, what a line across the chart means and which figure it is
_CURVES = {
    "mean_score": ("Expected score of what is drawn", "best possible under this noise", "attainable_score"),
    "regret": ("Regret: distance to the best possible (nats)", "", ""),
    "j": ("J: how close the draws come to the goal (nats)", "", ""),
    "best_paid": ("Best score measured so far", "", ""),
    "batch_score": ("Mean score of each training batch", "", ""),
    "loss": ("Loss", "", ""),
}
_STANDING = ("share", "step", "trajectories", "oracle_calls", "seconds", "left", "figures")
_FINDING = ("severity", "kind", "seen", "means", "remedy")
_STARTS = {"regret": "start_regret", "j": "start_j"}
# columns of samples.csv that are shown: title and whether it is a number
_DESIGN = ("order", "sequence", "object")
_NUMBERS = {
    "predicted": "predicted",
    "low": "from",
    "high": "to",
    "expected_score": "expected score",
    "score": "score",
    "exact_probability": "made as written",
    "distance": "letters from the nearest measured",
}


def run_view(path: Path) -> dict[str, Any]:
    """Everything about a run as it is now."""
    (standing,) = stochflow.status(path).runs
    shown: dict[str, Any] = {"state": standing.state, "title": standing.title, "problem": standing.problem}
    if standing.state == "unreadable":
        return shown
    shown |= {name: getattr(standing, name) for name in _STANDING}
    shown["doctor"] = _doctor(path, going_on=standing.state == "training")
    run = stochflow.load(path)
    shown["oracle"] = run.config.task.startswith("oracle:")
    shown["curves"] = curves(run.metrics, standing.figures)
    return shown | {"designs": best_designs(path / "samples.csv")}


def _doctor(path: Path, going_on: bool) -> dict[str, Any]:
    """What the doctor says; that a run which goes on has not ended yet is no finding."""
    (diagnosis,) = stochflow.doctor(path)
    findings = [finding for finding in diagnosis.findings if not (going_on and finding.kind == "unfinished")]
    num_bad = sum(finding.severity == "bad" for finding in findings)
    verdict = diagnosis.verdict
    if len(findings) < len(diagnosis.findings):
        verdict = "Nothing is wrong so far." if not num_bad else f"Seen so far, and to be looked at: {num_bad}."
    listed = [{name: getattr(finding, name) for name in _FINDING} for finding in findings]
    return {"verdict": verdict, "healthy": not num_bad, "findings": listed}


def curves(metrics: pd.DataFrame, figures: dict[str, float]) -> list[dict[str, Any]]:
    """Every measure that was logged, against trajectories, or calls where only these are counted."""
    found: list[dict[str, Any]] = []
    if metrics.empty:
        return found
    numbers = metrics.apply(pd.to_numeric, errors="coerce").replace([np.inf, -np.inf], np.nan)
    counted = "trajectories" if "trajectories" in numbers and numbers["trajectories"].max() > 0 else "step"
    for name, (title, words, figure) in _CURVES.items():
        if name not in numbers:
            continue
        rows = numbers[[counted, name]].dropna()
        points = rows.iloc[_spread(len(rows))].to_numpy().tolist()
        start = _STARTS.get(name, "")
        if start in numbers and numbers[start].notna().any():
            points = [[0.0, float(numbers[start].dropna().iloc[0])], *points]
        if points:
            line = {"value": figures[figure], "words": words} if figure in figures else None
            found.append({"name": name, "title": title, "along": counted, "points": points, "line": line})
    return found


def best_designs(path: Path) -> dict[str, Any]:
    """The best different designs that were drawn at the end, with what is known of each; no rows before the end."""
    try:
        rows = pd.read_csv(io.BytesIO(read_limited(path, _MAX_SAMPLES)), keep_default_na=True, low_memory=False)
    except (OSError, ValueError):
        return {"columns": [], "rows": []}
    design = next((name for name in _DESIGN if name in rows), None)
    ranked = "expected_score" if "expected_score" in rows else "score"
    if design is None or ranked not in rows:
        return {"columns": [], "rows": []}
    rows[ranked] = pd.to_numeric(rows[ranked], errors="coerce")
    rows["drawn"] = rows.groupby(design)[design].transform("size")
    distinct = rows.drop_duplicates(design)
    best = distinct.sort_values([ranked, "drawn"], ascending=False, kind="stable").head(NUM_DESIGNS)
    columns = [name for name in _NUMBERS if name in best and best[name].notna().any()]
    if "predicted" in columns:  # on the scale of the table, which scores need not be on
        columns = [name for name in columns if name not in ("score", "expected_score")]
    values = best[columns].apply(pd.to_numeric, errors="coerce")
    listed = [
        [str(name), *(number if math.isfinite(number) else None for number in row), int(drawn)]
        for name, row, drawn in zip(best[design], values.to_numpy(float).tolist(), best["drawn"], strict=True)
    ]
    titles = ["order" if design == "order" else "design", *(_NUMBERS[name] for name in columns), "drawn"]
    return {"columns": titles, "rows": listed, "of": len(distinct)}


def _spread(num: int) -> list[int]:
    """At most `_MAX_POINTS` evenly spaced rows, both ends included."""
    return np.unique(np.linspace(0, num - 1, min(num, _MAX_POINTS)).round().astype(int)).tolist() if num else []

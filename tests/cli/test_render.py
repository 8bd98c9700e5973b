"""What tables of the command line show."""

from pathlib import Path

import pandas as pd
import pytest

from stochflow.cli.render import print_comparison, print_summary
from stochflow.config.layers import resolve
from stochflow.evaluation.summary import Summary
from stochflow.experiments.sweep.compare import Comparison
from stochflow.experiments.sweep.config import SweepConfig
from stochflow.experiments.sweep.results import COLUMNS, standings
from stochflow.experiments.sweep.specification import PlannedRun
from tests.runs.monitor.test_diagnosis import GOOD, UNKNOWN


def comparison_by(metric: str, **others: float) -> Comparison:
    """Two methods on one task, three seeds each, with one metric, a mean score and other figures."""
    values = {"a": [4.0, 4.1, 3.9], "b": [7.0, 7.2, 7.1]}
    runs = [
        PlannedRun(f"{method}-{seed}", "bits:120,8", method, 0.1, seed, resolve([]))
        for method in values
        for seed in range(3)
    ]
    rows = [
        {
            "run": run.name,
            "task": run.task,
            "method": run.method,
            "noise": 0.1,
            "status": "finished",
            "feedback": "step",
        }
        | {"mean_score": 0.625, "num_modes": 3, metric: values[run.method][run.seed]}
        | others
        for run in runs
    ]
    frame = pd.DataFrame(rows, columns=COLUMNS)
    return Comparison(Path("runs"), SweepConfig(), frame, standings(frame, runs), {}, [], False)


def test_without_a_regret_methods_are_listed_by_j_beside_their_score(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    print_comparison(comparison_by("j"), tmp_path, 6)
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("J (nats)", "E[score]", "0.625", "b ★", "7.1000"))
    assert "TV" not in shown
    assert shown.index("b ★") < shown.index("a ")
    print_comparison(comparison_by("regret", tv=0.125), tmp_path, 6)
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("regret", "TV", "0.125", "a ★"))
    assert "E[score]" not in shown
    print_comparison(comparison_by("regret", j=2.0), tmp_path, 6)  # estimated from J
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("regret", "E[score]", "0.625", "a ★"))
    assert not any(word in shown for word in ("TV", "J (nats)"))


def test_a_summary_has_j_with_its_error(capsys: pytest.CaptureFixture[str]) -> None:
    print_summary(Summary(**GOOD | UNKNOWN | {"j": 7.89, "j_se": 0.05}))
    cells = [line.split("│") for line in capsys.readouterr().out.splitlines() if "│" in line]
    rows = {cell[1].strip(): cell[2].strip() for cell in cells}
    assert (rows["j"], rows["j_se"], rows["regret"]) == ("7.89 ± 0.05", "0.05", "–")

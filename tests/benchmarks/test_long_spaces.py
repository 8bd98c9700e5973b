"""Learning curves of the long tasks: evaluated on the way, without changing or charging the run."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from benchmarks import long_spaces
from benchmarks.long_spaces import KEYS, has, keep, run, trained
from stochflow.environments.settings import resolve_layers
from stochflow.experiments.build import build
from stochflow.experiments.experiment import Experiment
from stochflow.experiments.torch_settings import computing

BRIEF = {
    "model": {"width": 16, "num_layers": 1},
    "optimiser": {"batch_size": 16, "updates": 1},
    "channel": {"kind": "uniform-slip", "noise": 0.1},
    "budget": {"oracle_calls": 128},
}


def experiment_of(task: str, method: str) -> Experiment:
    return build(resolve_layers([{"task": task, "method": method, "seed": 3}, BRIEF]))


# with scores in a table, with a list of designs, and with a ceiling that is known
@pytest.mark.parametrize(
    ("task", "method"), [("tfbind8", "gfn-tb"), ("bits:24,4", "genetic"), ("motifs:YY1,24", "gfn-tb")]
)
def test_a_curve_leaves_the_run_as_it_would_have_been(task: str, method: str) -> None:
    watched, alone = experiment_of(task, method), experiment_of(task, method).train()
    with computing(watched.config):
        points = list(trained(watched))
    one, other = watched.trainer.state_dict(), alone.trainer.state_dict()
    one.pop("counters"), other.pop("counters")  # seconds are among them
    torch.testing.assert_close(one, other, rtol=0, atol=0)
    assert [point["paid"] for point in points] == [16, 32, 48, 64, 96, 128]
    assert [point["j_ceiling"] is None for point in points] == [task.startswith("bits")] * len(points)


def test_the_last_point_says_what_was_paid_for() -> None:
    experiment = experiment_of("motifs:YY1,24", "genetic")
    *_, last = trained(experiment)
    best = experiment.trainer.learner.memory.scores.sort(descending=True).values
    assert last["best_paid"] == pytest.approx(float(best[0]), abs=1e-4)
    assert last["top100_paid"] == pytest.approx(float(best[:100].mean()), abs=1e-4)
    assert last["j"] is not None
    assert last["j_ceiling"] is not None
    assert last["j"] < last["j_ceiling"]


def test_evaluation_is_not_charged_to_the_method(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(float(tick) for tick in range(10_000))
    monkeypatch.setattr(long_spaces.time, "process_time", lambda: next(clock))
    monkeypatch.setattr(long_spaces, "_point", lambda _: {"late": next(clock)})
    points = list(trained(experiment_of("bits:24,4", "genetic")))
    assert [point["cpu_seconds"] for point in points] == [1, 2, 3, 4, 6, 8]


def test_a_case_that_is_measured_again_replaces_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "curves.csv"
    case: dict[str, Any] = dict(zip(KEYS, ("bits:24,4", 0.1, 128, "genetic", 0), strict=True))
    keep(path, [case | {"paid": 64}, case | {"paid": 128}], [*KEYS, "paid"])
    keep(path, [case | {"seed": 1, "paid": 16}], [*KEYS, "paid"])
    keep(path, [case | {"paid": 32}], [*KEYS, "paid"])
    assert pd.read_csv(path)[["seed", "paid"]].to_numpy().tolist() == [[0, 32], [1, 16]]
    assert has(path, case)
    assert not has(path, case | {"noise": 0.25})
    assert not has(tmp_path / "none.csv", case)


def test_a_run_is_one_row_and_its_curve_ends_there() -> None:
    case: dict[str, Any] = dict(zip(KEYS, ("bits:24,4", 0.1, 64, "genetic", 0), strict=True))
    row, points = run(case, {"optimiser": {"batch_size": 16}})
    assert all(point[key] == row[key] for point in points for key in KEYS)
    last = points[-1]
    assert (last["paid"], last["best_paid"], last["cpu_seconds"]) == (64, row["best_paid"], row["cpu_seconds"])

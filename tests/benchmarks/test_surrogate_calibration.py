"""Which designs surrogates are tested on, and what is said of their predictions."""

import pandas as pd
import pytest
import torch

from benchmarks.surrogate_calibration import TASKS, designs, figures, honest
from stochflow.environments.registry import make_task
from stochflow.environments.sequences.lookup_task import MeasuredTask
from stochflow.surrogates.base import Prediction


def test_there_are_nineteen_landscapes() -> None:
    assert len(set(TASKS)) == 19


def test_designs_of_a_table_were_measured_and_differ() -> None:
    task = make_task("mpsa")
    assert isinstance(task, MeasuredTask)
    tokens = designs(task, 300, torch.Generator().manual_seed(0))
    assert task.is_measured(tokens).all()
    assert len(tokens.unique(dim=0)) == 300


def test_half_of_the_designs_of_a_long_space_are_mutants_of_the_best_others() -> None:
    tokens = designs(make_task("motifs:GATA1+SP1,30"), 200, torch.Generator().manual_seed(0))
    assert len(tokens.unique(dim=0)) == 200
    nearest = (tokens.unsqueeze(1) != tokens).sum(dim=-1).fill_diagonal_(30).min(dim=1).values
    # a random sequence differs from another in 22 places on average, a mutant from its parent in three at most
    assert 100 <= int((nearest <= 6).sum()) < 160


def test_figures_are_those_of_a_worked_example() -> None:
    scores = torch.tensor([0.0, 1.0, 2.0, 3.0]).double()
    prediction = Prediction(torch.tensor([0.0, 2.0, 1.0, 3.0]).double(), torch.full((4,), 0.5).double())
    found = figures(scores, prediction)
    assert found["r_squared"] == pytest.approx(1.0 - 2.0 / 5.0)
    assert found["spearman"] == pytest.approx(1.0 - 6.0 * 2.0 / (4 * 15))
    assert found["coverage"] == 0.5  # errors of 1 are beyond 1.28·0.5


def test_honest_landscapes_are_counted() -> None:
    coverage = pd.DataFrame({"one": [0.8, 0.69, 0.9]}, index=["gb1", "dmsc", "smn1"])
    assert honest(coverage) == "one: 2 of 3"

"""How simulated campaigns are judged and compared."""

import pandas as pd
import pytest
import torch

from benchmarks.campaigns import Fitness, by_campaign, by_mutation, distinct, error_of, joined, table_of
from stochflow.campaigns.design_space import DesignSpace
from stochflow.config.environment import ConstraintConfig
from stochflow.environments.channels import noiseless
from stochflow.environments.registry import make_task


def test_measurements_of_one_design_are_joined() -> None:
    task = make_task("tfbind8")
    realised = task.alphabet.encode(["ACGTACGT", "AAAAAAAA", "ACGTACGT"])
    evidence = joined(task, realised, torch.tensor([0.2, 0.5, 0.4]))
    assert evidence.scores.tolist() == pytest.approx([0.3, 0.5])
    assert evidence.variances is not None
    assert evidence.variances.tolist() == pytest.approx([0.01, 0.02])


def test_every_task_is_measured_with_the_errors_of_its_table() -> None:
    found = [error_of(task) for task in ("tfbind8:ARX", "gb1", "gb1-fitness", "motifs:RUNX1+YY1,50")]
    assert found == ["replicate", "gaussian", "none", "none"]


def test_fitness_is_enrichment_relative_to_the_best() -> None:
    task = Fitness()
    scores = task.score(task.alphabet.encode(["FWAA", "FYAA", "VDGV"]))
    # read counts before and after selection: 63 and 2,014, 221 and 6,487, 92,735 and 338,346
    best = 2014.5 / 63.5
    expected = [1.0, 6487.5 / 221.5 / best, 338346.5 / 92735.5 / best]
    assert scores.tolist() == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("choose", [by_campaign, by_mutation])
def test_no_chooser_orders_what_is_taken(choose) -> None:
    task = make_task("tfbind8:ARX")
    space = DesignSpace(task.alphabet, task.length, noiseless(4), ConstraintConfig())
    realised = torch.randint(4, (40, 8), generator=torch.Generator().manual_seed(0)).unique(dim=0)
    evidence = joined(task, realised, task.score(realised))
    orders = choose(space, evidence, realised, 12, 1)
    assert len(distinct(orders, orders, 12)) == 12
    assert not set(task.alphabet.decode(orders)) & set(task.alphabet.decode(realised))


def test_the_table_says_where_a_campaign_reaches_the_best_method() -> None:
    ends = {"campaign": [0.5, 0.6, 0.7], "adalead": [0.65, 0.66, 0.9], "genetic": [0.1, 0.2, 0.3]}
    rows = [
        {"task": "a", "plan": "4x96", "slip": 0.0, "method": method, "seed": seed, "round": round_, "ten_best": value}
        for method, values in ends.items()
        for seed, end in enumerate(values)
        for round_, value in ((1, 0.0), (4, end))
    ]
    row = table_of(pd.DataFrame(rows), "4x96", 0.0).loc["a"]
    assert row[["adalead", "campaign", "genetic"]].tolist() == [0.66, 0.6, 0.2]
    assert (row["best"], bool(row["interval"]), bool(row["worst"])) == ("adalead", True, False)

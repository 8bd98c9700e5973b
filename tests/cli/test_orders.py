"""`stochflow exact --feedback none`: what it prints, and how it refuses."""

import json
from pathlib import Path

import pytest
import torch

from stochflow.environments.channels import uniform_slip
from stochflow.truth.orders import best_orders
from tests.cli.conftest import Stochflow


@pytest.fixture(autouse=True)
def _tables(run_cli: Stochflow) -> None:
    """The directory to run in holds two tables."""
    Path("one.csv").write_text("sequence,score\nAA,1.0\nAC,0.5\nCA,0.3\nCC,0.2\n", encoding="utf-8")
    Path("several.csv").write_text("sequence,score\nAA,1.0\nAC,0.5\nC,0.3\n", encoding="utf-8")


ASKED = ("exact", "--table", "one.csv", "--alphabet", "AC", "--noise", "0.4", "--feedback", "none")


def test_json_has_the_keys_of_the_optimum_and_those_of_orders(run_cli: Stochflow) -> None:
    code, out, err = run_cli(*ASKED, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert list(found) == [
        *("task", "noise", "beta", "floor", "feedback", "min_kl", "min_tv", "attainable_score", "log_z_true"),
        *("min_kl_lower_bound", "min_kl_gap", "num_orders", "kl_ignoring_noise", "min_kl_with_feedback"),
        "value_of_feedback",
    ]
    log_reward = 3.0 * torch.tensor([1.0, 0.5, 0.3, 0.2], dtype=torch.float64).log()
    best = best_orders(log_reward, uniform_slip(2, 0.4), 2)
    assert (found["feedback"], found["num_orders"]) == ("none", best.num_orders)
    assert found["min_kl"] == pytest.approx(best.kl, abs=1e-9)
    assert found["log_z_true"] == pytest.approx(float(log_reward.logsumexp(dim=0)))


def test_the_table_has_the_same_numbers(run_cli: Stochflow) -> None:
    found = json.loads(run_cli(*ASKED, "--json")[1])
    code, out, _ = run_cli(*ASKED)
    assert code == 0
    assert "without feedback" in out
    assert f"gap {found['min_kl_gap']:.1e}" in out
    for name in ("min_kl", "kl_ignoring_noise", "min_kl_with_feedback", "value_of_feedback"):
        assert f"{found[name]:.5f}" in out


def test_feedback_at_every_step_is_the_default(run_cli: Stochflow) -> None:
    plain = run_cli(*ASKED[:-2], "--json")
    assert plain == run_cli(*ASKED[:-1], "step", "--json")
    assert "feedback" not in json.loads(plain[1])


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("exact --feedback all", "choose step"),
        ("exact hypergrid --feedback none", "leave out --feedback none"),
        ("exact motifs:MAX,12 --feedback none", "too large to enumerate"),
        ("exact --gc 0.2:0.8 --feedback none", "leave the constraints out"),
        ("exact --table several.csv --gap-score 0 --variable-length --feedback none", "fix the length"),
        ("exact --table several.csv --gap-score 0 --variable-length --deletion 0.1 --feedback none", "fix the length"),
        ("train --feedback none", "No such option"),
        ("sample nowhere --feedback none", "No such option"),
        ("compare --feedback none", "No such option"),
    ],
)
def test_what_cannot_be_ordered_is_refused_in_one_sentence(command: str, message: str, run_cli: Stochflow) -> None:
    code, out, err = run_cli(*command.split())
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.strip().splitlines()) == 1

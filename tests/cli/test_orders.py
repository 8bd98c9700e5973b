"""`--feedback none`: what `exact` prints, what a run of orders writes, and what is refused."""

import json
import math
from pathlib import Path

import pytest
import torch

from stochflow.environments.channels import uniform_slip
from stochflow.truth.orders import best_orders
from stochflow.truth.prefix_tree import attainable_optimum
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
    assert set(found) == {
        *("task", "noise", "beta", "floor", "feedback", "min_kl", "min_tv", "attainable_score", "log_z_true"),
        *("min_kl_lower_bound", "min_kl_gap", "num_orders", "kl_ignoring_noise", "min_kl_with_feedback"),
        "value_of_feedback",
    }
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


def test_tables_are_ordered_unless_told_otherwise(run_cli: Stochflow) -> None:
    assert run_cli(*ASKED[:-2], "--json") == run_cli(*ASKED, "--json")
    assert "feedback" not in json.loads(run_cli(*ASKED[:-1], "step", "--json")[1])


def test_shipped_tasks_have_feedback_at_every_step(run_cli: Stochflow) -> None:
    plain = run_cli("exact", "tfbind8", "--noise", "none", "--json")
    assert plain == run_cli("exact", "tfbind8", "--noise", "none", "--feedback", "step", "--json")
    assert "feedback" not in json.loads(plain[1])


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("exact --feedback all", "'feedback': input should be 'step' or 'none'"),
        ("exact hypergrid --feedback none", "leave out --feedback none"),
        ("exact motifs:MAX,12 --feedback none", "too large to enumerate"),
        ("exact --gc 0.2:0.8 --feedback none", "leave them out, add --feedback step"),
        ("exact --table several.csv --gap-score 0 --variable-length --noise 0.1 --feedback none", "fix the length"),
        ("exact --table several.csv --gap-score 0 --variable-length --deletion 0.1 --feedback none", "fix the length"),
        ("train --feedback all", "'feedback': input should be 'step' or 'none'"),
        ("train --feedback none --method sgfn-db", "choose sgfn-kl, gfn-tb"),
        ("train --feedback none --method edb", "choose sgfn-kl, gfn-tb"),
        ("train --feedback none --method gfn-tb --set dynamics.depends_on=state", "set dynamics.depends_on"),
        ("train hypergrid --feedback none", "leave out --feedback none"),
        ("pretrain --tasks tfbind8 --set feedback=none", "leave out --feedback none"),
        ("compare --methods soft-q --feedback none", "choose sgfn-kl, gfn-tb"),
        ("compare --feedback none,some", "input should be 'step' or 'none'"),
        ("compare --set feedback=none", "give it with --feedback"),
    ],
)
def test_what_cannot_be_ordered_is_refused_in_one_sentence(command: str, message: str, run_cli: Stochflow) -> None:
    code, out, err = run_cli(*command.split())
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.strip().splitlines()) == 1


TINY = ["--alphabet", "AC", "--trajectories", "64", "--set", "model.width=8", "--set", "evaluation.num_samples=20"]


def test_a_run_of_orders_says_what_to_order_and_what_will_come_of_it(run_cli: Stochflow) -> None:
    trained = run_cli("train", "--table", "one.csv", "--noise", "0.2", *TINY, "--out", "run")
    assert trained[0] == 0
    summary = json.loads(Path("run/summary.json").read_text(encoding="utf-8"))
    assert (summary["feedback"], summary["regret"] >= 0.0) == ("none", True)
    assert summary["value_of_feedback"] == pytest.approx(_value_of_feedback(0.2))
    code, out, _ = run_cli("sample", "run", "-n", "3", "--format", "jsonl")
    drawn = [json.loads(line) for line in out.splitlines()]
    assert (code, len(drawn)) == (0, 3)
    assert all(row["exact_probability"] == pytest.approx(0.9**2) for row in drawn)
    scores = {"AA": 1.0, "AC": 0.5, "CA": 0.3, "CC": 0.2}
    assert [row["expected_score"] for row in drawn] == pytest.approx(
        [sum(_chance(row["order"], made, 0.2) * score for made, score in scores.items()) for row in drawn]
    )
    listed = run_cli("sample", "run", "-n", "3", "--format", "fasta")[1].splitlines()
    assert listed[1::2] == [row["order"] for row in drawn]
    assert listed[0].startswith(">order_1 expected_score=")


def test_report_doctor_and_evaluate_take_a_run_of_orders(run_cli: Stochflow) -> None:
    assert run_cli("train", "--table", "one.csv", "--noise", "0.2", *TINY, "--out", "run")[0] == 0
    assert run_cli("report", "run")[0] == 0
    page = Path("run/report.html").read_text(encoding="utf-8")
    assert "noise 0.2, orders" in page
    assert run_cli("doctor", "run")[0] == 0
    again = json.loads(run_cli("evaluate", "run", "--json")[1])
    looking = json.loads(run_cli("evaluate", "run", "--feedback", "step", "--json")[1])
    assert again["kl"] == json.loads(Path("run/summary.json").read_text(encoding="utf-8"))["kl"]
    assert (again["feedback"], looking["feedback"], looking["value_of_feedback"]) == ("none", "step", None)
    assert looking["min_kl"] < again["min_kl"]


def _chance(order: str, made: str, slip: float) -> float:
    """Π_t P(x_t|y_t) under uniform slip on two letters."""
    return math.prod(1.0 - slip / 2 if one == other else slip / 2 for one, other in zip(order, made, strict=True))


def _value_of_feedback(slip: float) -> float:
    log_reward = 3.0 * torch.tensor([1.0, 0.5, 0.3, 0.2], dtype=torch.float64).log()
    channel = uniform_slip(2, slip)
    return best_orders(log_reward, channel, 2).kl - attainable_optimum(log_reward, channel, 2).min_kl

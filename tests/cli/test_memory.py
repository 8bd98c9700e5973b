"""`--noise bursts:…`, `mixture:…` and `--context`: what `exact` prints, what a run does, and what is refused."""

import json
from pathlib import Path

import pytest
import torch

import stochflow
from stochflow.runs.directory import RunDirectory
from tests.cli.conftest import Stochflow

MIXTURE = ("--noise", "mixture:0,0.6")
TABLE = ("--table", "one.csv", "--alphabet", "AC", "--feedback", "step")
SMALL = (
    "--set",
    "model.width=8",
    "--set",
    "context.width=8",
    "--set",
    "context.heads=2",
    "--set",
    "optimiser.batch_size=32",
)
LEARNING = ("--method", "sgfn-kl-trajectory", "--trajectories", "640", *SMALL)


@pytest.fixture(autouse=True)
def _tables(run_cli: Stochflow) -> None:
    """The directory to run in holds a table."""
    rows = "".join(f"{a}{b}{c},{0.2 + 0.7 * (a == b == c)}\n" for a in "AC" for b in "AC" for c in "AC")
    Path("one.csv").write_text("sequence,score\n" + rows, encoding="utf-8")


def test_exact_says_what_history_is_worth(run_cli: Stochflow) -> None:
    code, out, err = run_cli("exact", *TABLE, *MIXTURE, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["noise"] == "mixture:0,0.6"
    # to within what the search leaves open
    assert found["min_kl_revealed"] - 1e-4 < found["min_kl"] < found["min_kl_without_history"] + 1e-4
    assert found["min_kl_gap"] < 1e-3
    assert "told the hidden state" in run_cli("exact", *TABLE, *MIXTURE)[1].replace("\n", " ")


def test_a_run_reads_history_resumes_exactly_and_is_evaluated_again(run_cli: Stochflow) -> None:
    run = ("train", *TABLE, *MIXTURE, *LEARNING, "--context", "history")
    assert run_cli(*run, "--out", "whole")[0] == 0
    summary = json.loads(Path("whole/summary.json").read_text(encoding="utf-8"))
    # estimated from draws: nothing lists what all histories make
    assert summary["tv"] is None
    assert summary["regret"] == pytest.approx(summary["log_z_true"] - summary["j"] - summary["min_kl"])
    half = [*run]
    half[half.index("640")] = "320"
    assert run_cli(*half, "--out", "half")[0] == 0
    assert run_cli(*run, "--out", "half", "--resume")[0] == 0
    ends = [RunDirectory(Path(name)).load_checkpoint() for name in ("whole", "half")]
    assert any(name.startswith("network.history.") for name in ends[0])
    assert any(name.startswith("dynamics.history.") for name in ends[0])
    assert set(ends[0]) == set(ends[1])
    again = stochflow.load("whole").evaluate()
    assert again.regret == pytest.approx(summary["regret"])
    assert run_cli("sample", "whole", "-n", "5")[0] == 0
    assert run_cli("report", "whole")[0] == 0
    assert run_cli("doctor", "whole")[0] == 0


def test_without_a_context_a_run_is_evaluated_exactly_against_the_best_with_history(run_cli: Stochflow) -> None:
    assert run_cli("train", *TABLE, *MIXTURE, *LEARNING, "--out", "blind")[0] == 0
    summary = json.loads(Path("blind/summary.json").read_text(encoding="utf-8"))
    optimum = json.loads(run_cli("exact", *TABLE, *MIXTURE, "--json")[1])
    assert summary["kl"] - summary["regret"] == pytest.approx(optimum["min_kl"], abs=1e-6)
    assert summary["kl"] > optimum["min_kl_without_history"] - 1e-5
    assert summary["tv"] is not None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--context", "history"), "reads no history of intentions; choose sgfn-kl-trajectory"),
        (("--context", "history", "--method", "gfn-tb"), "reads no history"),
        (("--context", "support", *LEARNING), "name its run with --from"),
        (("--context", "memory"), "'none', 'history' or 'support'"),
        (("--method", "genetic", *MIXTURE), "intends whole designs"),
        (("--noise", "bursts:0.5"), "as in bursts:0.6,0.05,0.1"),
        (("--context", "history", *LEARNING, *MIXTURE, "--max-length", "4"), "one length"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_sentence(
    arguments: tuple[str, ...], message: str, run_cli: Stochflow
) -> None:
    code, _, err = run_cli("train", *TABLE, *arguments, "--out", "refused")
    assert code == 2
    assert message in err.replace("\n", " ")
    assert "Traceback" not in err
    assert not Path("refused").exists()


def test_whole_orders_have_no_history(run_cli: Stochflow) -> None:
    orders = (*TABLE[:-1], "none")
    for noise, message in (("0.3", "orders have none"), ("mixture:0,0.6", "no matrix per position")):
        given = ("--noise", noise, "--context", "history", "--method", "sgfn-tb")
        code, _, err = run_cli("train", *orders, *given)
        assert (code, message in err.replace("\n", " ")) == (2, True), err


def test_a_graph_has_no_history_of_letters(run_cli: Stochflow) -> None:
    code, _, err = run_cli("train", "hypergrid", "--context", "history", "--method", "sgfn-kl-trajectory")
    assert code == 2
    assert "is a graph" in err.replace("\n", " ")


def test_without_memory_in_the_world_a_context_of_none_is_what_there_was(run_cli: Stochflow) -> None:
    weights = []
    for name, context in (("plain", ()), ("none", ("--context", "none"))):
        assert run_cli("train", *TABLE, "--noise", "0.2", *LEARNING, *context, "--out", name)[0] == 0
        weights.append(RunDirectory(Path(name)).load_checkpoint())
    same = [torch.equal(weights[0][name], weights[1][name]) for name in weights[0] if name.startswith("network.")]
    assert len(same) > 3
    assert all(same)

"""`stochflow channel`: from a table of reads to a file that `--noise` takes."""

import json
from pathlib import Path

import pytest
import yaml

from stochflow import FittedChannel
from tests.cli.conftest import Stochflow

PAIRS = "intended,observed,count\nACGTACGT,ACGTACGT,900\nACGTACGT,ACGTACAT,90\nTTGACCAG,TTGACCAG,10\nACGTACGT,TTTTT,3\n"


@pytest.fixture(autouse=True)
def _pairs(run_cli: Stochflow) -> None:
    """The directory to run in holds pairs.csv."""
    Path("pairs.csv").write_text(PAIRS, encoding="utf-8")


def test_a_channel_is_fitted_and_shown(run_cli: Stochflow) -> None:
    fitted = run_cli("channel", "fit", "pairs.csv", "--out", "channel.yaml", "--model", "global")
    assert fitted.code == 0
    assert fitted.err == "Left out: 3 pairs (0.3 %), which differ in too many letters.\n"
    assert "Written: channel.yaml" in fitted.out
    shown = run_cli("channel", "show", "channel.yaml")
    assert (shown.code, shown.err) == (0, fitted.err)
    assert fitted.out.startswith(shown.out)
    # G is intended 2 · 990 + 2 · 10 times and read as A 90 times
    assert "2,000" in shown.out
    assert f"{100 * 90.5 / 2002:.4g}" in shown.out
    assert "Counted: 1,000 pairs, 8,000 letters." in shown.out
    assert "Model: global, log-likelihood per held-out letter in nats: global -" in shown.out
    assert "Error rate: 1.125% of letters (" in shown.out


def test_few_letters_are_warned_of(run_cli: Stochflow) -> None:
    Path("few.csv").write_text("intended,observed,count\nACGT,ACGT,19\nACG,ACG,1\n", encoding="utf-8")
    fitted = run_cli("channel", "fit", "few.csv", "--out", "channel.yaml", "--model", "global")
    assert fitted.code == 0
    assert "Warning: too few pairs to know the noise: these letters were intended fewer than 20 times (T 19)" in (
        fitted.err
    )


def test_pairs_without_anything_in_common_make_no_channel(run_cli: Stochflow) -> None:
    Path("wrong.csv").write_text("intended,observed\nAAAAAAAAAA,CCCCCCCCCC\n", encoding="utf-8")
    refused = run_cli("channel", "fit", "wrong.csv", "--out", "wrong.yaml")
    assert (refused.code, Path("wrong.yaml").exists()) == (2, False)
    assert "the strings of the only pair of wrong.csv differ in more than a third" in refused.err


def test_positions_are_shown_with_their_error_rates(run_cli: Stochflow) -> None:
    fitted = run_cli("channel", "fit", "pairs.csv", "--out", "channel.yaml")
    assert fitted.code == 0
    assert FittedChannel.load("channel.yaml").model == "position"
    (line,) = [line for line in fitted.out.splitlines() if line.startswith("│        7 │")]
    assert "9.000%" in line
    assert "G→A" in line


@pytest.mark.filterwarnings("default:no pair intends")
def test_many_letters_are_shown_by_their_likeliest_errors(run_cli: Stochflow) -> None:
    fitted = run_cli("channel", "fit", "pairs.csv", "--out", "c.yaml", "--alphabet", "protein", "--model", "global")
    assert fitted.code == 0
    assert "likeliest errors" in fitted.out
    assert "Warning: no pair intends D, E, F," in fitted.err
    assert max(map(len, fitted.out.splitlines()[:40])) <= 80


def test_the_file_is_a_channel_everywhere(run_cli: Stochflow) -> None:
    assert run_cli("channel", "fit", "pairs.csv", "--out", "channel.yaml").code == 0
    exact = run_cli("exact", "tfbind8", "--noise", "channel.yaml", "--json")
    assert exact.code == 0
    tiny = ("optimiser.batch_size=16", "optimiser.updates=2", "model.width=16", "evaluation.num_samples=50")
    settings = [part for text in tiny for part in ("--set", text)]
    given = ("--noise", "channel.yaml", *settings)
    assert run_cli("train", "--method", "sgfn-db", "--steps", 2, "--out", "run", *given).code == 0
    summary = json.loads(Path("run/summary.json").read_text(encoding="utf-8"))
    assert summary["min_kl"] == pytest.approx(json.loads(exact.out)["min_kl"], abs=1e-9)
    stored = yaml.safe_load(Path("run/config.yaml").read_text(encoding="utf-8"))["channel"]
    assert stored["letters"] == "ACGT"
    assert stored["matrices"] == FittedChannel.load("channel.yaml").matrices.tolist()
    compared = run_cli("compare", "--methods", "sgfn-db", "--seeds", 1, "--trajectories", 32, "--out", "sweep", *given)
    assert compared.code == 0
    Path("channel.yaml").unlink()
    assert run_cli("evaluate", "run").code == 0


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        ("mpsa", "are for the letters ACGT and the task has ACGU"),
        ("motifs:CTCF+SP1,50", "8 position matrices but the task has length 50"),
    ],
)
def test_a_file_for_another_task_is_refused(task: str, reason: str, run_cli: Stochflow) -> None:
    assert run_cli("channel", "fit", "pairs.csv", "--out", "channel.yaml").code == 0
    for command in ("exact", "train"):
        refused = run_cli(command, task, "--noise", "channel.yaml")
        assert (refused.code, refused.out) == (2, "")
        assert reason in refused.err


@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [
        ("", [], "is empty"),
        (PAIRS, ["--intended", "design"], "no column 'design', only intended, observed, count; name yours with"),
        (PAIRS, ["--count", "n"], "no column 'n'"),
        (PAIRS, ["--alphabet", "rna"], "outside the alphabet ACGU in the column 'intended' (T, first in line 2)"),
        (PAIRS, ["--alphabet", "AA"], "the letter 'A' twice"),
        (PAIRS.replace("900", "-9"), [], "the count '-9' in line 2"),
        (PAIRS + "A,,1\n", [], "no value in the column 'observed' in line 6"),
        ("intended,observed\nACGT,TT\n", [], "the only pair of pairs.csv differ in more than a third of their letters"),
        (PAIRS + "ACG,ACG,1\n", ["--model", "position"], "choose --model global"),
    ],
)
def test_a_table_that_cannot_be_fitted_is_one_sentence(
    text: str, options: list[str], reason: str, run_cli: Stochflow
) -> None:
    Path("pairs.csv").write_text(text, encoding="utf-8")
    refused = run_cli("channel", "fit", "pairs.csv", "--out", "channel.yaml", *options)
    assert (refused.code, refused.out) == (2, "")
    (line,) = refused.err.splitlines()
    assert line.startswith("Error: ")
    assert reason in line
    assert [path.name for path in Path().iterdir()] == ["pairs.csv"]


def test_a_file_that_was_not_fitted_is_not_shown(run_cli: Stochflow) -> None:
    for name, reason in {
        "none.yaml": "does not exist",
        "pairs.csv": "is no channel that `stochflow channel fit`",
    }.items():
        refused = run_cli("channel", "show", name)
        assert (refused.code, refused.out) == (2, "")
        assert reason in refused.err


def test_reads_are_fitted_to_their_orders(run_cli: Stochflow) -> None:
    Path("orders.csv").write_text("order\nACGTACGTACGT\nTTTTGGGGCCCC\n", encoding="utf-8")
    reads = ["ACGTACGTACGT", "ACGTACGACGT", "TTTTGGGGGCCCC", "ACACACACACAC"]
    text = "".join(f"@{read}\n{read}\n+\n{'I' * len(read)}\n" for read in reads)
    Path("reads.fastq").write_text(text, encoding="utf-8")
    fitted = run_cli("channel", "fit", "reads.fastq", "--orders", "orders.csv", "--out", "channel.yaml")
    assert fitted.code == 0
    assert fitted.err.startswith("Left out: 1 pair (25 %), which differ in too many letters.\nWarning: too few pairs")
    assert "Per intended letter: deletion 2.778% (" in fitted.out  # one of 36
    assert "duplication 2.778% (" in fitted.out
    assert "other insertion 0.000% (" in fitted.out
    Path("reads.fastq").write_text(text[:-4], encoding="utf-8")
    refused = run_cli("channel", "fit", "reads.fastq", "--orders", "orders.csv", "--out", "other.yaml")
    assert refused.code == 2
    assert "record 4 of reads.fastq is not whole" in refused.err


@pytest.mark.parametrize(
    ("name", "text"),
    [("doped:0.79", "79"), ("nnk:0.1", "L 0.9677, R 0.9677"), ("array-synthesis", "Deletions: 0.057% of letters")],
)
def test_a_channel_by_name_is_shown(name: str, text: str, run_cli: Stochflow) -> None:
    shown = run_cli("channel", "show", name)
    assert (shown.code, shown.err) == (0, "")
    assert text in shown.out

"""`stochflow sample --best N --exclude FILE`, and the noise of a table."""

import io
import shutil
from itertools import product
from pathlib import Path

import pandas as pd
import pytest

import stochflow
from tests.cli.conftest import Stochflow

TINY = ("optimiser.batch_size=16", "optimiser.updates=2", "model.width=16", "evaluation.num_samples=50")
WORDS = ["".join(letters) for letters in product("ACGT", repeat=3)]
TABLE = "sequence,score\n" + "".join(f"{word},{word.count('G')}\n" for word in WORDS)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps on a table of all DNA 3-mers, scored by their number of G; to be read, not changed."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "scores.csv").write_text(TABLE, encoding="utf-8")
    path = folder / "run"
    return stochflow.train(table=folder / "scores.csv", method="sgfn-db", steps=2, settings=TINY, out=path).path


@pytest.fixture(autouse=True)
def _files(finished: Path, run_cli: Stochflow) -> None:
    """The directory of the commands holds the run and files of measured sequences."""
    shutil.copytree(finished, "run")
    Path("measured.csv").write_text("sequence,score\nGGG,3\nAGG,2\n", encoding="utf-8")
    Path("measured.tsv").write_text("well\tmade\nA1\tggg\nA2\tAGG\n", encoding="utf-8")
    Path("measured.fasta").write_text(">1\nGGG\n>2\nAGG\n", encoding="utf-8")
    Path("measured.txt").write_text("GGG\nAGG\n", encoding="utf-8")
    Path("rna.txt").write_text("GGU\n", encoding="utf-8")
    Path("long.txt").write_text("GGGG\n", encoding="utf-8")


def sampled(run_cli: Stochflow, *arguments: object) -> pd.DataFrame:
    code, out, err = run_cli("sample", "run", *arguments)
    assert (code, err) == (0, "")
    return pd.read_csv(io.StringIO(out))


def test_the_best_designs_are_printed_best_first(run_cli: Stochflow) -> None:
    frame = sampled(run_cli, "--best", 10)
    # one word with three G, nine with two
    assert frame["score"].tolist() == [3.0] + [2.0] * 9
    assert frame["sequence"].is_unique
    assert frame["log_prob"][1:].is_monotonic_decreasing


@pytest.mark.parametrize("name", ["measured.csv", "measured.fasta", "measured.txt"])
def test_measured_designs_are_left_out(name: str, run_cli: Stochflow) -> None:
    frame = sampled(run_cli, "--best", 8, "--exclude", name)
    assert set(frame["sequence"]) == {word for word in WORDS if word.count("G") == 2} - {"AGG"}


def test_a_column_can_be_named_and_designs_be_listed_in_python(run_cli: Stochflow) -> None:
    frame = sampled(run_cli, "--best", 8, "--exclude", "measured.tsv", "--exclude-column", "made")
    found = stochflow.load("run").sample(best=8, exclude=["GGG", "AGG"])
    assert frame["sequence"].tolist() == found["sequence"].tolist()
    assert len(stochflow.load("run").sample(best=64, exclude=[])) == 64


def test_fasta_lists_the_best_too(run_cli: Stochflow) -> None:
    assert run_cli("sample", "run", "--best", 1, "--format", "fasta").out.splitlines()[1] == "GGG"


def test_too_few_draws_are_said(run_cli: Stochflow) -> None:
    code, out, err = run_cli("sample", "run", "-n", 64, "--best", 64)
    assert code == 0
    assert err == f"Only {len(out.splitlines()) - 1} different designs were found in many draws.\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--best 3 --exclude nowhere.csv", "check the path"),
        ("--best 3 --exclude rna.txt", "rna.txt: letters ['U'] are not in the alphabet ACGT"),
        ("--best 3 --exclude long.txt", "length 4"),
        ("--best 3 --exclude measured.tsv --exclude-column x", "only well, made"),
        ("--best 3 --exclude measured.txt --exclude-column x", "leave that out"),
        ("--best 3 --exclude-column x", "add --exclude FILE"),
        ("--exclude measured.csv", "add --best N or --unique"),
        ("--best 65", "there are 64 designs"),
        ("--best 63 --exclude measured.csv", "less 2 excluded"),
        ("--best 0", "at least 1"),
    ],
)
def test_what_cannot_be_ranked_is_refused_in_one_sentence(arguments: str, message: str, run_cli: Stochflow) -> None:
    code, out, err = run_cli("sample", "run", *arguments.split())
    assert (code, out) == (2, "")
    assert message in err.replace("\n", " ")


def test_a_table_has_no_noise_unless_it_is_asked_for(run_cli: Stochflow) -> None:
    Path("scores.csv").write_text(TABLE, encoding="utf-8")
    asked = ("train", "--table", "scores.csv", "--steps", 1, "--method", "sgfn-db", *_set(TINY))
    assert "Finished scores, sgfn-db, noise none, seed 0: " in run_cli(*asked).out
    assert stochflow.load("runs/scores-sgfn-db-none-seed0").summary.noise == 0.0
    assert ", noise 0.1, " in run_cli(*asked, "--feedback", "step", "--set", "channel.noise=0.1").out
    assert Path("runs/scores-sgfn-db-0.1-seed0").is_dir()


def _set(assignments: tuple[str, ...]) -> list[str]:
    return [part for text in assignments for part in ("--set", text)]

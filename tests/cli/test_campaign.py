"""`stochflow campaign`: from an empty directory to a plate, and every refusal in one sentence."""

import io
import re
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from stochflow.cli import render
from stochflow.cli.render import console, working
from tests.cli.conftest import Stochflow

CREATE = ("campaign", "create", "lab", "--alphabet", "dna", "--length", 6)


@pytest.fixture
def lab(run_cli: Stochflow) -> Stochflow:
    """The command line in a folder with a campaign of eight wells in `lab`."""
    made = run_cli(*CREATE, "--batch", 8, "--noise", 0.1, "--max-homopolymer", 3)
    assert (made.code, made.err) == (0, "")
    return run_cli


def test_from_an_empty_directory_to_the_second_plate(lab: Stochflow) -> None:
    Path("measured.csv").write_text("sequence,score,colour\nACGTAC,0.5,red\nTTGTAC,-2,red\n")
    told = lab("campaign", "tell", "lab", "measured.csv")
    assert told.out == "Tell 1: 2 new values, 2 of designs that were not ordered here.\n"
    assert told.err == "Columns that were not read: colour.\n"
    assert lab("campaign", "tell", "lab", "measured.csv").out.startswith("Nothing new")
    assert lab("campaign", "ask", "lab", "--out", "plate.csv").out == "Written: plate.csv\n"
    plate = pd.read_csv("plate.csv")
    assert plate["well"].tolist() == [f"A{column}" for column in range(1, 9)]
    plate.assign(score=range(8)).to_csv("filled.csv", index=False)
    assert lab("campaign", "tell", "lab", "filled.csv").out == "Tell 2: 8 new values.\n"
    assert lab("campaign", "ask", "lab", "-n", 3, "--out", "second.csv").code == 0
    assert not set(pd.read_csv("second.csv")["order"]) & {*plate["order"], "ACGTAC", "TTGTAC"}
    status = lab("campaign", "status", "lab").out
    assert f"│ best       │ {plate['order'].iloc[-1]}" in status
    assert "│ pending    │ 3 " in status


def test_a_report_is_written(lab: Stochflow) -> None:
    lab("campaign", "ask", "lab", "--out", "plate.csv")
    assert lab("campaign", "report", "lab").out == "Written: lab/report.html\n"
    assert lab("campaign", "report", "lab", "--out", "page.html").out == "Written: page.html\n"
    refused = lab("campaign", "report", "lab", "--out", "page.pdf")
    assert refused.code == 2
    assert "give a name that ends in .html" in refused.err
    assert lab("campaign", "report", "elsewhere").code == 2


def test_an_ask_can_be_written_again(lab: Stochflow) -> None:
    lab("campaign", "ask", "lab", "--out", "plate.csv")
    lab("campaign", "ask", "lab", "-n", 2, "--out", "second.csv")
    assert lab("campaign", "ask", "lab", "--again", 1, "--out", "again.csv").code == 0
    assert Path("again.csv").read_text() == Path("plate.csv").read_text()
    assert lab("campaign", "export", "lab", "--as", "idt", "--out", "idt.csv").out == "Written: idt.csv\n"
    assert len(Path("idt.csv").read_text().splitlines()) == 3


def test_what_is_not_written_is_printed(lab: Stochflow) -> None:
    asked = lab("campaign", "ask", "lab", "-n", 14)
    assert "14 designs to order" in asked.out
    assert asked.err == "2 more rows; write all of them with --out.\n"
    Path("candidates.txt").write_text("ACGTAC\n")
    assert "ACGTAC" in lab("campaign", "judge", "lab", "candidates.txt").out
    assert lab("campaign", "judge", "lab", "candidates.txt", "--out", "judged.csv").code == 0
    assert pd.read_csv("judged.csv")["feasible"].tolist() == [True]


def test_designs_that_are_printed_can_be_copied_whole(run_cli: Stochflow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "_width", 60)
    run_cli("campaign", "create", "lab", "--alphabet", "dna", "--length", 70, "--batch", 2)
    design = "ACGTACG" * 10
    Path("candidates.txt").write_text(f"{design}\n")
    assert f" {design} " in run_cli("campaign", "judge", "lab", "candidates.txt").out
    asked = run_cli("campaign", "ask", "lab", "-n", 2).out
    assert all(len(order) == 70 for order in re.findall("[ACGT]{9,}", asked))
    Path("measured.csv").write_text(f"sequence,score\n{design},1\n")
    run_cli("campaign", "tell", "lab", "measured.csv")
    assert f" {design} " in run_cli("campaign", "status", "lab").out


def test_what_takes_long_is_said_on_a_terminal_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with working("Fitting models"):
        pass
    assert capsys.readouterr().err == ""
    terminal = Console(file=io.StringIO(), force_terminal=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(render, "messages", terminal)
        with working("Fitting models"):
            pass
    assert "Fitting models …" in terminal.file.getvalue()


def test_a_rehearsal_is_printed_and_the_last_tell_taken_back(lab: Stochflow) -> None:
    Path("table.csv").write_text("sequence,score\nACGTAC,0.5\nTTGTAC,-2\n")
    played = lab("campaign", "rehearse", "lab", "table.csv", "--rounds", 2, "--out", "rounds.csv")
    assert "2 rounds on table.csv" in played.out
    assert pd.read_csv("rounds.csv")["wells"].tolist() == [8, 8]
    lab("campaign", "tell", "lab", "table.csv")
    assert lab("campaign", "undo", "lab").out == "Tell 1 (table.csv) was taken back.\n"


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("ask nowhere", "holds no campaign"),
        ("ask lab -n 5000", "5,000 designs were asked for, and 3,936 of the 3,936"),
        ("ask lab -n 0", "ask for one at least"),
        ("ask lab -n 2 --again 1", "leave out -n"),
        ("ask lab --again 1", "no ask in lab yet"),
        ("ask lab --out plate.txt", "must be a .csv file"),
        ("ask lab --out nowhere/plate.csv", "in a folder that exists"),
        ("tell lab wrong.csv", "'high' in the column 'score' in line 2"),
        ("tell lab nowhere.csv", "cannot be read"),
        ("judge lab wrong.csv", "has 3 letters"),
        ("undo lab", "nothing to take back"),
        ("export lab --out a.csv", "no ask in lab yet"),
        ("rehearse lab tfbind8", "tfbind8 has designs of 8 letters"),
        ("create lab --alphabet dna --length 6", "holds a campaign already"),
        ("create new --alphabet dna", "--length"),
        ("create new --alphabet dna --length 6 --gc 0.5", "LOW:HIGH"),
        ("create new --alphabet dna --length 6 --goal win", "give maximise"),
    ],
)
def test_bad_input_is_one_sentence(lab: Stochflow, command: str, sentence: str) -> None:
    Path("wrong.csv").write_text("sequence,score\nACG,high\n")
    before = Path("lab/campaign.sqlite").read_bytes()
    refused = lab("campaign", *command.split())
    assert refused.code == 2
    assert refused.err.startswith("Error: ")
    assert refused.err.count("\n") == 1
    assert sentence in refused.err
    assert Path("lab/campaign.sqlite").read_bytes() == before
    assert not Path("new").exists()


def test_help_is_printed_without_a_verb(run_cli: Stochflow) -> None:
    assert "rehearse" in run_cli("campaign").out

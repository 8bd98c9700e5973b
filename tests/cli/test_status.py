import json
import threading
from pathlib import Path
from typing import Any

import pytest

import stochflow
from stochflow import Campaign
from stochflow.cli import status as cli_status
from tests.cli.conftest import Stochflow

TINY = ("model.width=8", "model.num_layers=1", "evaluation.num_samples=20")


def train(path: Path, **more: Any) -> None:
    given: dict[str, Any] = {"task": "hypergrid:2,4", "method": "sgfn-db", "steps": 4, "settings": TINY}
    stochflow.train(**given | more, out=path)


def test_status_lists_runs_and_campaigns_of_a_folder(run_cli: Stochflow, tmp_path: Path) -> None:
    train(tmp_path / "lab" / "sweep" / "runs" / "one")
    Campaign.create(tmp_path / "lab" / "rounds", length=4)
    train(tmp_path / "lab" / "cut", stop=lambda: True)
    (tmp_path / "lab" / "damaged").mkdir()
    for name, text in (("config.yaml", "task: [\n"), ("metrics.jsonl", "")):
        (tmp_path / "lab" / "damaged" / name).write_text(text)
    result = run_cli("status", "lab")
    assert (result.code, result.err) == (0, "")
    rows = [line.split() for line in result.out.splitlines()]
    (one,) = [row for row in rows if row[:1] == ["sweep/runs/one"]]
    assert one[1:3] == ["finished", "100%"]
    (cut,) = [row for row in rows if row[:1] == ["cut"]]
    assert cut[1:3] == ["interrupted", "0%"]
    assert ["rounds", "0", "0", "0", "0", "0"] in rows
    assert any(row[:2] == ["damaged", "unreadable"] for row in rows)
    found = json.loads(run_cli("status", "lab", "--json").out)
    assert [run["path"] for run in found["runs"]] == ["lab/cut", "lab/damaged", "lab/sweep/runs/one"]
    assert found["campaigns"][0]["status"]["num_asks"] == 0


def test_status_of_a_run_alone(run_cli: Stochflow, tmp_path: Path) -> None:
    train(tmp_path / "one")
    assert "finished" in run_cli("status", "one").out


def test_status_follows_a_run_to_its_end_with_plain_lines(
    run_cli: Stochflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def listen(record: dict[str, float], share: float) -> None:
        inside.set()
        go_on.wait(60)

    thread = threading.Thread(target=train, args=(tmp_path / "one",), kwargs={"listen": listen})
    thread.start()
    assert inside.wait(60)

    def rest(seconds: float) -> None:
        go_on.set()
        thread.join(60)

    monkeypatch.setattr(cli_status.time, "sleep", rest)
    lines = run_cli("status", ".", "--watch").out.splitlines()
    assert lines[0].startswith("one  25%  0:00:0")
    assert "loss " in lines[0]
    assert lines[1:] == ["No run is training."]


def test_status_of_nothing_is_said(run_cli: Stochflow, tmp_path: Path) -> None:
    assert run_cli("status", ".").out == "No runs and no campaigns are in the folder .\n"
    assert run_cli("status", "nowhere").err.startswith("Error: nowhere is not a folder")

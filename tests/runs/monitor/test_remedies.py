"""The doctor's remedies are tried: on the run that has the finding, as the finding says, until it is gone."""

import ast
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import stochflow
from stochflow.config.layers import leaves
from stochflow.config.options import EVALUATE, TRAIN
from stochflow.config.schema import Config
from stochflow.runs.monitor import alarms, checks, evidence

SETTINGS = {name for name, _ in leaves(Config().model_dump())}
SECTIONS = {name.partition(".")[0] for name in SETTINGS if "." in name}
FLAGS = {option.flag or f"--{option.name.replace('_', '-')}" for option in (*TRAIN, *EVALUATE)}
GRID = {"task": "hypergrid", "method": "sgfn-db", "steps": 20}
SMALL = ("model.width=16", "model.num_layers=1", "optimiser.batch_size=16", "evaluation.num_samples=50")


def texts(module: Any) -> list[str]:
    """Every text in a module, the parts of formatted ones joined."""
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    joined = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    parts = [
        "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values) for node in joined
    ]
    return parts + [
        node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


@pytest.mark.parametrize("module", [alarms, checks, evidence])
def test_every_setting_and_option_that_a_remedy_names_exists(module: Any) -> None:
    words = " ".join(texts(module))
    named = {name for name in re.findall(r"\b[a-z_]+\.[a-z_]+\b", words) if name.partition(".")[0] in SECTIONS}
    flags = set(re.findall(r"(?<![\w-])--[a-z-]+", words))
    assert named or flags
    assert named <= SETTINGS
    assert flags <= FLAGS


def run(out: Path, *settings: str, **more: Any) -> Path:
    return stochflow.train(**{**GRID, "settings": (*SMALL, *settings), "out": out, **more}).path


def finding(path: Path, kind: str) -> str | None:
    """The remedy of a finding about a run; None where it is not found."""
    (diagnosis,) = stochflow.doctor(path)
    return next((found.remedy for found in diagnosis.findings if found.kind == kind), None)


# kind of finding, what makes a run ill, and how its remedy says what to set instead
ILL = [
    (
        "stalled",
        ("optimiser.learning_rate=1e-9", "evaluation.every=0.05"),
        r"optimiser\.learning_rate \(.* now; ([\d.]+)",
    ),
    ("replay", ("optimiser.replay_size=8",), r"optimiser\.replay_size=(\d+)"),
]


@pytest.mark.parametrize(("kind", "ill", "advised"), ILL, ids=[kind for kind, *_ in ILL])
@pytest.mark.filterwarnings("ignore:stalled")
def test_the_setting_that_a_remedy_names_removes_its_finding(
    kind: str, ill: tuple[str, ...], advised: str, tmp_path: Path
) -> None:
    remedy = finding(run(tmp_path / "ill", *ill), kind)
    assert remedy is not None
    found = re.search(advised, remedy)
    assert found is not None, remedy
    name = ill[0].partition("=")[0]
    healed = run(tmp_path / "healed", *ill[1:], f"{name}={found[1]}", steps=200)
    assert finding(healed, kind) is None


def test_the_command_for_an_unfinished_run_finishes_it(tmp_path: Path) -> None:
    path = run(tmp_path / "cut run", stop=lambda: True)
    remedy = finding(path, "unfinished")
    assert remedy is not None
    words = shlex.split(remedy.split("`")[1])
    assert words[:4] == ["stochflow", "train", "--resume", "--out"]
    stochflow.train(resume=True, out=words[4])
    assert finding(path, "unfinished") is None

"""Nothing heavy is imported before it is needed: help, lists and usage errors answer at once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from stochflow.cli import app as cli

COMMANDS = sorted(typer.main.get_command(cli.app).commands)  # type: ignore[attr-defined]
HEAVY = ["torch", "pandas", "plotly", "numpy", "scipy"]
# all of them in one process: what one imports is seen after it
SCRIPT = """
import contextlib, io, json, sys
from stochflow.__main__ import main
calls, heavy = json.loads(sys.argv[1])
found = []
for words in calls:
    sys.argv = ["stochflow", *words.split()]
    out, err, code = io.StringIO(), io.StringIO(), None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    found.append([code, err.getvalue(), [name for name in heavy if name in sys.modules]])
print(json.dumps(found))
"""
ANSWERED = ["--version", "--help", "", "tasks", "methods", "config", "config hypergrid --method sgfn-db"]
ANSWERED += [
    "channel",
    "channel fit --help",
    "channel show --help",
    "campaign",
    "campaign create --help",
    "campaign ask --help",
]
ANSWERED += [f"{command} --help" for command in COMMANDS]
REFUSED = {
    "frobnicate": "frobnicate",
    "train --frobnicate": "--frobnicate",
    "train tfbind8 tfbind9": "tfbind9",
    "train --seed one": "--seed",
    "sample": "RUN",
    "train tfbind9": "'tfbind9'; choose one of: tfbind8",
    "train --method ppo2": "'ppo2'; choose one of: sgfn-kl",
    "train --set reward.betta=3": "'reward.betta'; known are: beta, floor, ramp",
    "train --set reward.beta": "a.b=value",
    "train --config missing.yaml": "missing.yaml cannot be read",
    "train --noise loud": "'loud'",
    "train --gc 0.5": "LOW:HIGH",
    "train --steps 3 --minutes 1": "exactly one of trajectories, steps, minutes and oracle_calls",
    "train --minutes 1 --deterministic": "never twice at the same step",
    "train --out run --overwrite --resume": "give one of them",
    "train tfbind8 --support 256": "give both or none",
    "train --method conditional-kl": "use `stochflow pretrain --tasks A,B`",
    "pretrain": "name some with --tasks",
    "pretrain --tasks tfbind9": "'tfbind9'; choose one of: tfbind8",
    "train tfbind8 --oracle a:b": "leave out 'tfbind8'",
    "train tfbind8 --table a.csv": "there is a table, but the task is 'tfbind8'",
    "train --score-column a": "name its file with --table",
    "train --length 4": "leave them out",
    "train --max-length 9": "variable length is for a --table or an --oracle",
    "train --deletion 0.1": "add --variable-length",
    "train --oracle a:b --max-length 4 --alphabet dna --method mcmc": "choose another method for variable length",
    "train hypergrid --forbid AA": "constraints cannot be had with hypergrid",
    "config tfbind9": "'tfbind9'; choose one of",
    "config --method ppo2": "'ppo2'; choose one of",
    "config --set model.widht=8": "'model.widht'; known are",
    "exact oracle:a:b": "train it instead",
    "exact tfbind9": "'tfbind9'; choose one of",
    "channel frobnicate": "frobnicate",
    "channel show": "CHANNEL",
    "channel fit pairs.csv": "--out",
    "channel fit pairs.csv --out channel.csv": "must end with .yaml",
    "channel fit pairs.csv --out channel.yaml --model best": "'best' is not one of 'auto', 'global', 'position'",
    "campaign frobnicate": "frobnicate",
    "campaign create lab": "--alphabet",
    "campaign create lab --alphabet dna --length 8 --gc 0.5": "LOW:HIGH",
    "campaign ask lab -n 8 --again 1": "leave out -n",
    "campaign ask lab --out plate.txt": "must be a .csv file",
    "compare --methods ppo2": "'ppo2'; choose one of",
    "compare --tasks tfbind9": "'tfbind9'; choose one of",
    "compare --seeds 0": "'seeds'",
    "compare --noise 0.1,loud": "'loud'",
    "compare --address 127.0.0.1:6379": "add --engine ray",
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, list[str]]]:
    """Exit code, standard error and heavy modules after each of the calls."""
    calls = [*ANSWERED, *REFUSED]
    command = [sys.executable, "-c", SCRIPT, json.dumps([calls, HEAVY])]
    folder = tmp_path_factory.mktemp("start")
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=100)
    assert os.listdir(folder) == []
    return dict(zip(calls, json.loads(process.stdout), strict=True))


@pytest.mark.parametrize("words", ANSWERED)
def test_help_and_lists_import_nothing_heavy(words: str, answers: dict[str, tuple[int, str, list[str]]]) -> None:
    assert answers[words] == [0, "", []]


@pytest.mark.parametrize("words", REFUSED)
def test_a_usage_error_is_one_sentence_before_anything_heavy_is_imported(
    words: str, answers: dict[str, tuple[int, str, list[str]]]
) -> None:
    code, said, heavy = answers[words]
    assert (code, heavy) == (2, [])
    (line,) = said.splitlines()
    assert line.startswith("Error: ")
    assert REFUSED[words] in line


@pytest.mark.parametrize(
    ("words", "offered"),
    [("tra", "train"), ("train tfbind8:V", "tfbind8:VAX2"), ("train --method sgfn-kl-t", "sgfn-kl-trajectory")],
)
def test_a_shell_can_complete_commands_tasks_and_methods(words: str, offered: str, tmp_path: Path) -> None:
    line = f"stochflow {words}"
    asked = {"_STOCHFLOW_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": line}
    script = "import sys; sys.argv = ['stochflow']; from stochflow.__main__ import main; main()"
    process = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert (process.returncode, process.stderr) == (0, "")
    assert f'"{offered}"' in process.stdout.replace("\\", "")

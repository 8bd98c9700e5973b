"""Code blocks of a page, run as they stand in one folder: Python in one namespace, shell in bash.

In the shell `stochflow` is a function that has its command run in this process, with smaller budgets than the page
names; programs that install, build or measure are only looked up.
"""

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stochflow.cli import app as cli
from tests.docs.pages import ROOT, Block

# beside what a command says: enough for every part of it to run, and no more
BUDGETS = {"--trajectories": "96", "--oracle-calls": "32", "--seeds": "1", "--jobs": "1", "-n": "32", "--support": "16"}
SMALL = (
    *(
        "plan.rounds=2",
        "plan.whole=0",
        "plan.rows_per_level=8",
        "optimiser.updates=1",
        "optimiser.batch_size=32",
        "dynamics.rounds=1",
    ),
    *("imagination.updates=1", "imagination.moves=2", "imagination.num_chains=8", "imagination.num_repairs=4"),
    *("imagination.candidates=2", "imagination.generations=1", "evaluation.num_samples=32", "evaluation.every=1"),
)
# where an oracle runs is no matter of the command
_ELSEWHERE = {"--oracle-engine", "--address"}
_BUDGET_OPTIONS = ("--trajectories", "--steps", "--minutes", "--oracle-calls", "--resume")
_SHELL = r"""
set -eu
ask() {{  # one question at a time: a command may be in the background
  flock 9; printf '%s\0' "$@" > {folder}/command; echo >&3
  read -r status <&4; cat {folder}/output; return "$status"
}} 9> {folder}/lock
nohup() {{ "$@"; }}
stochflow() {{ ask stochflow "$@"; }}
torchrun() {{ ask torchrun "$@"; }}
make() {{ ask make "$@"; }}
pip() {{ ask pip "$@"; }}
python() {{ ask python "$@"; }}
pre-commit() {{ ask pre-commit "$@"; }}
{text}
"""


def smaller(arguments: list[str]) -> list[str]:
    """The arguments of a command with budgets that a test can afford."""
    command, changed = arguments[0], [word for word in arguments if word != "--watch"]
    if command == "studio":
        return ["studio", "--help"]  # it would listen until somebody ends it
    out = arguments[arguments.index("--out") + 1] if "--out" in arguments else "runs/compare"
    if command == "compare" and Path(out, "sweep.yaml").exists():
        return arguments  # it goes on as it began
    for place, name in enumerate(arguments[:-1]):
        if name == "-n" and "--best" in arguments:
            continue  # the best of fewer draws than there are best ones
        if name in BUDGETS and float(arguments[place + 1]) > float(BUDGETS[name]):
            changed[place + 1] = BUDGETS[name]
    changed = ["oracle.workers=1" if word.startswith("oracle.workers=") else word for word in changed]
    changed = [word for place, word in enumerate(changed) if not {word, changed[max(place - 1, 0)]} & _ELSEWHERE]
    if command in ("train", "compare", "pretrain"):
        if command == "pretrain":
            changed += ["--steps", "2"]
        elif not set(_BUDGET_OPTIONS) & set(arguments):
            changed += ["--trajectories", BUDGETS["--trajectories"]]
        if "--resume" not in arguments:
            changed += [word for setting in SMALL for word in ("--set", setting)]
            changed += [] if "--overwrite" in arguments or command == "compare" else ["--overwrite"]
    if command == "compare":
        changed += [] if "--seeds" in arguments else ["--seeds", "1"]
        changed += [] if "--methods" in arguments else ["--methods", "gfn-tb,genetic"]  # and not all
        for place, name in enumerate(changed[:-1]):
            few = {"--methods": 2, "--noise": 1}.get(name)
            changed[place + 1] = ",".join(changed[place + 1].split(",")[:few])
    return changed


def stochflow(arguments: list[str]) -> tuple[int, str]:
    """Exit code and output of a command in this process."""
    argv, out = sys.argv, io.StringIO()
    sys.argv = ["stochflow", *smaller(arguments)]
    try:
        with contextlib.redirect_stdout(out):
            cli.main()
    except SystemExit as end:
        return int(end.code or 0), out.getvalue()
    finally:
        sys.argv = argv
    return 0, out.getvalue()


def looked_up(program: str, arguments: list[str]) -> tuple[int, str]:
    """Whether what a program is called for exists: a target, an extra, a module."""
    if program == "make":
        targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
        return int(not {each for each in arguments if "=" not in each} <= targets), ""
    if program == "pre-commit":
        return int(not (ROOT / ".pre-commit-config.yaml").exists()), ""
    if program == "pip":
        text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        extras = re.findall(r"\w+", "".join(re.findall(r"\[(.*)\]", " ".join(arguments))))
        files = [each for each in arguments if each.endswith(".txt")]
        return int(
            not all(re.search(rf"^{extra} = \[", text, flags=re.MULTILINE) for extra in extras)
            or not all((ROOT / name).exists() for name in files)
        ), ""
    if program == "torchrun":
        return stochflow(arguments[arguments.index("stochflow") + 1 :])
    if arguments[1] == "pytest":
        return int(not (ROOT / arguments[2]).exists()), ""
    module = arguments[1].replace(".", "/")
    known = [path for path in (ROOT / f"{module}.py", ROOT / module / "__main__.py") if path.exists()]
    text = "".join(path.read_text(encoding="utf-8") for path in known)
    return int(not known or not all(f'"{each}"' in text for each in arguments if each.startswith("--"))), ""


def requests(shell: "subprocess.Popen[bytes]", calls: int, folder: Path) -> Iterator[list[str]]:
    """Commands that a shell asks for, until it ends."""
    with os.fdopen(calls, "rb") as lines:
        for _ in lines:
            yield (folder / "command").read_bytes().decode().split("\0")[:-1]
    shell.wait()


def run_shell(text: str, folder: Path) -> None:
    """Run a block in bash; every command of ours must end well."""
    talk = folder / ".shell"
    talk.mkdir(exist_ok=True)
    calls, calls_end = os.pipe()
    answers_end, answers = os.pipe()
    script = _SHELL.format(folder=talk, text=text)
    shell = subprocess.Popen(
        ["bash", "-c", f"exec 3>&{calls_end} 4<&{answers_end}; {script}"],
        pass_fds=(calls_end, answers_end),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
    )
    os.close(calls_end)
    os.close(answers_end)
    failed = []
    for program, *arguments in requests(shell, calls, talk):
        code, output = stochflow(arguments) if program == "stochflow" else looked_up(program, arguments)
        if code:
            failed.append((program, arguments, code))
        (talk / "output").write_text(output, encoding="utf-8")
        os.write(answers, f"{code}\n".encode())
    os.close(answers)
    _, errors = shell.communicate()
    assert (shell.returncode, failed) == (0, []), errors.decode()


def run_blocks(blocks: list[Block], folder: Path) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks:
        if block.language == "sh":
            run_shell(block.text, folder)
        elif block.language == "python":
            exec(compile(block.text, f"block at line {block.line}", "exec"), names)

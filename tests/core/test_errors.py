import subprocess
import sys
from pathlib import Path

import pytest

from stochflow.config import options
from stochflow.core.errors import in_python

TABLES = {name: getattr(options, name) for name in ("TRAIN", "PRETRAIN", "EXACT", "SAMPLE", "EVALUATE", "COMPARE")}
OPTIONS = {option.name: option for table in TABLES.values() for option in table if option.flag != ""}
CONSTRAINTS = {option.name for option in options.CONSTRAINTS}


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_every_option_becomes_the_argument_of_its_function(name: str) -> None:
    option = OPTIONS[name]
    flag = option.flag or f"--{name.replace('_', '-')}"
    if not flag.startswith("--"):
        return
    argument = f'constraints["{name}"]' if name in CONSTRAINTS else f"{name}=True" if option.kind is bool else name
    assert in_python(f"give {flag}, or not") == f"give `{argument}`, or not"


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (
            "finish it with `stochflow train --resume --out a/b`",
            "finish it with `stochflow.train(resume=True, out='a/b')`",
        ),
        ("`stochflow train TASK --from a --support 9`", "`stochflow.train('TASK', pretrained='a', support=9)`"),
        ("run `stochflow evaluate` on it", "run `stochflow.evaluate` on it"),
        ("see `stochflow tasks`", "see `stochflow tasks`"),
        ("a--b and -- and --9", "a--b and -- and --9"),
    ],
)
def test_commands_become_functions_and_other_text_stays(written: str, said: str) -> None:
    assert in_python(written) == said


def test_a_session_of_python_is_spoken_to_in_python(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    script = (
        "import stochflow\ntry:\n stochflow.train(steps=1, out='taken')\nexcept stochflow.ConfigError as e:\n print(e)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "taken exists and is not a run directory; choose another `out`\n"
    words = [sys.executable, "-m", "stochflow", "train", "--steps", "1", "--out", "taken"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr == "Error: taken exists and is not a run directory; choose another --out\n"

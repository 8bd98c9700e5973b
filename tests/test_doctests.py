"""Every example in a docstring of the package runs and gives what it says."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import stochflow

SOURCE = Path(stochflow.__file__).parent


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


WITH_EXAMPLES = sorted(module_of(path) for path in SOURCE.rglob("*.py") if ">>> " in path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_in_docstrings_run(name: str) -> None:
    found = doctest.testmod(import_module(name), optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert found.attempted > 0
    assert found.failed == 0


def test_public_functions_and_parts_have_examples() -> None:
    shown = {"Reward", "SequenceEnvironment", "GraphEnvironment", "World", "GraphNetwork", "Truth", "rollout", "build"}
    for name in shown:
        assert ">>> " in (getattr(stochflow, name).__doc__ or ""), name

"""A small campaign in a directory of its own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stochflow import Campaign

Make = Callable[..., Campaign]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Campaigns of DNA 4-mers with eight wells, in numbered directories."""
    made: list[Campaign] = []

    def create(**settings: Any) -> Campaign:
        given = {"alphabet": "dna", "length": 4, "batch": 8} | settings
        made.append(Campaign.create(tmp_path / f"lab{len(made)}", **given))
        return made[-1]

    return create

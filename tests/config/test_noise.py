"""What `--noise` says, as settings of a channel."""

from typing import Any

import pytest

from stochflow.config.noise import parse_noise, whole_channel
from stochflow.core.errors import ConfigError


@pytest.mark.parametrize(
    ("noise", "settings"),
    [
        (0.3, {"kind": "uniform-slip", "noise": 0.3}),
        (" 0.3 ", {"kind": "uniform-slip", "noise": 0.3}),
        ("none", {"kind": "none"}),
        ("dna-synthesis", {"kind": "dna-synthesis", "noise": 0.01}),
        ("dna-synthesis:0.05", {"kind": "dna-synthesis", "noise": 0.05}),
        ("doped", {"kind": "doped", "noise": 0.79}),
        ("nnk:0.2", {"kind": "nnk", "noise": 0.2}),
        ("error-prone-pcr", {"kind": "error-prone-pcr", "noise": 0.002}),
        ("array-synthesis:0.0156", {"kind": "array-synthesis", "noise": 0.0156}),
        ("0.1,0.2", {"kind": "positional", "noise": [0.1, 0.2]}),
        ("a,b.csv", {"kind": "confusion", "file": "a,b.csv"}),
    ],
)
def test_every_form_of_noise_is_understood(noise: float | str, settings: dict[str, Any]) -> None:
    assert parse_noise(noise) == settings
    nothing_else = dict.fromkeys(("matrix", "matrices", "letters", "file", "kept")) | {"intact": 1.0}
    assert whole_channel(noise) == nothing_else | settings


@pytest.mark.parametrize(
    "noise", ["", "much", "0.1;0.2", "0,,1", "None", "dna-synthesis:x", "dna-synthesis:0.1:0.2", "matrix.txt", "α"]
)
def test_noise_that_is_not_understood_lists_the_forms_there_are(noise: str) -> None:
    with pytest.raises(ConfigError, match=r"not understood; give α in \[0, 1\), none, dna-synthesis"):
        parse_noise(noise)

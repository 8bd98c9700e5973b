"""What `--noise` says, as settings of a channel."""

import math
from pathlib import Path
from typing import Any

from stochflow.core.errors import ConfigError

_YAML = (".yaml", ".yml")
# channels by name, and the number that is meant without one; None where it must be given
PRESETS = {"array-synthesis": 0.0005695, "dna-synthesis": 0.01, "doped": 0.79, "error-prone-pcr": 0.002, "nnk": None}
# channels of several numbers: what the numbers are, and how many of them may be left out at the end
SERIES = {
    "bursts": (["slip within a burst", "begin", "end", "slip outside"], 1),
    "drift": (["slip of the first letter", "of the last"], 0),
    "mixture": (["slips of the machines"], 0),
}


EXAMPLES = {"bursts": "bursts:0.6,0.05,0.1", "drift": "drift:0.05,0.3", "mixture": "mixture:0.02,0.3"}


def parse_noise(noise: float | str) -> dict[str, Any]:
    """Channel settings from what `--noise` takes: α, none, the name of a channel, α per position, or a matrix file."""
    text = str(noise).strip()
    if text == "none":
        return {"kind": "none"}
    name, _, number = text.partition(":")
    if name in PRESETS:
        return {"kind": name, "noise": _number(number) if number else _default(name)}
    if name in SERIES:
        return {"kind": name, "noise": _series(name, number)}
    if text.endswith((".csv", *_YAML)):
        return {"kind": "confusion", "file": text}
    if "," in text:
        return {"kind": "positional", "noise": [_number(part) for part in text.split(",")]}
    return {"kind": "uniform-slip", "noise": _number(text)}


def whole_channel(noise: float | str) -> dict[str, Any]:
    """The same, and nothing of an earlier layer left standing."""
    own = {"matrix": None, "matrices": None, "letters": None, "file": None, "intact": 1.0, "kept": None}
    return own | parse_noise(noise)


def check_matrix_name(path: Path) -> None:
    """Refuse to write a matrix to a file that `--noise` would not take for YAML."""
    if path.suffix not in _YAML:
        raise ConfigError(f"--out {path} must end with .yaml, by which --noise knows it; choose another name")


def _default(name: str) -> float:
    number = PRESETS[name]
    if number is None:
        raise ConfigError(f"noise '{name}' needs a number; give the share of positions, as in {name}:0.1")
    return number


def _series(name: str, text: str) -> list[float]:
    """The numbers of a channel that has several, between commas or, in a list of channels, slashes."""
    meanings, optional = SERIES[name]
    numbers = [_number(part) for part in text.replace("/", ",").split(",")] if text else []
    fits = len(meanings) - optional <= len(numbers) <= len(meanings)
    if name == "mixture":
        fits = len(numbers) > 1
    if not fits:
        raise ConfigError(f"noise '{name}' needs its numbers ({', '.join(meanings)}), as in {EXAMPLES[name]}")
    return numbers


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ConfigError(
            f"noise '{text}' is not understood; give α in [0, 1), none, dna-synthesis[:rate], doped[:share], "
            "error-prone-pcr[:rate], array-synthesis[:rate], nnk:share, bursts:slip,begin,end, mixture:α,α, "
            "drift:first,last, one α per position separated by commas, or a .csv or .yaml matrix file"
        ) from None
    if not math.isfinite(number):
        raise ConfigError(f"noise is {number}; it must be at least 0 and below 1")
    return number

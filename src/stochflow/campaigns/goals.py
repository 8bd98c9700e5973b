"""What a campaign is for: the largest score, many good designs, or a score of a given value; and thresholds."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from stochflow.core.errors import ConfigError

Kind = Literal["maximise", "sample", "target"]
SCORE = "score"  # the property that the goal is about
_THRESHOLD = re.compile(r"\s*(?P<name>[^<>=]*[^<>=\s])\s*(?P<sign><=|>=)\s*(?P<bound>[^<>=]+)")


@dataclass(frozen=True)
class Threshold:
    """A bound that a measured property must keep.

    >>> Threshold.parse("solubility>=0.5")
    Threshold(name='solubility', bound=0.5, at_least=True)
    """

    name: str
    bound: float
    at_least: bool = True

    @classmethod
    def parse(cls, text: str) -> "Threshold":
        """A threshold as it is written, `name>=0.5` or `name<=3`."""
        found = _THRESHOLD.fullmatch(text)
        bound = math.nan if found is None else _number(found["bound"])
        if found is None or not math.isfinite(bound):
            raise ConfigError(f"the threshold '{text}' is not understood; write for example solubility>=0.5")
        return cls(found["name"].strip().lower(), bound, found["sign"] == ">=")

    def passes(self, values: Tensor) -> Tensor:
        """True where the bound is kept; not where a value is NaN. Any shape."""
        return values >= self.bound if self.at_least else values <= self.bound

    def __str__(self) -> str:
        return f"{self.name}{'>=' if self.at_least else '<='}{self.bound!r}"


@dataclass(frozen=True)
class Goal:
    """What a batch is chosen for.

    >>> Goal.parse("target:0.7", ["toxicity<=0.1"])
    Goal(kind='target', target=0.7, thresholds=(Threshold(name='toxicity', bound=0.1, at_least=False),))

    Attributes:
        kind: `maximise` the score, `sample` designs in proportion to it, or hit a `target`.
        target: the score to hit; None for other kinds.
        thresholds: bounds of further properties, or of the score itself.
    """

    kind: Kind = "maximise"
    target: float | None = None
    thresholds: tuple[Threshold, ...] = ()

    @classmethod
    def parse(cls, text: str, thresholds: Sequence[str] = ()) -> "Goal":
        """A goal as it is written: `maximise`, `sample` or `target:0.7`."""
        kind, _, number = text.partition(":")
        bounds = tuple(map(Threshold.parse, thresholds))
        for known in get_args(Kind):
            if kind == known and (known == "target") == math.isfinite(target := _number(number)):
                return cls(known, target if known == "target" else None, bounds)
        raise ConfigError(
            f"the goal '{text}' is not understood; give maximise, sample, or target:0.7 for a score of 0.7"
        )

    @property
    def properties(self) -> list[str]:
        """Names of what is measured beside the score."""
        return list(dict.fromkeys(threshold.name for threshold in self.thresholds if threshold.name != SCORE))

    def failed(self, scores: Tensor, properties: Mapping[str, Tensor]) -> Tensor:
        """True where a measured value breaks a threshold; what was not measured (NaN) breaks none. [num] → [num]."""
        broken = torch.zeros(scores.shape, dtype=torch.bool)
        for threshold in self.thresholds:
            values = scores if threshold.name == SCORE else properties[threshold.name]
            broken |= ~values.isnan() & ~threshold.passes(values)
        return broken

    def worth(self, scores: Tensor, properties: Mapping[str, Tensor]) -> Tensor:
        """What measured scores are worth, the more the nearer to the goal; −inf for a broken threshold. [num] → [num].

        >>> Goal.parse("target:0.7").worth(torch.tensor([0.6, 1.7]).double(), {})
        tensor([-0.1000, -1.0000], dtype=torch.float64)
        """
        value = scores if self.target is None else -(scores - self.target).abs()
        return value.masked_fill(self.failed(scores, properties), -math.inf)

    def __str__(self) -> str:
        return self.kind if self.target is None else f"{self.kind}:{self.target!r}"


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan

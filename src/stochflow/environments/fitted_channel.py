"""An estimated channel with its intervals, and the file that it is kept in."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import yaml

from stochflow.config.noise import check_matrix_name
from stochflow.config.yaml import parse_yaml, read_yaml_text
from stochflow.core.arrays import Array, Floats, Ints
from stochflow.core.errors import ConfigError, DataError
from stochflow.core.files import unwritable, write_atomically
from stochflow.environments.channels import Channel, positional

_Z = 1.959963984540054  # 97.5 % quantile of the normal distribution
_TABLES = {"global": "matrix", "position": "matrices", "context": "contexts"}  # names of the matrices in a file
_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_HEADING = """\
# P(observed | intended): rows are intended letters and columns observed ones, both in the order of `letters`.
# Written by `stochflow channel fit`; use it with `--noise`, and look at it with `stochflow channel show`.
"""


class Rate(NamedTuple):
    """Share of intended letters that something happened to, with its 95 % interval and their number."""

    rate: float
    lower: float
    upper: float
    number: int


@dataclass(frozen=True)
class FittedChannel:
    """An estimated channel with the counts behind it.

    Attributes:
        letters: the alphabet, in the order of rows and columns.
        model: "global" for one matrix, "position" for one per position, "context" for one per intended letter before.
        matrices: P(b|a), smoothed, float64, [groups, K, K]; rows are intended letters. One group, L positions, or K + 1
            contexts, the last for the first letter of a string.
        counts: how often b was observed for a, int64, of the same shape.
        lower, upper: 95 % Wilson intervals of the unsmoothed shares, of the same shape; [0, 1] without a count.
        edits: rates of "deletion", "duplication" and other "insertion".
        held_out: log-likelihood per held-out letter in nats by model, of fits to the other pairs; NaN where there is
            none.
        num_pairs: pairs that were counted.
        num_left_out: pairs that were not, because they have too many edits.
        num_ambiguous: reads that were not, because they are as near to two orders.
        smoothing: pseudo-counts of a row, toward equal shares; of a position or context, toward the global matrix.
        reason: why this model.
    """

    letters: str
    model: str
    matrices: Floats
    counts: Ints
    lower: Floats
    upper: Floats
    edits: Mapping[str, Rate]
    held_out: Mapping[str, float]
    num_pairs: int
    num_left_out: int
    num_ambiguous: int
    smoothing: float
    reason: str

    @property
    def mean(self) -> Floats:
        """The matrix of a letter anywhere: the mean of all, weighed by how often the letter was intended, [K, K]."""
        weights = self.counts.sum(axis=-1, keepdims=True) + 1e-9
        mean: Floats = (self.matrices * weights).sum(axis=0) / weights.sum(axis=0)
        return mean

    @property
    def channel(self) -> Channel:
        """The channel of the matrices, for environments of your own; of contexts their mean."""
        table = torch.from_numpy(self.matrices if self.model == "position" else self.mean[None])
        channel = positional(table, "fitted")
        channel.deletion, channel.duplication = self.edits["deletion"].rate, self.edits["duplication"].rate
        channel.intact = 1.0 - sum(edit.rate for edit in self.edits.values())
        if self.model == "context":
            channel.kept = torch.from_numpy(self.matrices).diagonal(dim1=-2, dim2=-1)
        return channel

    def letters_below(self, num: int) -> dict[str, int]:
        """Letters that were intended fewer than `num` times, and how often."""
        totals = self.counts.sum(axis=(0, 2)).tolist()
        return {letter: total for letter, total in zip(self.letters, totals, strict=True) if total < num}

    @property
    def error_rates(self) -> tuple[Floats, Floats, Floats]:
        """Share of wrong letters by group with its 95 % interval: rates, lower, upper, [groups] each."""
        totals = self.counts.sum(axis=(1, 2))
        wrong = totals - np.trace(self.counts, axis1=1, axis2=2)
        return wrong / np.maximum(totals, 1), *wilson_interval(wrong, totals)

    def exact_probability(self, order: str) -> float:
        """Probability that an order is made letter by letter as it was meant, by the fitted model, edits included.

        >>> eye = np.full((1, 2, 2), 0.1) + 0.8 * np.eye(2)
        >>> rates = {name: Rate(0.0, 0.0, 1.0, 0) for name in ("deletion", "duplication", "insertion")}
        >>> tables = eye, eye.astype(int), eye, eye
        >>> found = FittedChannel("AB", "global", *tables, rates, {}, 1, 0, 0, 2.0, "")
        >>> round(found.exact_probability("AAB"), 6)
        0.729
        """
        unknown = set(order) - set(self.letters)
        if unknown or not order:
            raise DataError(f"the order '{order}' is not written with the letters {self.letters}; correct it")
        if self.model == "position" and len(order) != len(self.matrices):
            raise DataError(f"the order has {len(order)} letters and the channel {len(self.matrices)} positions")
        tokens = torch.tensor([[self.letters.index(letter) for letter in order]])
        return float(self.channel.exact_probability(tokens))

    def save(self, path: str | Path) -> None:
        """Write the file that `--noise` and `stochflow channel show` read, in one step."""
        path = Path(path)
        check_matrix_name(path)
        text = yaml.dump(
            self._content(), Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=None, width=10**9
        )
        try:
            write_atomically(path, _HEADING + text)
        except (OSError, ValueError) as error:
            raise unwritable(path, error) from None

    def _content(self) -> dict[str, Any]:
        one = self.model == "global"
        content: dict[str, Any] = {"letters": self.letters, "model": self.model, "reason": self.reason}
        if self.model == "context":
            content["matrix"] = self.mean.tolist()  # what --noise reads
        tables = {_TABLES[self.model]: self.matrices, "counts": self.counts}
        tables |= {name: np.round(table, 8) for name, table in (("lower", self.lower), ("upper", self.upper))}
        content |= {name: table.tolist()[0] if one else table.tolist() for name, table in tables.items()}
        content |= {name: edit._asdict() for name, edit in self.edits.items()}
        content |= {"pairs": self.num_pairs, "left_out": self.num_left_out, "ambiguous": self.num_ambiguous}
        held_out = {name: None if math.isnan(value) else value for name, value in self.held_out.items()}
        return content | {"smoothing": self.smoothing, "held_out": held_out}

    @classmethod
    def load(cls, path: str | Path) -> "FittedChannel":
        """Read what `save` has written."""
        path = Path(path)
        try:
            return cls._of(parse_yaml(read_yaml_text(path)))
        except FileNotFoundError:
            raise DataError(f"the channel file {path} does not exist; check the path") from None
        except (OSError, ValueError, TypeError, LookupError, AttributeError, OverflowError, ConfigError) as error:
            raise DataError(
                f"{path} is no channel that `stochflow channel fit` has written ({' '.join(str(error).split())}); "
                "fit it again"
            ) from None

    @classmethod
    def _of(cls, content: Any) -> "FittedChannel":
        """From the content of a file; what is wrong with it raises one of many errors."""
        letters, model = str(content["letters"]), str(content["model"])
        names = (_TABLES[model], "counts", "lower", "upper")
        tables = [np.asarray(content[name])[None if model == "global" else ...] for name in names]
        _check_tables(tables, len(letters))
        matrices, counts, lower, upper = tables
        return cls(
            letters,
            model,
            matrices.astype(np.float64),
            counts.astype(np.int64),
            lower.astype(np.float64),
            upper.astype(np.float64),
            {name: _rate(content.get(name)) for name in ("deletion", "duplication", "insertion")},
            {str(name): math.nan if value is None else float(value) for name, value in content["held_out"].items()},
            int(content["pairs"]),
            int(content["left_out"]),
            int(content.get("ambiguous", 0)),
            float(content["smoothing"]),
            str(content["reason"]),
        )


def wilson_interval(num: Ints, total: Ints) -> tuple[Floats, Floats]:
    """The 95 % Wilson score interval of a probability, from `num` successes in `total` trials; [0, 1] without any.

    >>> lower, upper = wilson_interval(np.array([0, 5]), np.array([10, 10]))
    >>> lower.round(4).tolist(), upper.round(4).tolist()
    ([0.0, 0.2366], [0.2775, 0.7634])
    """
    trials = np.maximum(total, 1)
    share = num / trials
    centre = share + _Z**2 / (2 * trials)
    half = _Z * np.sqrt(share * (1 - share) / trials + _Z**2 / (4 * trials**2))
    scale = 1 + _Z**2 / trials
    # exact at the ends, where rounding would leave 1e-17
    lower = np.where((total == 0) | (num == 0), 0.0, (centre - half) / scale)
    upper = np.where((total == 0) | (num == total), 1.0, (centre + half) / scale)
    return lower, upper


def edit_rate(num: int, total: int) -> Rate:
    """Rate of an edit that `num` of `total` intended letters suffered.

    >>> edit_rate(5, 10).rate
    0.5
    """
    lower, upper = wilson_interval(np.array(num), np.array(total))
    return Rate(num / max(total, 1), float(lower), float(upper), num)


def _rate(content: Any) -> Rate:
    """A rate as `save` writes it; files from before there were rates have none."""
    if content is None:
        return Rate(0.0, 0.0, 1.0, 0)
    rate, lower, upper = (float(content[name]) for name in ("rate", "lower", "upper"))
    found = Rate(rate, lower, upper, int(content["number"]))
    if not all(0.0 <= value <= 1.0 for value in found[:3]) or found.number < 0:
        raise ValueError("it has rates outside [0, 1]")
    return found


def _check_tables(tables: Sequence[Array], size: int) -> None:
    """A ValueError unless these can be matrices, counts and bounds of as many letters."""
    shape = (len(tables[0]), size, size)
    if not len(tables[0]) or any(table.shape != shape or table.dtype.kind not in "if" for table in tables):
        raise ValueError(f"its tables are not all of the shape {shape}")
    if tables[1].dtype.kind != "i" or tables[1].min() < 0:
        raise ValueError("its counts are not all whole numbers from 0 on")
    if any(not ((table >= 0) & (table <= 1)).all() for table in (tables[0], *tables[2:])):
        raise ValueError("it has probabilities outside [0, 1]")

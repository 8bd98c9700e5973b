"""P(outcome | intention): what the world does with what the policy meant."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stochflow.core.errors import ConfigError
from stochflow.core.logspace import pick, safe_log

Tokens = npt.NDArray[np.int64]

ROW_SUM_TOLERANCE = 1e-6


class Channel:
    """A discrete noisy channel over K tokens, the same at every position or one per position.

    Attributes:
        matrices: P(b|a), float64, [positions or 1, K, K]; rows are intentions, columns outcomes.
        slip: α when every position is the same uniform slip (zero for a noiseless world), otherwise None.
        name: what the user called it; goes into `summary.json`.
        deletion, duplication: how often the world also loses or doubles a letter, where that is known. What becomes of
            one letter does not show it: only designs of variable length simulate it.
        intact: share of letters that are neither lost nor doubled nor followed by another that nobody meant.
        kept: P(a|a) by the letter before, the last row for first letters, float64, [K + 1, K]; None where the letter
            before does not matter.
    """

    deletion: float = 0.0
    duplication: float = 0.0
    intact: float = 1.0
    kept: Tensor | None = None

    def __init__(self, matrices: Tensor, name: str, slip: float | None = None) -> None:
        self.matrices = _validated(matrices)
        cumulative = self.matrices.cumsum(dim=-1)
        # scaled by the row's own total: rounding in the sum must not open an index past the last token
        self._cumulative = (cumulative / cumulative[..., -1:]).numpy()
        self.name = name
        self.slip = slip

    @property
    def num_tokens(self) -> int:
        return self.matrices.shape[-1]

    @property
    def noise(self) -> float | str:
        """The slip α where there is one, otherwise the channel's name."""
        return self.name if self.slip is None else self.slip

    @property
    def is_noiseless(self) -> bool:
        """True where every intention comes as it is."""
        return torch.equal(self.matrices, torch.eye(self.num_tokens, dtype=torch.float64).expand_as(self.matrices))

    def matrix(self, position: int) -> Tensor:
        """P(b|a) at a position, float64, [K, K]."""
        return self.matrices[position if len(self.matrices) > 1 else 0]

    def check_length(self, length: int) -> None:
        """Refuse a length that the position matrices do not fit."""
        if len(self.matrices) not in (1, length):
            raise ConfigError(
                f"the channel '{self.name}' has {len(self.matrices)} position matrices but the task has length "
                f"{length}; give one matrix per position or a single one for all"
            )

    def log_matrices(self, length: int) -> Tensor:
        """log P(b|a) for positions 0 … length − 1, float64, [length, K, K]; impossible outcomes get log 1e-30."""
        self.check_length(length)
        return safe_log(self.matrices).expand(length, -1, -1)

    def sample(self, intentions: Tensor, position: int, generator: torch.Generator) -> Tensor:
        """Outcomes b ~ P(·|a) for a batch of intentions at one position; [batch] → [batch]."""
        if self.slip == 0.0:
            return intentions
        uniform = self.draw(intentions.shape, generator).numpy()
        return torch.from_numpy(self.realised(intentions.numpy(), position, uniform))

    def draw(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """What `realised` needs of chance: numbers drawn uniformly from [0, 1), float64."""
        return torch.rand(shape, generator=generator, dtype=torch.float64)

    def realised(self, intentions: Tokens, position: int, uniform: npt.NDArray[np.float64]) -> Tokens:
        """The outcomes that numbers drawn uniformly from [0, 1) stand for; any common shape → the same.

        In numpy, whose operations on a handful of numbers cost a fraction of torch's.
        """
        cumulative = self._cumulative[position if len(self._cumulative) > 1 else 0].take(intentions, axis=0)
        found: Tokens = np.add.reduce(uniform[..., None] >= cumulative, axis=-1)
        return found

    def exact_probability(self, orders: Tensor) -> Tensor:
        """Share of the copies of each order that are made letter by letter as written, edits included; [n, L] → [n].

        >>> uniform_slip(4, 0.1).exact_probability(torch.tensor([[0, 1, 2]])).item()  # (1 − 0.1 + 0.1 / 4)³
        0.7914531250000001
        """
        num, length = orders.shape
        if self.kept is None:
            certain = pick(self.matrices.expand(length, -1, -1).diagonal(dim1=-2, dim2=-1).expand(num, -1, -1), orders)
        else:
            first = torch.full((num, 1), self.num_tokens, dtype=orders.dtype)
            certain = self.kept[torch.cat([first, orders[:, :-1]], dim=1), orders]
        return certain.prod(dim=-1) * self.intact**length

    def entropies(self) -> Tensor:
        """H(P(·|a)) in nats, float64, [positions or 1, K]: the floor of a dynamics model's cross-entropy."""
        return -(self.matrices * safe_log(self.matrices)).sum(dim=-1)


def noiseless(num_tokens: int) -> Channel:
    """A channel without noise: the outcome is the intention."""
    return Channel(torch.eye(num_tokens, dtype=torch.float64)[None], "none", slip=0.0)


def uniform_slip(num_tokens: int, alpha: float) -> Channel:
    """With probability α the outcome is redrawn uniformly, the intended token included."""
    _check_slip(alpha)
    return Channel(_slip_matrix(num_tokens, alpha)[None], f"uniform-slip:{alpha:g}", slip=float(alpha))


def positional_slip(num_tokens: int, alphas: Sequence[float]) -> Channel:
    """Uniform slip with its own α at every position."""
    for alpha in alphas:
        _check_slip(alpha)
    matrices = torch.stack([_slip_matrix(num_tokens, alpha) for alpha in alphas]) if alphas else torch.empty(0)
    return Channel(matrices, "positional-slip:" + ",".join(f"{alpha:g}" for alpha in alphas))


def drift(num_tokens: int, length: int, first: float, last: float) -> Channel:
    """Uniform slip that grows or falls evenly from the first letter to the last.

    >>> drift(4, 3, 0.1, 0.3).name
    'drift:0.1,0.3'
    """
    steps = max(length - 1, 1)
    channel = positional_slip(num_tokens, [first + (last - first) * place / steps for place in range(length)])
    channel.name = f"drift:{first:g},{last:g}"
    return channel


def confusion(matrix: Sequence[Sequence[float]] | Tensor, name: str = "confusion") -> Channel:
    """Any K×K matrix of P(b|a), the same at every position."""
    return Channel(_as_tensor(matrix, name).unsqueeze(0), name)


def positional(matrices: Sequence[Sequence[Sequence[float]]] | Tensor, name: str = "positional") -> Channel:
    """One K×K matrix of P(b|a) per position."""
    return Channel(_as_tensor(matrices, name), name)


def dna_synthesis(error_rate: float, transition_share: float = 2 / 3) -> Channel:
    """Substitution errors of DNA synthesis over the alphabet ACGT.

    A base comes out wrong with probability `error_rate`. A wrong base is the transition partner (A↔G, C↔T) with
    probability `transition_share` and each of the two transversions with half of the rest. Every base and every
    position err alike; insertions and deletions are not modelled. Two thirds is a transition/transversion ratio
    of two, where chance alone would give one half.
    """
    if not 0.0 <= error_rate < 1.0:
        raise ConfigError(f"dna-synthesis error rate is {error_rate:g}; it must be at least 0 and below 1")
    transversion = error_rate * (1.0 - transition_share) / 2.0
    matrix = torch.full((4, 4), transversion, dtype=torch.float64)
    matrix.fill_diagonal_(1.0 - error_rate)
    for base, partner in enumerate((2, 3, 0, 1)):  # A↔G, C↔T in the order ACGT
        matrix[base, partner] = error_rate * transition_share
    return Channel(matrix[None], f"dna-synthesis:{error_rate:g}")


def _slip_matrix(num_tokens: int, alpha: float) -> Tensor:
    identity = torch.eye(num_tokens, dtype=torch.float64)
    return (1.0 - alpha) * identity + alpha / num_tokens


def _check_slip(alpha: float) -> None:
    if not 0.0 <= alpha < 1.0:
        raise ConfigError(
            f"noise is {alpha:g}; the slip probability must be at least 0 and below 1 (at 1 no intention counts)"
        )


def _as_tensor(values: object, name: str) -> Tensor:
    try:
        return torch.as_tensor(values, dtype=torch.float64)
    except (ValueError, TypeError, OverflowError) as error:
        raise ConfigError(f"the channel '{name}' must be a table of numbers with equal rows ({error})") from None


def _validated(matrices: Tensor) -> Tensor:
    if not len(matrices):
        raise ConfigError("a channel needs at least one position; give one matrix or slip per position")
    if matrices.ndim != 3 or matrices.shape[-1] != matrices.shape[-2] or matrices.shape[-1] == 0:
        raise ConfigError(
            f"a channel needs square matrices, one row per intended token, but the shape is {tuple(matrices.shape)}; "
            "give K rows of K probabilities"
        )
    if not bool(torch.isfinite(matrices).all()) or bool((matrices < 0).any()):
        raise ConfigError("a channel holds probabilities; replace its negative or non-finite entries")
    off = (matrices.sum(dim=-1) - 1.0).abs()
    if bool((off > ROW_SUM_TOLERANCE).any()):
        position, row = divmod(int(off.flatten().argmax()), matrices.shape[-1])
        raise ConfigError(
            f"row {row + 1} of the channel matrix at position {position + 1} sums to "
            f"{float(matrices[position, row].sum()):.6g}; every row must sum to 1"
        )
    return matrices / matrices.sum(dim=-1, keepdim=True)

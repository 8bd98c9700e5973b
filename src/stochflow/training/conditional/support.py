"""Support sets: the few measured sequences by which a task introduces itself."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from stochflow.core.codes import encode
from stochflow.core.errors import ConfigError
from stochflow.environments.sequences.task import MAX_ENUMERABLE, Task

_ANYWHERE = (3, 4)
_MAX_CODES = 1024


class Support(NamedTuple):
    """Measured sequences of one task, or of several with a leading batch dimension.

    Attributes:
        tokens: [..., num, L].
        scores: float64, [..., num].
    """

    tokens: Tensor
    scores: Tensor


def draw_sequences(task: Task, num: int, generator: torch.Generator) -> Tensor:
    """Distinct uniformly random sequences, [num, L]."""
    if not 1 <= num <= task.size <= MAX_ENUMERABLE:
        raise ConfigError(f"a support of {num} sequences cannot be drawn from {task.name}; ask for another number")
    return task.all_sequences[torch.randperm(task.size, generator=generator)[:num]]


def draw_support(task: Task, num: int, generator: torch.Generator) -> Support:
    """Distinct uniformly random sequences and their scores: `num` oracle calls.

    >>> from stochflow.environments.sequences.tfbind8 import TFBind8
    >>> support = draw_support(TFBind8("VAX2"), 256, torch.Generator().manual_seed(0))
    >>> support.tokens.shape, support.scores.shape
    (torch.Size([256, 8]), torch.Size([256]))
    """
    tokens = draw_sequences(task, num, generator)
    return Support(tokens, task.score(tokens).double())


def support_features(support: Support, num_tokens: int) -> Tensor:
    """One vector per measured sequence, float32, [..., num, num_features].

    Its k-mers times its standardised score, so that the mean over the support says which k-mers go with which score;
    then the mean and the spread of all scores, which standardising removed.
    """
    spread, mean = torch.std_mean(support.scores, dim=-1, keepdim=True, correction=0)
    standardised = ((support.scores - mean) / spread.clamp_min(1e-6)).unsqueeze(-1)
    scale = torch.stack([mean, spread], dim=-1).expand(*support.scores.shape, 2)
    return torch.cat([standardised * kmer_counts(support.tokens, num_tokens), scale], dim=-1).float()


def num_features(num_tokens: int, length: int) -> int:
    """Size of a vector of `support_features`."""
    return num_tokens * length + sum(num_tokens**k for k in _kmers(num_tokens, length)) + 2


def kmer_counts(tokens: Tensor, num_tokens: int) -> Tensor:
    """Letters by position, then 3- and 4-mers wherever they stand; [..., L] → [..., L·K + K³ + K⁴]."""
    counts = [functional.one_hot(tokens, num_tokens).flatten(-2)]
    for k in _kmers(num_tokens, tokens.shape[-1]):
        codes = encode(tokens.unfold(-1, k, 1), num_tokens)
        empty = torch.zeros(*tokens.shape[:-1], num_tokens**k, dtype=torch.int64, device=tokens.device)
        counts.append(empty.scatter_add(-1, codes, torch.ones_like(codes)))
    return torch.cat(counts, dim=-1)


def _kmers(num_tokens: int, length: int) -> list[int]:
    return [k for k in _ANYWHERE if k <= length and num_tokens**k <= _MAX_CODES]

"""Bit sequences whose reward falls with the distance to the nearest of 60 hidden modes (Malkin et al. 2022)."""

import math

import torch
from torch import Tensor

from stochflow.core.errors import ConfigError
from stochflow.environments.registry import FORMS, numbers_in
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.hash_random import HashRandom
from stochflow.environments.sequences.task import Alphabet, Task

FORM = FORMS["bits"]
DEFAULT = (120, 8)
NUM_MODES = 60
WORDS = ("00000000", "11111111", "11110000", "00001111", "00111100")
_MAX_WORD = 8
_MAX_BITS = 2**12
_HEXADECIMAL = "0123456789ABCDEF"
_BRAILLE = 0x2800  # the first of 256 patterns of eight dots


class BitSequences(Task):
    """n bits, written k at a time: 2^k tokens and n/k steps.

    score(x) = exp(1 − min_y d(x, y)/n) over the modes y, with d the number of bits that differ; so it lies in [1, e],
    and R = score^β = exp(β·(1 − d/n)). The 60 modes are rows of n/8 words drawn uniformly from the five published
    words of eight bits. The paper draws them at random; here they are a function of n alone, so that every k and every
    run has the same target. A design above `mode_threshold` has d < n/4: 30 bits of 120, as published.

    A token is its k bits read as a number, first bit highest. Up to k = 4 it is written as a hexadecimal digit, above
    that as the Braille pattern of that number.

    Attributes:
        modes: the hidden modes as bits, [60, n].
    """

    mode_threshold = float(torch.tensor(0.75, dtype=torch.float64).exp())

    def __init__(self, num_bits: int = DEFAULT[0], word_length: int = DEFAULT[1]) -> None:
        if not 1 <= word_length <= _MAX_WORD or num_bits % word_length:
            raise ConfigError(
                f"{num_bits} bits cannot be written {word_length} at a time; choose k from 1 to {_MAX_WORD} so that it "
                f"divides n in {FORM}"
            )
        if num_bits % len(WORDS[0]) or num_bits > _MAX_BITS:
            raise ConfigError(
                f"modes are made of words of eight bits, so {num_bits} bits do not fit; give {FORM} an n that is a "
                f"multiple of 8 and at most {_MAX_BITS}"
            )
        self.name = f"bits:{num_bits},{word_length}"
        self.num_bits, self._word_length = num_bits, word_length
        self.alphabet = Alphabet(_letters(word_length))
        self.length = num_bits // word_length
        self.description = f"{num_bits} bits, {word_length} per step, near one of {NUM_MODES} modes; {FORM} for others"
        words = torch.tensor([[int(bit) for bit in word] for word in WORDS])
        chosen = HashRandom(f"bits:{num_bits}").integers(len(WORDS), NUM_MODES * num_bits // words.shape[1])
        self.modes = words[chosen].view(NUM_MODES, num_bits)

    def bits(self, tokens: Tensor) -> Tensor:
        """Bits of token sequences; [num_sequences, length] → [num_sequences, n]."""
        shifts = torch.arange(self._word_length - 1, -1, -1)
        return (tokens.unsqueeze(-1) >> shifts & 1).flatten(1)

    def distances(self, tokens: Tensor) -> Tensor:
        """Hamming distance in bits from each sequence to each mode; [num_sequences, length] → [num_sequences, 60].

        |x| + |y| − 2·x·y: integers that float32 represents exactly.
        """
        bits, modes = self.bits(tokens).float(), self.modes.float()
        return bits.sum(dim=-1, keepdim=True) + modes.sum(dim=-1) - 2.0 * bits @ modes.T

    def score(self, tokens: Tensor) -> Tensor:
        nearest = self.distances(tokens).amin(dim=-1).double()
        return (1.0 - nearest / self.num_bits).exp()

    def log_z_bounds(self, reward: Reward) -> tuple[float, float] | None:
        """Bounds of log Z from sums over single modes and over pairs of them.

        With u = exp(−β/n) a mode y alone has Z_y = e^β·(1 + u)^n. R is the largest of the rewards r_y of the modes, so

            Σ_y Z_y − Σ_{y<y'} Σ_x min(r_y(x), r_y'(x)) ≤ Z ≤ Σ_y Z_y,

        where the sum over x of two modes that differ in D bits is e^β·(1 + u)^(n − D)·Σ_k C(D, k)·u^max(k, D − k).
        """
        log_u = -reward.beta / self.num_bits
        if reward.floor > 1.0 or log_u == 0.0:
            return None
        modes, per_bit = self.modes.unique(dim=0), float(torch.tensor(log_u, dtype=torch.float64).exp().log1p())
        upper = math.log(len(modes)) + reward.beta + self.num_bits * per_bit
        apart = torch.pdist(modes.double(), p=1.0).round().long()
        overlaps = [
            math.log(count) + reward.beta + (self.num_bits - bits) * per_bit + _log_overlap(bits, log_u)
            for bits, count in zip(*(found.tolist() for found in apart.unique(return_counts=True)), strict=True)
        ]
        share = math.exp(min(float(torch.tensor(overlaps, dtype=torch.float64).logsumexp(dim=0)) - upper, 0.0))
        return (upper + math.log1p(-share) if share < 1.0 else -math.inf), upper

    def modes_reached(self, tokens: Tensor) -> Tensor | None:
        return (self.distances(tokens) < self.num_bits / 4).any(dim=0)


def bit_sequences(parameters: str) -> BitSequences:
    """The task `bits:<parameters>`; n = 120 and k = 8 by default.

    >>> task = bit_sequences("16,4")
    >>> task.num_tokens, task.length
    (16, 4)
    """
    return BitSequences(*numbers_in(parameters, "bits", 2, 2)) if parameters else BitSequences()


def _log_overlap(num_bits: int, log_u: float) -> float:
    """log Σ_k C(D, k)·u^max(k, D − k) for D bits."""
    k = torch.arange(num_bits + 1, dtype=torch.float64)
    log_choices = math.lgamma(num_bits + 1) - torch.lgamma(k + 1) - torch.lgamma(num_bits - k + 1)
    return float((log_choices + torch.maximum(k, num_bits - k) * log_u).logsumexp(dim=0))


def _letters(word_length: int) -> str:
    if 2**word_length <= len(_HEXADECIMAL):
        return _HEXADECIMAL[: 2**word_length]
    return "".join(chr(_BRAILLE + word) for word in range(2**word_length))

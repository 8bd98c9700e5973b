"""Ehrlich functions: closed-form test functions with infeasible sequences, epistasis and a known optimum.

After Stanton et al. 2024, Closed-form test functions for biophysical sequence design, arXiv:2407.00236.
"""

import torch
from torch import Tensor

from stochflow.core.errors import ConfigError
from stochflow.environments.registry import FORMS, numbers_in
from stochflow.environments.sequences.hash_random import HashRandom
from stochflow.environments.sequences.task import Alphabet, Task

FORM = FORMS["ehrlich"]
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_MAX_LENGTH = 2**12
_BANNED_SHARE = 4  # one in this many letters may not follow a letter


class Ehrlich(Task):
    """v letters, length L, c motifs of k letters, quality quantised to q levels (k unless given).

    A sequence is feasible when it contains no banned transition between neighbouring letters; each letter bans ⌊v/4⌋
    successors, never itself. Motif i is made of letters a_1 … a_k at offsets 0 = s_1 < … < s_k < ⌊L/c⌋ from a start l:

        h_i(x) = max_l ⌊q·#{j : x_{l + s_j} = a_j}/k⌋/q        score(x) = Π_i h_i(x) if x is feasible, otherwise 0

    so the score lies in [0, 1]. Motifs, spacings and bans are drawn by a hash of the name. The concatenated motifs
    contain no banned transition, and a letter may always follow itself, so the motifs stretched to their spacings are
    feasible: `optimum`, which scores 1. Unlike in the paper an infeasible sequence scores 0 rather than −∞; how the
    functions of its authors' package differ is in docs/reference/tasks.md.

    Attributes:
        allowed: True where the second letter may follow the first, [v, v].
        motifs: [c, k].
        spacings: offsets of a motif's letters from its first, [c, k].
        optimum: one sequence that scores 1, [L].
    """

    mode_threshold = 0.5

    def __init__(self, num_letters: int, length: int, num_motifs: int, motif_length: int, levels: int = 0) -> None:
        self.levels = levels or motif_length
        self.name = "ehrlich:" + ",".join(map(str, (num_letters, length, num_motifs, motif_length)))
        self.name += f",{levels}" if levels else ""
        _check(self.name, num_letters, length, num_motifs, motif_length, self.levels)
        self.alphabet, self.length = Alphabet(_LETTERS[:num_letters]), length
        self.description = f"{num_motifs} spaced motifs, banned transitions, best score 1; {FORM} for others"
        # independent of the levels: all quantisations share the motifs
        draws = HashRandom(f"ehrlich:{num_letters},{length},{num_motifs},{motif_length}")
        self.allowed = _transitions(num_letters, draws)
        self.motifs = _walk(self.allowed, num_motifs, motif_length, draws)
        width = length // num_motifs
        self.spacings = torch.stack([_spacing(width, motif_length, draws) for _ in range(num_motifs)])
        # each block of `width` letters repeats a motif letter until the offset of the next one
        index = (torch.arange(width).view(1, -1, 1) >= self.spacings.unsqueeze(1)).sum(dim=-1) - 1
        blocks = self.motifs.gather(1, index).flatten()
        self.optimum = torch.cat([blocks, blocks[-1:].expand(length - len(blocks))])

    def feasible(self, tokens: Tensor) -> Tensor:
        """True where no transition is banned; [num_sequences, length] → [num_sequences]."""
        return self.allowed[tokens[:, :-1], tokens[:, 1:]].all(dim=-1)

    def quality(self, tokens: Tensor) -> Tensor:
        """h_i of every motif, float64; [num_sequences, length] → [num_sequences, c]."""
        qualities = []
        for motif, spacing in zip(self.motifs, self.spacings, strict=True):
            windows = tokens.unfold(1, int(spacing[-1]) + 1, 1)  # [num_sequences, starts, span]
            matches = (windows[..., spacing] == motif).sum(dim=-1).amax(dim=-1)
            qualities.append((matches * self.levels // len(motif)).double() / self.levels)
        return torch.stack(qualities, dim=-1)

    def score(self, tokens: Tensor) -> Tensor:
        return torch.where(self.feasible(tokens), self.quality(tokens).prod(dim=-1), 0.0)


def ehrlich(parameters: str) -> Ehrlich:
    """The task `ehrlich:<parameters>`; v = L = 32 and c = k = 4 by default.

    >>> task = ehrlich("4,8,2,2")
    >>> task.score(task.optimum.unsqueeze(0))
    tensor([1.], dtype=torch.float64)
    """
    return Ehrlich(*numbers_in(parameters or "32,32,4,4", "ehrlich", 4, 5))


def _check(name: str, num_letters: int, length: int, num_motifs: int, motif_length: int, levels: int) -> None:
    """Raise a ConfigError for parameters outside their range, or motifs that do not fit into the length."""
    most = num_letters - num_letters // _BANNED_SHARE
    problem = ""
    if not 2 <= num_letters <= len(_LETTERS):
        problem = f"give v from 2 to {len(_LETTERS)} letters"
    elif not 2 <= length <= _MAX_LENGTH:
        problem = f"give a length L from 2 to {_MAX_LENGTH}"
    elif motif_length > most:
        problem = f"motifs of different letters have at most {most} of {num_letters}, so give a smaller k"
    elif num_motifs * motif_length > length:
        problem = f"{num_motifs} motifs of {motif_length} letters need a length L of {num_motifs * motif_length}"
    elif levels > motif_length:
        problem = f"a motif of {motif_length} letters has at most {motif_length} levels, so give a smaller q"
    if problem:
        raise ConfigError(f"task '{name}' does not exist; {problem}")


def _transitions(num_letters: int, draws: HashRandom) -> Tensor:
    """Allowed transitions, [v, v]; a random cycle through all letters is allowed, so every letter can be reached."""
    cycle = draws.permutation(num_letters)
    allowed = torch.ones(num_letters, num_letters, dtype=torch.bool)
    for place in range(num_letters):
        letter, successor = cycle[place], cycle[(place + 1) % num_letters]
        order = draws.permutation(num_letters)
        candidates = order[(order != letter) & (order != successor)]
        allowed[letter, candidates[: num_letters // _BANNED_SHARE]] = False
    return allowed


def _walk(allowed: Tensor, num_motifs: int, motif_length: int, draws: HashRandom) -> Tensor:
    """Motifs whose concatenation has no banned transition, without repeated letters in a motif; [c, k]."""
    motifs = torch.empty(num_motifs, motif_length, dtype=torch.int64)
    last = None
    for motif in motifs:
        fresh = torch.ones(len(allowed), dtype=torch.bool)
        for place in range(motif_length):
            open_letters = (fresh if last is None else fresh & allowed[last]).nonzero().squeeze(-1)
            last = open_letters[draws.integers(len(open_letters), 1)].squeeze(0)
            motif[place], fresh[last] = last, False
    return motifs


def _spacing(width: int, motif_length: int, draws: HashRandom) -> Tensor:
    """Offsets 0 = s_1 < … < s_k < width, uniformly distributed; [k]."""
    later = 1 + draws.permutation(width - 1)[: motif_length - 1]
    return torch.cat([torch.zeros(1, dtype=torch.int64), later.sort().values])

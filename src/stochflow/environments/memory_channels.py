"""Channels with memory: what comes of a letter depends on a hidden state, which the pairs so far reveal in part."""

from collections.abc import Sequence

import torch
from torch import Tensor

from stochflow.core.errors import ConfigError
from stochflow.core.logspace import TINY_PROBABILITY, pick, safe_log
from stochflow.environments.channels import Channel, uniform_slip

_STATIONARY = 1e-9


class MemoryChannel(Channel):
    """A channel that a hidden Markov chain z_0, z_1, … drives: b_t ~ P(·|a_t, z_t). Intentions do not move the chain.

    Whoever sees the pairs (intended, came) so far knows the chain up to a belief w_t(z) = P(z_t = z | pairs before t).
    The chain is stationary, so `matrices` holds the one matrix that nobody can tell from the channel without looking
    at pairs: P(b|a) = Σ_z P(z)·P(b|a,z).

    >>> machines = mixture(4, [0.0, 0.4])
    >>> pairs = torch.tensor([[0, 1, 2]]), torch.tensor([[0, 3, 2]])  # the second letter went wrong
    >>> machines.beliefs(*pairs)[0].round(decimals=2).tolist()  # so it was the second machine
    [[0.5, 0.5], [0.59, 0.41], [0.0, 1.0], [0.0, 1.0]]

    Attributes:
        start: P(z), float64, [H].
        moves: P(z_{t+1}|z_t), float64, [H, H].
        emissions: P(b|a, z), float64, [H, K, K].
    """

    def __init__(self, start: Tensor, moves: Tensor, emissions: Tensor, name: str) -> None:
        self.start, self.moves, self.emissions = start.double(), moves.double(), emissions.double()
        if not torch.allclose(self.start @ self.moves, self.start, atol=_STATIONARY):
            raise ValueError("the chain does not begin where it settles; give its stationary distribution as start")
        super().__init__(torch.einsum("z,zab->ab", self.start, self.emissions).unsqueeze(0), name)

    def hidden(self, num: int, length: int, generator: torch.Generator) -> Tensor:
        """Paths of the hidden chain; [length, num]."""
        states = torch.empty(length, num, dtype=torch.int64)
        probs = self.start.expand(num, -1)
        for time in range(length):
            states[time] = torch.multinomial(probs, 1, generator=generator).squeeze(1)
            probs = self.moves[states[time]]
        return states

    def emitted(self, intentions: Tensor, hidden: Tensor, uniform: Tensor) -> Tensor:
        """The outcomes that numbers drawn uniformly from [0, 1) stand for in given hidden states; any common shape."""
        cumulative = self.emissions.cumsum(dim=-1)
        cumulative = (cumulative / cumulative[..., -1:])[hidden, intentions]
        return (uniform.unsqueeze(-1) >= cumulative).sum(dim=-1)

    def transmit(self, intentions: Tensor, generator: torch.Generator) -> Tensor:
        """What comes of whole sequences; [num, L] → [num, L]."""
        num, length = intentions.shape
        hidden = self.hidden(num, length, generator).T
        return self.emitted(intentions, hidden, self.draw(tuple(intentions.shape), generator))

    def beliefs(self, intentions: Tensor, outcomes: Tensor) -> Tensor:
        """w_t(z) before every letter and after the last, by the forward filter; [num, L] twice → [num, L + 1, H]."""
        belief = self.start.expand(len(intentions), -1)
        found = [belief]
        for intended, came in zip(intentions.T, outcomes.T, strict=True):
            belief = self.updated(belief, intended, came)
            found.append(belief)
        return torch.stack(found, dim=1)

    def updated(self, belief: Tensor, intended: Tensor, came: Tensor) -> Tensor:
        """The belief after one more pair; [num, H], [num], [num] → [num, H]."""
        joint = belief * self.emissions[:, intended, came].T
        # what cannot have come says nothing
        seen = joint.sum(dim=-1, keepdim=True)
        return torch.where(seen > TINY_PROBABILITY, joint / seen.clamp_min(TINY_PROBABILITY), belief) @ self.moves

    def predictive(self, beliefs: Tensor) -> Tensor:
        """P(b|a, pairs so far) = Σ_z w(z)·P(b|a,z); [..., H] → [..., K, K]."""
        return torch.einsum("...z,zab->...ab", beliefs, self.emissions)

    def log_matrices_along(self, intentions: Tensor, outcomes: Tensor) -> Tensor:
        """log P(b|a, pairs before t) at every letter of sequences; [num, L] twice → [num, L, K, K]."""
        return safe_log(self.predictive(self.beliefs(intentions, outcomes)[:, :-1]))

    def log_prob(self, intentions: Tensor, outcomes: Tensor) -> Tensor:
        """log P(outcomes|intentions) of whole sequences, float64; [num, L] twice → [num].

        >>> channel = bursts(4, slip=0.8, begin=0.1, end=0.3)
        >>> intended = torch.tensor([[0, 1, 2, 3]])
        >>> together, apart = torch.tensor([[3, 2, 2, 3]]), torch.tensor([[3, 1, 2, 0]])
        >>> bool(channel.log_prob(intended, together) > channel.log_prob(intended, apart))  # errors come in bursts
        True
        """
        steps = self.log_matrices_along(intentions, outcomes)
        rows = steps.gather(-2, intentions[..., None, None].expand(*intentions.shape, 1, self.num_tokens)).squeeze(-2)
        return pick(rows, outcomes).sum(dim=-1)


def mixture(num_tokens: int, slips: Sequence[float]) -> MemoryChannel:
    """A machine drawn for every episode, each as often as the others: uniform slip with the machine's own α."""
    if len(slips) < 2:
        raise ConfigError("a mixture needs the slips of two machines or more, as in mixture:0.02,0.3")
    num = len(slips)
    start = torch.full((num,), 1.0 / num, dtype=torch.float64)
    return MemoryChannel(start, torch.eye(num), _slips(num_tokens, slips), _named("mixture", slips))


def bursts(num_tokens: int, slip: float, begin: float, end: float, between: float = 0.0) -> MemoryChannel:
    """Errors in bursts (Gilbert 1960, Elliott 1963): uniform slip α = `slip` within a burst and `between` outside.

    A burst begins before a letter with probability `begin` and ends with probability `end`.
    """
    if not (0.0 < begin <= 1.0 and 0.0 < end <= 1.0):
        raise ConfigError(
            f"bursts begin with probability {begin:g} and end with {end:g}; both must be above 0 and at most 1"
        )
    moves = torch.tensor([[1.0 - begin, begin], [end, 1.0 - end]], dtype=torch.float64)
    start = torch.tensor([end, begin], dtype=torch.float64) / (begin + end)
    numbers = [slip, begin, end] + ([between] if between else [])
    return MemoryChannel(start, moves, _slips(num_tokens, [between, slip]), _named("bursts", numbers))


def _slips(num_tokens: int, slips: Sequence[float]) -> Tensor:
    return torch.cat([uniform_slip(num_tokens, slip).matrices for slip in slips])


def _named(kind: str, numbers: Sequence[float]) -> str:
    return f"{kind}:" + ",".join(f"{number:g}" for number in numbers)

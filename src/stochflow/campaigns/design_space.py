"""What can be ordered: strings of one length that satisfy the constraints, and what the channel makes of them."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from stochflow.config.environment import ConstraintConfig
from stochflow.environments.channels import Channel
from stochflow.environments.sequences.constraints.task import Prefixes
from stochflow.environments.sequences.task import Alphabet


@dataclass(frozen=True)
class DesignSpace:
    """Strings that may be ordered, and the channel that acts on whole orders.

    >>> from stochflow.environments.channels import uniform_slip
    >>> space = DesignSpace(Alphabet("ACGT"), 3, uniform_slip(4, 0.1), ConstraintConfig(max_homopolymer=2))
    >>> space.size
    60
    >>> space.feasible(space.alphabet.encode(["ACG", "AAA"]))
    tensor([ True, False])
    >>> round(space.channel.exact_probability(space.alphabet.encode(["ACG"])).item(), 6)  # (1 − 0.1 + 0.1 / 4)³
    0.791453
    """

    alphabet: Alphabet
    length: int
    channel: Channel
    constraints: ConstraintConfig

    def feasible(self, tokens: Tensor) -> Tensor:
        """True for strings that satisfy the constraints; [num, L] → [num]."""
        if self._prefixes is None:
            return torch.ones(len(tokens), dtype=torch.bool)
        return self._prefixes.alive(tokens)

    def draw(self, num: int, generator: torch.Generator) -> Tensor:
        """Random feasible strings, every letter uniform among those that can be completed, [num, L]."""
        tokens = torch.empty(num, 0, dtype=torch.int64)
        for _ in range(self.length):
            letters = torch.multinomial(self._next(tokens).double(), 1, generator=generator)
            tokens = torch.cat([tokens, letters], dim=1)
        return tokens

    def _next(self, tokens: Tensor) -> Tensor:
        """Letters with which prefixes can be continued; [num, time] → bool, [num, K]."""
        if self._prefixes is None:
            return torch.ones(len(tokens), len(self.alphabet), dtype=torch.bool)
        return self._prefixes.live_children(tokens)[1][:, -1]

    @cached_property
    def size(self) -> int | None:
        """Number of feasible designs; None where it is too large to be counted exactly."""
        return len(self.alphabet) ** self.length if self._prefixes is None else self._prefixes.num_designs

    def realised(self, orders: Tensor, generator: torch.Generator) -> Tensor:
        """One outcome x ~ P(·|y) of every order; [num, L] → [num, L]."""
        letters = [self.channel.sample(orders[:, t], t, generator) for t in range(self.length)]
        return torch.stack(letters, dim=-1)

    @cached_property
    def _prefixes(self) -> Prefixes | None:
        """The automaton of the constraints; None without any."""
        free = self.constraints == ConstraintConfig()
        return None if free else Prefixes(self.constraints, self)

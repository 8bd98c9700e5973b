"""Constrained tasks: infeasible designs score zero, and a mask excludes intentions that lead to them."""

from typing import Protocol

import torch
from torch import Tensor

from stochflow.config.environment import ConstraintConfig
from stochflow.core.errors import ConfigError
from stochflow.environments.channels import Channel
from stochflow.environments.sequences.constraints.automaton import Automaton
from stochflow.environments.sequences.constraints.rules import make_rules
from stochflow.environments.sequences.task import Alphabet, Task
from stochflow.environments.sequences.wrappers import RestrictedTask


class Designs(Protocol):
    """Anything whose designs have one alphabet and one length."""

    @property
    def alphabet(self) -> Alphabet: ...

    @property
    def length(self) -> int: ...


class Prefixes:
    """Feasibility of prefixes and of their children: whether they can be completed to an allowed design."""

    def __init__(self, config: ConstraintConfig, designs: Designs) -> None:
        rules = make_rules(config, designs.alphabet, designs.length)
        self.length, self.num_tokens = designs.length, len(designs.alphabet)
        self._complement = torch.tensor(rules.complement, dtype=torch.int64)
        self._automaton = Automaton(rules.half() if rules.complement else rules, self.num_tokens)
        if not self._automaton.possible:
            given = ", ".join(f"{name} {value}" for name, value in config.model_dump(exclude_defaults=True).items())
            raise ConfigError(
                f"no sequence of length {self.length} satisfies all constraints together ({given}); loosen one of them"
            )

    @property
    def num_designs(self) -> int | None:
        """Number of allowed designs; None where it is too large to be counted exactly."""
        return self._automaton.num_designs

    def live_children(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Feasibility of every prefix of [batch, time], the empty one first, and of its children.

        Returns:
            alive [batch, time + 1] and children [batch, time + 1, K]; a complete design has no children, so all False.
        """
        batch_size, time = tokens.shape
        children = torch.zeros(batch_size, time + 1, self.num_tokens, dtype=torch.bool)
        alive = torch.zeros(batch_size, time + 1, dtype=torch.bool)
        half = self._automaton.length
        states = self._automaton.begin(batch_size)
        for position in range(min(time, half) + 1):
            alive[:, position] = self._automaton.alive(states)
            if position < half:
                children[:, position] = self._automaton.live_children(states, position)
            if position < min(time, half):
                states = self._automaton.step(states, tokens[:, position], position)
        if len(self._complement) and time >= half:
            wanted = self._complement[tokens[:, self.length - time : half].flip(-1)] if time > half else tokens[:, :0]
            # the second half is the reverse complement of the first: one letter is allowed per position
            matches = torch.cumprod((tokens[:, half:time] == wanted).int(), dim=1).bool()
            alive[:, half + 1 :] = alive[:, half : half + 1] & matches
            places = torch.arange(half, min(time, self.length - 1) + 1)
            following = self._complement[tokens[:, self.length - 1 - places]]  # [batch, places]
            right = torch.nn.functional.one_hot(following, self.num_tokens).bool()
            children[:, half : half + len(places)] = right & alive[:, places].unsqueeze(-1)
        return alive, children

    def alive(self, tokens: Tensor) -> Tensor:
        """True for prefixes that can be completed to an allowed design; [batch, time] → [batch]."""
        return self.live_children(tokens.cpu())[0][:, -1]


class PrefixMask:
    """Action mask: an intention is allowed when its most likely outcome leads to a feasible prefix.

    At infeasible prefixes, which noise can lead to, all intentions are allowed.
    """

    binding = False

    def __init__(self, prefixes: Prefixes, channel: Channel) -> None:
        self._prefixes = prefixes
        self._outcomes = channel.log_matrices(prefixes.length).argmax(dim=-1)  # [L, K]

    def all_prefixes(self, tokens: Tensor) -> Tensor:
        """True for allowed intentions at every prefix, the empty one first; [batch, time] → [batch, time + 1, K]."""
        children = self._prefixes.live_children(tokens.cpu())[1]
        time = tokens.shape[1]
        # a complete design has no intentions; its row is a placeholder
        outcomes = self._outcomes[torch.arange(time + 1).clamp_max(self._prefixes.length - 1)]
        allowed = children.gather(-1, outcomes.expand(len(tokens), -1, -1))
        return (allowed | ~allowed.any(dim=-1, keepdim=True)).to(tokens.device)

    def at(self, tokens: Tensor, depths: Tensor) -> Tensor:
        """Allowed intentions at one prefix per row, its first `depths` tokens; [rows, time], [rows] → [rows, K]."""
        everywhere = self.all_prefixes(tokens)
        return everywhere[torch.arange(len(tokens), device=tokens.device), depths]

    def next(self, tokens: Tensor) -> Tensor:
        """Allowed intentions after whole rows; [batch, time] → [batch, K]."""
        return self.all_prefixes(tokens)[:, -1]

    def alive(self, tokens: Tensor) -> Tensor:
        """True for prefixes that can be completed to an allowed design; [batch, time] → [batch]."""
        return self._prefixes.alive(tokens)


class ConstrainedTask(RestrictedTask):
    """A task under constraints. Infeasible designs score zero and are never sent to an oracle.

    >>> from stochflow.environments.sequences.bits import BitSequences
    >>> task = ConstrainedTask(BitSequences(8, 1), ConstraintConfig(forbid=["11"]))
    >>> tokens = task.alphabet.encode(["00000000", "00110000"])
    >>> task.feasible(tokens)
    tensor([ True, False])
    >>> task.score(tokens)
    tensor([2.7183, 0.0000], dtype=torch.float64)
    """

    def __init__(self, task: Task, config: ConstraintConfig) -> None:
        super().__init__(task)
        self.prefixes = Prefixes(config, task)

    def allowed(self, tokens: Tensor) -> Tensor:
        return self.prefixes.alive(tokens)

    def feasible(self, tokens: Tensor) -> Tensor | None:
        return self.allowed(tokens)

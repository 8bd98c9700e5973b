"""Finite automaton of the constraints: which prefixes can still be completed to an allowed design.

A state is the node of the Aho–Corasick automaton of the forbidden words and the number of counted letters so far. A
homopolymer limit is a forbidden word. There are |nodes| × (count + 1) states, whatever the number of sequences.
"""

import torch
from torch import Tensor

from stochflow.core.errors import ConfigError
from stochflow.environments.sequences.aho_corasick import aho_corasick
from stochflow.environments.sequences.constraints.rules import Rules

_MAX_ENTRIES = 2**27
_MAX_COUNT = 2**53


class Automaton:
    """Deterministic finite automaton over tokens. State 0 is that of the empty prefix, the last state is the dead one.

    Attributes:
        live: True where an allowed design can be reached, per position and state, [L + 1, num_states].
    """

    def __init__(self, rules: Rules, num_tokens: int) -> None:
        self.length, self.num_tokens = rules.length, num_tokens
        moves, bad, bad_at_end = _word_states(rules, num_tokens)
        num_counts = rules.most + 1 if rules.counted else 1
        num_states = len(moves) * num_counts + 1
        if num_states * num_tokens * (rules.length + 1) > _MAX_ENTRIES:
            raise ConfigError(
                f"these constraints need {num_states:,} states, which is too many; forbid fewer or shorter motifs"
            )
        self._dead = num_states - 1
        self._next = self._transitions(rules, moves, bad, num_counts)  # [num_states, K]
        self._allowed = torch.zeros(rules.length, num_tokens, dtype=torch.bool)
        for position, choice in enumerate(rules.choices):
            self._allowed[position, sorted(choice)] = True
        self.live = self._live_states(rules, bad_at_end, num_counts)

    @property
    def possible(self) -> bool:
        """True when at least one design is allowed."""
        return bool(self.live[0, 0])

    @property
    def num_designs(self) -> int | None:
        """Number of allowed designs; None from 2^53 on, where float64 no longer counts exactly."""
        counts = self.live[-1].double()
        for position in reversed(range(self.length)):
            # per state: the completions of all letters that may follow
            counts = (counts[self._next] * self._allowed[position]).sum(dim=-1)
        return int(counts[0]) if counts[0] < _MAX_COUNT else None

    def begin(self, batch_size: int) -> Tensor:
        """States of empty prefixes, [batch]."""
        return torch.full((batch_size,), 0 if self.possible else self._dead)

    def step(self, states: Tensor, tokens: Tensor, position: int) -> Tensor:
        """States after one more letter; the dead state is absorbing. [batch] → [batch]."""
        after = torch.where(self._allowed[position, tokens], self._next[states, tokens], self._dead)
        return torch.where(self.live[position + 1, after], after, self._dead)

    def alive(self, states: Tensor) -> Tensor:
        """True where the state is not dead; any shape."""
        return states != self._dead

    def live_children(self, states: Tensor, position: int) -> Tensor:
        """True for letters that lead to a live state; [batch] → [batch, K]."""
        return self._allowed[position] & self.live[position + 1, self._next[states]]

    def _transitions(self, rules: Rules, moves: Tensor, bad: Tensor, num_counts: int) -> Tensor:
        """Transition table, [num_states, K]; state = node · num_counts + count."""
        counted = torch.zeros(self.num_tokens, dtype=torch.int64)
        counted[sorted(rules.counted)] = 1
        counts = torch.arange(num_counts).view(1, -1, 1) + counted  # [1, num_counts, K]
        words = moves.unsqueeze(1).expand(-1, num_counts, -1)
        dead = bad[words] | (counts >= num_counts)
        after = torch.where(dead, self._dead, words * num_counts + counts)
        return torch.cat([after.flatten(0, 1), torch.full((1, self.num_tokens), self._dead)])

    def _live_states(self, rules: Rules, bad_at_end: Tensor, num_counts: int) -> Tensor:
        """Backward induction from the last position: a state is live when an allowed letter leads to a live state."""
        live = torch.zeros(self.length + 1, self._dead + 1, dtype=torch.bool)
        counts = torch.arange(num_counts)
        enough = (counts >= rules.least) & (counts <= rules.most) if rules.counted else counts >= 0
        live[-1, :-1] = (~bad_at_end.unsqueeze(-1) & enough).flatten()
        for position in reversed(range(self.length)):
            live[position] = (self._allowed[position] & live[position + 1, self._next]).any(dim=-1)
        return live


def _word_states(rules: Rules, num_tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    """Automaton of the forbidden words: transitions [num, K], forbidden [num], forbidden at the end [num]."""
    anywhere, at_end = sorted(rules.forbidden), sorted(rules.forbidden_at_end)
    words = aho_corasick([*anywhere, *at_end], num_tokens)
    marks = torch.zeros(len(words.moves), 2, dtype=torch.bool)
    marks[words.ends[: len(anywhere)], 0] = True
    marks[words.ends[len(anywhere) :], 1] = True
    bad, bad_at_end = words.spread(marks).unbind(dim=-1)
    return words.moves, bad, bad_at_end

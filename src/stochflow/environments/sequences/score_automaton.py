"""Scores that a finite automaton computes: what makes a task exactly solvable at any length."""

from dataclasses import dataclass

import torch
from torch import Tensor

from stochflow.core.codes import first_rows


@dataclass(frozen=True)
class ScoreAutomaton:
    """A deterministic finite automaton that scores sequences: q_0 = 0, q_{t+1} = δ(q_t, x_t), and

        log score(x) = log scores[q_L] + Σ_t log_factors[q_t, x_t].

    >>> ends_in_one = ScoreAutomaton(torch.tensor([[0, 1], [0, 1]]), torch.tensor([0.5, 1.0]).double())
    >>> ends_in_one.score(torch.tensor([[0, 0, 1], [1, 1, 0]]))
    tensor([1.0000, 0.5000], dtype=torch.float64)

    Attributes:
        transitions: δ, int64, [Q, K].
        scores: of the last state, not negative, float64, [Q].
        log_factors: what each letter adds to the log score, float64, [Q, K]; None where it adds nothing.
    """

    transitions: Tensor
    scores: Tensor
    log_factors: Tensor | None = None

    @property
    def num_states(self) -> int:
        return len(self.transitions)

    def score(self, tokens: Tensor) -> Tensor:
        """Scores of sequences of any one length; [num_sequences, length] → [num_sequences]."""
        states = torch.zeros(len(tokens), dtype=torch.int64)
        log_factors = torch.zeros(len(tokens), dtype=torch.float64)
        for letters in tokens.unbind(dim=1):
            if self.log_factors is not None:
                log_factors += self.log_factors[states, letters]
            states = self.transitions[states, letters]
        return self.scores[states] * log_factors.exp()

    def reachable(self, length: int) -> list[Tensor]:
        """States that some sequence leads to, ascending, after 0, 1, …, L letters; [num] each."""
        levels = [torch.zeros(1, dtype=torch.int64)]
        for _ in range(length):
            seen = torch.zeros(self.num_states, dtype=torch.bool)
            seen[self.transitions[levels[-1]]] = True
            levels.append(seen.nonzero().flatten())
        return levels

    def lowest(self, length: int) -> float:
        """The smallest log score of any sequence of L letters."""
        values = self.scores.log()
        for _ in range(length):
            after = values[self.transitions]
            values = (after if self.log_factors is None else after + self.log_factors).amin(dim=-1)
        return float(values[0])

    def minimised(self) -> "ScoreAutomaton":
        """The automaton with the fewest states that gives every sequence the same score, by Moore's refinement."""
        return self._trimmed()._merged()

    def _trimmed(self) -> "ScoreAutomaton":
        """Without the states that no sequence leads to."""
        seen, fresh = torch.zeros(self.num_states, dtype=torch.bool), torch.zeros(1, dtype=torch.int64)
        while len(fresh):
            seen[fresh] = True
            following = self.transitions[fresh].unique()
            fresh = following[~seen[following]]
        numbers = seen.cumsum(dim=0) - 1
        return self._of(seen.nonzero().flatten(), numbers)

    def _merged(self) -> "ScoreAutomaton":
        """With states that no continuation tells apart as one."""
        described = [self.scores.unsqueeze(-1), *([] if self.log_factors is None else [self.log_factors])]
        groups = torch.cat(described, dim=-1).unique(dim=0, return_inverse=True)[1]
        while True:
            num_groups = int(groups.max()) + 1
            refined = groups
            for after in groups[self.transitions].T:
                refined = (refined * num_groups + after).unique(return_inverse=True)[1]
            if int(refined.max()) + 1 == num_groups:
                break
            groups = refined
        first = groups[0]  # must be number 0
        groups = torch.where(groups == first, 0, torch.where(groups == 0, first, groups))
        return self._of(first_rows(groups, num_groups), groups)

    def _of(self, kept: Tensor, numbers: Tensor) -> "ScoreAutomaton":
        """Only these states, with new numbers for all states; [num_kept], [Q]."""
        factors = None if self.log_factors is None else self.log_factors[kept]
        return ScoreAutomaton(numbers[self.transitions[kept]], self.scores[kept], factors)

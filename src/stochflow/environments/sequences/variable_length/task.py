"""Tasks with designs of variable length, and their action mask."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.task import MAX_ENUMERABLE, Task
from stochflow.environments.sequences.variable_length.alphabet import StopAlphabet
from stochflow.environments.sequences.variable_length.rules import LengthRules, Progress
from stochflow.environments.sequences.wrappers import WrappedTask


class LengthMask:
    """Action mask of the length rules. It is part of the environment and binds policies, plans and the optimum."""

    binding = True

    def __init__(self, rules: LengthRules) -> None:
        self._rules = rules

    def all_prefixes(self, tokens: Tensor) -> Tensor:
        """True for allowed intentions at every prefix, the empty one first; [batch, time] → [batch, time + 1, K]."""
        return self._rules.intentions(self._rules.progress(tokens))

    def at(self, tokens: Tensor, depths: Tensor) -> Tensor:
        """Allowed intentions at one prefix per row, its first `depths` tokens; [rows, time], [rows] → [rows, K]."""
        progress = self._rules.progress(tokens)
        chosen = (column.gather(1, depths.unsqueeze(-1)) for column in progress)
        return self._rules.intentions(Progress(*chosen)).squeeze(1)

    def next(self, tokens: Tensor) -> Tensor:
        """Allowed intentions after whole rows; [batch, time] → [batch, K]."""
        last = (column[:, -1] for column in self._rules.progress(tokens))
        return self._rules.intentions(Progress(*last))

    def alive(self, tokens: Tensor) -> Tensor:
        """True for prefixes that can be completed to a design within the bounds; [batch, time] → [batch]."""
        return self._rules.alive(tokens.cpu())


class VariableTask(WrappedTask):
    """Histories of tokens, scored by the string they write. Designs out of bounds score zero without an oracle call.

    The wrapped task receives histories without edits: letters, padded with stops to `max_length`.
    """

    def __init__(self, task: Task, rules: LengthRules) -> None:
        super().__init__(task)
        self.rules, self.padding = rules, rules.stop
        self.alphabet = StopAlphabet(task.alphabet.letters, rules)
        self.length = rules.max_length

    @property
    def enumerable(self) -> bool:
        """True when all histories fit into one table and the wrapped task is enumerable."""
        return self.size <= MAX_ENUMERABLE and self._task.enumerable

    @property
    def num_letters(self) -> int:
        return self.rules.num_letters

    @property
    def num_designs(self) -> int:
        return self.rules.num_designs

    def designs(self, tokens: Tensor) -> Tensor:
        return self.rules.written(tokens)

    def score(self, tokens: Tensor) -> Tensor:
        return self._or_zero(tokens, self._task.score)

    def measure(self, tokens: Tensor, generator: torch.Generator) -> Tensor:
        return self._or_zero(tokens, partial(self._task.measure, generator=generator))

    def log_reward(self, tokens: Tensor, scores: Tensor, reward: Reward) -> Tensor:
        within = self.rules.alive(tokens)
        log_rewards = reward.log_reward(torch.zeros(len(tokens), dtype=torch.float64))
        plain = self.rules.canonical(tokens[within])
        log_rewards[within] = self._task.log_reward(plain, scores[within], reward).double()
        return log_rewards

    def feasible(self, tokens: Tensor) -> Tensor | None:
        """True for designs within the bounds; None without edits, where all designs are."""
        return self.rules.alive(tokens) if self.rules.edits else None

    def known(self, tokens: Tensor) -> Tensor:
        return self._or_true(tokens, self._task.known)

    def free(self, tokens: Tensor) -> Tensor:
        return self._or_true(tokens, self._task.free)

    def _or_zero(self, tokens: Tensor, evaluate: Callable[[Tensor], Tensor]) -> Tensor:
        """Scores of designs within the bounds from the wrapped task, zero for the others; [num_sequences]."""
        within = self.rules.alive(tokens)
        scores = torch.zeros(len(tokens), dtype=torch.float64)
        if bool(within.any()):
            scores[within] = evaluate(self.rules.canonical(tokens[within])).double()
        return scores

    def _or_true(self, tokens: Tensor, evaluate: Callable[[Tensor], Tensor]) -> Tensor:
        """Values of designs within the bounds from the wrapped task, True for the others; [num_sequences]."""
        within = self.rules.alive(tokens)
        answers = torch.ones(len(tokens), dtype=torch.bool)
        if bool(within.any()):
            answers[within] = evaluate(self.rules.canonical(tokens[within]))
        return answers

"""Tasks with designs of variable length, and their action mask."""

from torch import Tensor

from stochflow.environments.sequences.task import MAX_ENUMERABLE, Task
from stochflow.environments.sequences.variable_length.alphabet import StopAlphabet
from stochflow.environments.sequences.variable_length.rules import LengthRules, Progress
from stochflow.environments.sequences.wrappers import RestrictedTask


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


class VariableTask(RestrictedTask):
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

    def allowed(self, tokens: Tensor) -> Tensor:
        return self.rules.alive(tokens)

    def inner(self, tokens: Tensor) -> Tensor:
        return self.rules.canonical(tokens)

    def feasible(self, tokens: Tensor) -> Tensor | None:
        """True for designs within the bounds; None without edits, where all designs are."""
        return self.allowed(tokens) if self.rules.edits else None

"""A cache of oracle scores by object of a graph."""

from collections.abc import Callable

import torch
from torch import Tensor

from stochflow.core.codes import first_rows


class ObjectMemory:
    """Scores of the objects of a graph, which are numbered; `ScoreMemory` is the same for sequences.

    Attributes:
        paid: True where an object was made before, [X].
    """

    def __init__(self, scores: Tensor) -> None:
        self._scores = scores
        self.paid = torch.zeros(len(scores), dtype=torch.bool)

    @property
    def num_calls(self) -> int:
        """Answers of the oracle so far."""
        return int(self.paid.sum())

    def best_scores(self, num: int) -> Tensor:
        """The highest scores among the paid objects, best first, [at most num]."""
        scores = self._scores[self.paid]
        return scores.topk(min(num, len(scores))).values

    def asks(self, objects: Tensor) -> Tensor:
        """True in the first row of every object that was never paid for; [batch] → [batch]."""
        new = ~self.paid[objects]
        distinct, which = objects.unique(return_inverse=True)
        return new & torch.zeros_like(new).index_fill_(0, first_rows(which, len(distinct)), True)

    def pay(self, objects: Tensor, oracle: Callable[[Tensor], Tensor]) -> Tensor:
        """Scores of a batch, float64; [batch] → [batch]."""
        self.paid[objects] = True
        return oracle(objects)

    def lookup(self, objects: Tensor) -> Tensor:
        """Scores that were paid for, NaN elsewhere; [...] → [...]."""
        return torch.where(self.paid[objects], self._scores[objects], torch.nan)

    def state_dict(self) -> dict[str, Tensor]:
        return {"paid": self.paid}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.paid = state["paid"]

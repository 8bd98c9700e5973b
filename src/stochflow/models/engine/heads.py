"""What the engine has evaluated, as an `Evaluation`."""

from collections.abc import Callable

import torch
from torch import Tensor

from stochflow.core.arrays import Array
from stochflow.models.engine.prefix_evaluation import EngineEvaluation
from stochflow.models.evaluation import Evaluation, H, Heads


class EngineHeads(Evaluation[H]):
    """The hand-written engine behind the door.

    Args:
        engine: what it has evaluated.
        allowed: what a mask says of the intentions at the same prefixes, [..., K].
        log_completions: what is added to the head of log F, [...].
        arrange: makes the heads that were asked for.
    """

    def __init__(
        self,
        engine: EngineEvaluation,
        allowed: Tensor | None,
        log_completions: Tensor,
        arrange: Callable[[Heads], H],
    ) -> None:
        self._engine, self._allowed, self._log_completions = engine, allowed, log_completions
        self._arrange = arrange

    def heads(self) -> H:
        return self._arrange(Heads(*self._engine.heads(self._allowed, self._log_completions)))

    def outputs(self) -> Array:
        return self._engine.rows()

    def backward(self, grad: Array) -> None:
        self._engine.add_gradients(torch.from_numpy(grad).to(self._log_completions.device))

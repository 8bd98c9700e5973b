"""Uniform intentions: what a method must beat."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from stochflow.core.logspace import log_marginal, pick
from stochflow.objectives.base import Learner, Objective, Terms
from stochflow.objectives.divergence import reward_adjusted_diff
from stochflow.sampling.trajectories import Trajectories


class UniformIntentions(Objective):
    """The network's first policy, which is uniform, for ever. It still makes an estimate of log Z."""

    reward_mean = None  # nothing is learned

    def __init__(self, learner: Learner) -> None:
        super().__init__(learner)
        self._log_weight, self._num = -math.inf, 0

    def updates(self, fresh: Trajectories, step: int, progress: float) -> Iterator[Terms]:
        learner = self.learner
        with torch.no_grad():
            heads = learner.evaluate(fresh, None if learner.environment.is_tree else "learned").heads()
        log_marginals = log_marginal(heads.log_policy, learner.log_dynamics(fresh))
        realised = pick(log_marginals, fresh.outcomes.to(learner.device))
        if heads.log_parent is not None:
            realised = realised - heads.log_parent
        residual = reward_adjusted_diff(learner.log_rewards(fresh), realised.double().cpu(), fresh.valid)
        self._log_weight = float(torch.logaddexp(torch.tensor(self._log_weight).double(), residual.logsumexp(dim=0)))
        self._num += len(fresh)
        yield from ()

    def log_z(self) -> float:
        """log of the mean of R(x)/P_π(x) over everything that was made; before that, log F of the root."""
        return self._log_weight - math.log(self._num) if self._num else super().log_z()

    def state_dict(self) -> dict[str, Tensor]:
        return {"log_weight": torch.tensor([self._log_weight, float(self._num)], dtype=torch.float64)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._log_weight, num = state["log_weight"].tolist()
        self._num = int(num)

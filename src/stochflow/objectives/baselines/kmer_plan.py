"""The exact plan on a model of the score that is a sum over k-mers: no network, no gradient, no search.

A ridge regression on position-specific k-mers predicts log R as a sum along a finite automaton whose state is the
position and the last k − 1 letters. The best policy under the learned channel and the J that it expects are then exact
by dynamic programming over L·K^(k−1) states, at any length: the soft backward recursion of maximum-entropy control
(Ziebart 2010) with the entropy of outcomes in the place of that of intentions.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from stochflow.core.errors import ConfigError
from stochflow.environments.channels import Channel, positional
from stochflow.models.base import Sampler
from stochflow.objectives.base import ARITHMETIC, Objective, Terms
from stochflow.objectives.learners import SequenceLearner
from stochflow.objectives.planning.kmer_model import PlacedKmers, fit_ridge
from stochflow.objectives.planning.plan import PLAN_TOLERANCE
from stochflow.sampling.policies import MarkovPolicy, Policy
from stochflow.sampling.trajectories import Trajectories
from stochflow.surrogates.base import window_rows
from stochflow.truth.automaton import automaton_optimum

_MAX_ENTRIES = 2**25  # of a dense matrix of rows × weights: 256 megabytes
_MAX_RANK = 3000  # rows or weights of an eigendecomposition, which takes seconds then


class KmerPlan(Objective):
    """Intends by the exact plan on a k-mer model of everything that was paid for.

    Whenever enough has been paid for (`plan.growth`, `plan.every`), log R is regressed on the k-mers of up to
    `plan.kmer` letters and planned on with P̂. Batches are drawn from this plan, and it is the policy that is evaluated:
    KL(P_π‖R/Z) is linear in log R, so under uncertainty its minimiser is that of the expected log R, and an expectation
    is what a ridge regression is. What explores is the penalty, which held-out designs choose: as long as little can be
    predicted, weights are near zero and intentions nearly uniform. The plan does not know of constraints; intentions
    that they forbid are masked.

    Attributes:
        policies: π(a|t, last letters) of the plan, [K^m, K] per position; empty before the first one.
        value: V(root) of the plan, the J that it expects.
    """

    learner: SequenceLearner
    reward_mean = ARITHMETIC  # of the score memory
    reads_behaviour = False

    def __init__(self, learner: SequenceLearner) -> None:
        super().__init__(learner)
        if learner.dynamics.sees_state:
            raise ConfigError(
                "kmer-plan cannot plan on dynamics of whole prefixes; set dynamics.depends_on to position"
            )
        network = learner.network
        self.kmers = PlacedKmers(network.num_tokens, network.length, learner.config.plan.kmer)
        self.policies: list[Tensor] = []
        self.value, self._planned_at, self._num_planned = 0.0, 0.0, 0

    def sampler(self, batch_size: int) -> Sampler:
        return self.policy().sampler(batch_size, self.learner.generators["policy"])

    def updates(self, fresh: Trajectories, step: int, progress: float) -> Iterator[Terms]:
        config, num_paid = self.learner.config.plan, len(self.learner.memory)
        # the distance either way: progress falls when a resumed run is given a larger budget
        late = abs(progress - self._planned_at) >= config.every
        if num_paid and (late or num_paid > config.growth * self._num_planned):
            self.replan()
            self._planned_at, self._num_planned = progress, num_paid
        yield from ()

    def replan(self) -> None:
        """Fit the model to what was paid for, and plan on it."""
        sequences, scores = self.learner.paid()
        few = self.kmers.num <= _MAX_RANK
        rows = window_rows(scores, _MAX_ENTRIES // self.kmers.num if few else _MAX_RANK)
        model = fit_ridge(self.kmers.design(sequences[rows]), self.learner.reward.log_reward(scores[rows]))
        rewards = self.kmers.automaton(model.weights, model.mean)
        plan = automaton_optimum(rewards, self._believed(), self.kmers.length, PLAN_TOLERANCE)
        self.policies, self.value = plan.policies, plan.value

    def _believed(self) -> Channel:
        """P̂ as a channel: one matrix per position."""
        anything = torch.zeros(1, self.kmers.length, dtype=torch.int64)
        matrices = self.learner.log_dynamics_of(anything)[0].double().cpu().exp()
        return positional(matrices / matrices.sum(dim=-1, keepdim=True), "learned")

    def policy(self) -> Policy:
        """The plan, and before the first one uniform intentions, those of a network that is never trained."""
        return MarkovPolicy(self.policies, self.learner.network.mask) if self.policies else super().policy()

    def log_z(self) -> float:
        """V(root) of the plan; as far as the model is right, log Z minus the smallest reachable KL."""
        return self.value if self.policies else super().log_z()

    def state_dict(self) -> dict[str, Tensor]:
        numbers = torch.tensor([self.value, self._planned_at, self._num_planned], dtype=torch.float64)
        return {"numbers": numbers, **{f"policies.{t}": table for t, table in enumerate(self.policies)}}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.value, self._planned_at, num_planned = state["numbers"].tolist()
        self._num_planned = int(num_planned)
        self.policies = [state[f"policies.{t}"] for t in range(self.kmers.length)] if "policies.0" in state else []

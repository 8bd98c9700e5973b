"""Soft Q-learning with the entropy of outcomes: the attainable optimum, learned from realised transitions alone."""

from torch import Tensor

from stochflow.core.logspace import entropy, log_marginal
from stochflow.objectives.baselines.critics import ActorCritic
from stochflow.objectives.learners import SequenceLearner


def outcome_soft_value(log_policy: Tensor, log_dynamics: Tensor, action_values: Tensor) -> Tensor:
    """V(s) = Σ_a π(a|s)·Q(s,a) + H(M(·|s)), M = πP̂; [..., K], [..., K, K], [..., K] → [...].

    With Q(s,a) = Σ_b P(b|s,a)·V(s_b) it is Σ_b M(b|s)·[V(s_b) − log M(b|s)], and its maximum over π is the soft value
    of the attainable optimum.
    """
    return (log_policy.exp() * action_values).sum(dim=-1) + entropy(log_marginal(log_policy, log_dynamics))


class SoftQ(ActorCritic):
    """A critic Q(s,a) over intentions and a soft actor that maximises E_π[Q] + H(M).

    `BootstrappedKL` has the same fixed point. It looks ahead: at every state it asks the flow head for all K children
    and the memory for every leaf that was paid for, and weighs them by P̂. Here nothing is looked up and no child is
    imagined. Q is regressed on the V of the one successor that came, from a slow copy, so the world's noise is
    averaged by the critic instead of by P̂. P̂ enters in one place, the entropy of the outcome that the actor is paid
    for. While P̂ knows nothing that entropy is constant and the actor would settle on one letter for good, so the
    method's preset lets P̂ learn fast. Without noise M is π and this is soft Q-learning with an amortised softmax(Q).
    """

    def __init__(self, learner: SequenceLearner) -> None:
        super().__init__(learner, num_critics=1, temperature=1.0)

    def soft_values(self, log_policy: Tensor, action_values: Tensor, log_dynamics: Tensor | None) -> Tensor:
        assert log_dynamics is not None
        return outcome_soft_value(log_policy, log_dynamics, action_values)

"""Balance conditions along a path: their five terms per step, on the intended or the realised path."""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from stochflow.config.schema import LossShape, ObjectiveConfig
from stochflow.core.arrays import Array
from stochflow.core.logspace import pick
from stochflow.models.base import Sampler
from stochflow.models.dynamics.tabular import chosen
from stochflow.models.evaluation import ClosedFormLoss, PathHeads
from stochflow.objectives.base import ARITHMETIC, GEOMETRIC, Learner, Objective, Terms
from stochflow.objectives.path_gradients import PathGradient, PathOutputs, silent
from stochflow.objectives.state_flows import Paths, path_flows
from stochflow.sampling.trajectories import Trajectories

# the mean of a noisy R at which E[g'(log F − log R)] = 0, by the shape g of the loss
REWARD_MEANS: dict[LossShape, str] = {
    "squared": GEOMETRIC,
    "linex": ARITHMETIC,
    "linex-half": "E[√R]²",
    "linex-reversed": "1/E[1/R]",
    "shifted-cosh": "√(E[R]/E[1/R])",
}

_FIVE = ("log_flow", "log_forward", "log_dynamics", "log_next_flow", "log_backward")
SPREAD = [f"{name}_{kind}" for name in _FIVE for kind in ("mean", "std")]


@dataclass(frozen=True)
class Steps:
    """The terms of every step of a batch; all [batch, time].

    Attributes:
        log_flow: log F(s_t).
        log_forward: log π(a_t|s_t).
        log_dynamics: log P̂(s_{t+1}|s_t,a_t).
        log_next_flow: log F(s_{t+1}), with log R(x) at the end.
        log_backward: log π_B(a_t|s_{t+1}).
        valid: True where a decision was made; None where that is everywhere.
    """

    log_flow: Tensor
    log_forward: Tensor
    log_dynamics: Tensor
    log_next_flow: Tensor
    log_backward: Tensor
    valid: Tensor | None

    @property
    def log_ratio(self) -> Tensor:
        """log π + log P̂ − log π_B, forward over backward without the flows."""
        # detached: the policy must not gain by bending the dynamics model
        return self.log_forward + self.log_dynamics.detach() - self.log_backward

    @property
    def log_flows(self) -> Tensor:
        """log F(s_0) … log F(s_{L−1}), log R(x); [batch, time + 1]."""
        return torch.cat([self.log_flow, self.log_next_flow[:, -1:]], dim=1)

    def spread(self) -> Terms:
        """Mean and standard deviation of each of the five terms over the real steps; zero when there are none."""
        with torch.no_grad():
            values = torch.stack([getattr(self, name) for name in _FIVE])
        return named_moments(values.cpu().numpy(), self.valid)


@silent()
def named_moments(values: Array, valid: Tensor | None) -> dict[str, float]:
    """Mean and standard deviation of each of the five terms over the real steps, by name.

    Args:
        values: [5, batch, time].
        valid: True where a step counts, [batch, time]; None where that is everywhere.
    """
    found = values.reshape(len(values), -1)
    if valid is None:
        num_real = found.shape[-1]
        means = np.add.reduce(found, axis=-1) / num_real
        centred = found - means[:, None]
    else:
        real = valid.flatten().cpu().numpy()
        num_real = real.sum().clip(min=1).astype(found.dtype)
        means = np.where(real, found, 0.0).sum(axis=-1) / num_real
        centred = np.where(real, found - means[:, None], 0.0)
    spreads = np.sqrt(np.add.reduce(centred * centred, axis=-1) / num_real)
    return dict(zip(SPREAD, np.stack([means, spreads], axis=-1).reshape(-1).tolist(), strict=True))


def log_posterior(log_policy: Tensor, log_matrices: Tensor, outcomes: Tensor) -> Tensor:
    """log π(a|s)P̂(b|s,a)/M(b|s) at the outcomes b that came: which intention it was.

    With it as the backward policy δ = log F(s) + log M(b|s) − log F(s'), the same for every intention. The gradient
    goes through π here as well: it is then that of log M, whoever drew the intention.

    Args:
        log_policy: log π(·|s_t), [batch, time, K].
        log_matrices: log P̂(b|s_t,a), [batch or 1, time, K, K].
        outcomes: [batch, time].

    Returns:
        [batch, time, K].
    """
    return torch.log_softmax(log_policy + log_likelihood(log_matrices.detach(), outcomes), dim=-1)


def log_likelihood(log_matrices: Tensor, outcomes: Tensor) -> Tensor:
    """log P̂(b_t|s_t,a) of every intention a; [batch or 1, time, K, K], [batch, time] → [batch, time, K]."""
    rows = log_matrices.expand(len(outcomes), -1, -1, -1)
    return pick(rows, outcomes.unsqueeze(-1).expand(rows.shape[:-1]))


def path_steps(learner: Learner, batch: Trajectories, step: int) -> Steps:
    """The terms of a batch, on the path that `objective.path` names."""
    config = learner.config.objective
    realised = config.path == "realised"
    paths = observed_paths(learner, batch, step)
    # on a graph p_B(s|s') over parents is a part of every backward policy, and the head knows it
    backward = config.backward if config.backward == "uniform" else "learned"
    one_parent = learner.environment.is_tree and (realised or config.backward == "posterior")
    heads = learner.evaluate(batch, None if one_parent else backward).heads()
    steps = steps_on(config, paths, heads, None if realised else learner.log_dynamics(batch))
    everywhere = heads.allowed is None and bool(batch.valid.all())
    return replace(steps, valid=None) if everywhere else steps


def observed_paths(learner: Learner, batch: Trajectories, step: int) -> Paths:
    """What a batch says by itself, with its log R at a training step."""
    device = learner.device
    intentions, outcomes, valid = (tensor.to(device) for tensor in (batch.intentions, batch.outcomes, batch.valid))
    return Paths(intentions, outcomes, valid, learner.log_rewards(batch, step).to(learner.network.dtype).to(device))


def steps_on(config: ObjectiveConfig, paths: Paths, heads: PathHeads, log_matrices: Tensor | None) -> Steps:
    """The terms of every step of a batch.

    On the intended path the action is the intention, the world answers with P̂, and π_B(s,a|s') says which parent and
    intention led here. On the realised path the outcome counts as if it had been intended: P̂ has no place, and of π_B
    remains p_B(s|s') over parents, which is one on a tree.

    Args:
        log_matrices: log P̂(b|s_t,a), [batch or 1, time, A, C]; None on the realised path.
    """
    log_flow, log_next_flow = path_flows(heads.log_flow, paths)
    nothing = torch.zeros_like(log_flow)
    if log_matrices is None:
        valid = paths.valid
        if heads.allowed is not None:
            # noise made what the policy may not intend: a blind balance has no way to believe such a path
            meant = pick(heads.allowed, paths.outcomes) | ~valid
            valid = valid & meant.all(dim=-1, keepdim=True)
        log_parent = nothing if heads.log_parent is None else heads.log_parent
        return Steps(log_flow, pick(heads.log_policy, paths.outcomes), nothing, log_next_flow, log_parent, valid)
    log_backward = heads.log_backward
    if config.backward == "posterior":
        log_backward = log_posterior(heads.log_policy, log_matrices, paths.outcomes)
        if heads.log_parent is not None:
            log_backward = log_backward + heads.log_parent.unsqueeze(-1)
    assert log_backward is not None, "the heads were evaluated without π_B"
    return Steps(
        log_flow=log_flow,
        log_forward=pick(heads.log_policy, paths.intentions),
        log_dynamics=chosen(log_matrices, paths.intentions, paths.outcomes),
        log_next_flow=log_next_flow,
        log_backward=pick(log_backward, paths.intentions),
        valid=paths.valid,
    )


class Balance(Objective):
    """A condition on flows; its residual is the same off-policy, so fresh and remembered batches serve alike."""

    reads_behaviour = False

    def sampler(self, batch_size: int) -> Sampler:
        return self.learner.network.recording_sampler(batch_size)

    def updates(self, fresh: Trajectories, step: int, progress: float) -> Iterator[Terms]:
        for batch in self.learner.replayed(fresh):
            yield self.terms(batch, step)

    @abstractmethod
    def terms(self, batch: Trajectories, step: int) -> Terms:
        """The loss of one batch and what is logged with it."""


class PathBalance(Balance):
    """Balance along a path: the loss with each of the five terms of its steps, by mean and spread.

    Attributes:
        gradient: the squared loss of steps that are all real with its closed-form gradient, of the five terms of every
            step, [5, batch, time]; None where autograd does it.
    """

    gradient: Callable[[Array], PathGradient] | None = None

    @property
    def reward_mean(self) -> str:
        """Every measurement is a residual of its own, and log F(x) settles where E[g'(log F − log R)] is zero."""
        return REWARD_MEANS[self.learner.config.objective.loss]

    @property
    def reads_dynamics(self) -> bool:
        """On the realised path P̂ has no place."""
        return self.learner.config.objective.path != "realised"

    def terms(self, batch: Trajectories, step: int) -> Terms:
        batch = self.learner.along(batch)
        if self.gradient is not None and has_closed_form(self.learner, batch):
            return closed_form_terms(self.learner, batch, step, self.gradient)
        return self.step_terms(path_steps(self.learner, batch, step))

    def step_terms(self, steps: Steps) -> Terms:
        """The loss of given steps and what is logged with it."""
        return {"loss": self.loss(steps, self.learner.config.objective), **steps.spread()}

    @abstractmethod
    def loss(self, steps: Steps, config: ObjectiveConfig) -> Tensor:
        """What the residuals of these steps cost, a scalar."""


def has_closed_form(learner: Learner, batch: Trajectories) -> bool:
    """True where the gradient of a squared loss along the paths of a batch has the closed form below."""
    config = learner.config.objective
    simple = config.loss == "squared" and (config.path == "realised" or config.backward != "posterior")
    return simple and learner.is_full(batch)


def closed_form_terms(
    learner: Learner, batch: Trajectories, step: int, gradient: Callable[[Array], PathGradient]
) -> Terms:
    """What `PathBalance.step_terms` says of trajectories, with the gradient in closed form.

    Args:
        gradient: of the five terms of every step, [5, batch, time].
    """
    config = learner.config.objective
    realised = config.path == "realised"
    learned = not realised and config.backward == "learned"
    evaluation = learner.evaluate(batch, "learned" if learned else None)
    heads = PathOutputs(evaluation.outputs(), learner.network.num_actions, batch.outcomes.shape[1])
    intentions, outcomes = batch.intentions.numpy(), batch.outcomes.numpy()
    actions, log_flow = outcomes if realised else intentions, heads.log_flow
    with silent():
        values = np.zeros((len(_FIVE), *log_flow.shape), log_flow.dtype)
        values[0], values[1] = log_flow, heads.log_forward(actions)
        values[3, :, :-1], values[3, :, -1] = log_flow[:, 1:], learner.log_rewards(batch, step).numpy()
        if not realised:
            values[2] = heads.log_dynamics(learner.log_dynamics(batch).cpu().numpy(), intentions, outcomes)
            values[4] = heads.log_backward(intentions) if learned else -math.log(heads.num_tokens)
        loss, ratio, flow = gradient(values)
        heads.add_grad_forward(ratio, actions)
        heads.add_grad_flow(flow)
        if learned:
            heads.add_grad_backward(-ratio, intentions)
    return {"loss": ClosedFormLoss.of(loss, evaluation, heads.gradient), **named_moments(values, None)}

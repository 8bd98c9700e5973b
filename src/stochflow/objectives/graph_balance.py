"""Balance conditions on a graph: detailed and trajectory balance, of what was meant or of what came."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from stochflow.config.schema import ObjectiveConfig
from stochflow.core.logspace import safe_log
from stochflow.objectives.base import Terms
from stochflow.objectives.detailed_balance import db_residual
from stochflow.objectives.graph_base import GraphLearner, GraphObjective
from stochflow.objectives.path_terms import Steps
from stochflow.objectives.regression_losses import balance_loss
from stochflow.objectives.trajectory_balance import tb_residual
from stochflow.sampling.graph_rollout import longest, nodes_on
from stochflow.sampling.trajectories import Trajectories


def graph_steps(learner: GraphLearner, batch: Trajectories, dynamics: Tensor, step: int) -> Steps:
    """The five terms of every step of a batch, on the path that `objective.path` names.

    On the intended path π_B is over parents and intentions together; on the realised path the outcome counts as if it
    had been intended, and what remains of π_B is p_B(s|s') over parent states.

    Args:
        dynamics: P̂, [S, A, C].
    """
    graph, network, device = learner.graph, learner.network, learner.network.device
    # no step of any episode is left out; at least one stays, for a batch may be empty
    time = max(longest(batch.valid), 1)
    intentions, outcomes, valid = batch.intentions[:, :time], batch.outcomes[:, :time], batch.valid[:, :time]
    nodes = nodes_on(graph, outcomes, valid)
    states = torch.where(valid, nodes[:, :-1], 0)
    places = graph.parent_places[states, outcomes]
    # after the end there is no step: its child is the root's first, and nothing of it counts
    children = torch.where(valid, nodes[:, 1:], graph.children[0, graph.possible[0].int().argmax()])
    log_reward = learner.reward.log_reward(batch.scores, step).float().to(device)
    dynamics_terms = safe_log(dynamics[states, intentions, outcomes]).float().to(device)
    # a batch passes through few different nodes: each goes through the network once
    distinct, which = torch.stack([states, children]).unique(return_inverse=True)
    intentions, outcomes, places, valid, distinct, before, after = (
        tensor.to(device) for tensor in (intentions, outcomes, places, valid, distinct, *which)
    )
    hidden = network.hidden(distinct)
    log_flow, log_pairs = network.log_flow(hidden, distinct), network.log_backward(hidden, distinct)
    # objects intend nothing; their rows are never asked for
    log_policy = network.log_policy(hidden, torch.where(distinct < graph.num_states, distinct, 0))
    ended = (distinct >= graph.num_states)[after]
    realised = learner.config.objective.path == "realised"
    actions = outcomes if realised else intentions
    into = log_pairs[after, places]  # [batch, time, A]
    log_backward = into.logsumexp(dim=-1) if realised else into.gather(-1, actions.unsqueeze(-1)).squeeze(-1)
    return Steps(
        log_flow=log_flow[before],
        log_forward=log_policy[before, actions],
        log_dynamics=torch.zeros_like(dynamics_terms) if realised else dynamics_terms,
        log_next_flow=torch.where(ended, log_reward.unsqueeze(-1), log_flow[after]),
        log_backward=log_backward,
        valid=valid,
    )


def detailed_balance_loss(steps: Steps, log_reward: Tensor, config: ObjectiveConfig) -> Tensor:
    """Every step for itself."""
    residual = db_residual(
        steps.log_flow, steps.log_forward, steps.log_dynamics, steps.log_next_flow, steps.log_backward
    )
    return balance_loss(residual, steps.valid, config.loss)


def trajectory_balance_loss(steps: Steps, log_reward: Tensor, config: ObjectiveConfig) -> Tensor:
    """One residual per episode; log R(x) stands after the last step, wherever that was; log_reward: [batch]."""
    log_flows = torch.cat([steps.log_flow, log_reward.unsqueeze(-1)], dim=-1)
    residual = tb_residual(log_flows, steps.log_ratio, steps.valid)
    return balance_loss(residual, None if steps.valid is None else steps.valid.any(dim=-1), config.loss)


Loss = Callable[[Steps, Tensor, ObjectiveConfig], Tensor]
LOSSES: dict[str, Loss] = {
    "detailed-balance": detailed_balance_loss,
    "trajectory-balance": trajectory_balance_loss,
}


class GraphBalance(GraphObjective):
    """A condition on flows; its residual is the same off-policy, so fresh and remembered batches serve alike."""

    def __init__(self, learner: GraphLearner) -> None:
        super().__init__(learner)
        self._loss = LOSSES[learner.config.objective.kind]

    def updates(self, fresh: Trajectories, step: int, progress: float) -> Iterator[Terms]:
        learner = self.learner
        dynamics = learner.dynamics.table()
        for batch in learner.replayed(fresh):
            steps = graph_steps(learner, batch, dynamics, step)
            log_reward = learner.reward.log_reward(batch.scores, step).float().to(learner.network.device)
            yield {"loss": self._loss(steps, log_reward, learner.config.objective), **steps.spread()}

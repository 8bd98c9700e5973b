"""The training loop on a graph: what differs from sequences is how episodes are made and paid for."""

from collections.abc import Iterator

import torch
from torch import nn

from stochflow.core.logspace import safe_log
from stochflow.models.dynamics.counted import KnownGraphDynamics
from stochflow.objectives.base import Terms
from stochflow.objectives.graph_base import GraphLearner, GraphObjective
from stochflow.sampling.graph_rollout import nodes_on, objects_of, walk
from stochflow.sampling.rollout import Walk
from stochflow.sampling.trajectories import Trajectories
from stochflow.training.optimizer import Record
from stochflow.training.trainer import Loop, Stateful


class GraphTrainer(Loop):
    """The loop over episodes on a graph."""

    def __init__(self, learner: GraphLearner, objective: GraphObjective) -> None:
        super().__init__(learner.config, learner.reward, list(learner.network.parameters()))
        self.learner, self.objective = learner, objective

    @property
    def calls(self) -> int:
        return self.learner.memory.num_calls

    def collect(self) -> Trajectories:
        learner, graph = self.learner, self.learner.graph
        size, budget = learner.config.optimiser.batch_size, learner.config.budget
        if budget.trajectories is not None:
            size = min(size, budget.trajectories - self.trajectories)
        made = walk(graph, self.objective.behaviour(), size, learner.generators, self.exploration)
        objects = objects_of(graph, made.outcomes, made.valid)
        if budget.oracle_calls is not None:
            size = self._affordable(objects, budget.oracle_calls - self.calls)
            made, objects = Walk(*(column[:size] for column in vars(made).values())), objects[:size]
        before = self.calls
        learner.memory.paid[objects] = True
        self.idle_steps = self.idle_steps + 1 if self.calls == before else 0
        scores = graph.scores[objects]
        batch = Trajectories(made.intentions, made.outcomes, made.valid, scores, made.log_behaviour)
        learner.replay.add(batch)
        return batch

    def _affordable(self, objects: torch.Tensor, calls_left: int) -> int:
        """How many of the first episodes the budget can pay for; [batch] → a number."""
        new = ~self.learner.memory.paid[objects]
        firsts = torch.zeros_like(new)
        distinct, which = objects.unique(return_inverse=True)
        rows = torch.full((len(distinct),), len(objects)).scatter_reduce(0, which, torch.arange(len(objects)), "amin")
        firsts[rows] = True
        return int(((new & firsts).cumsum(dim=0) <= calls_left).sum())

    def fit_dynamics(self, fresh: Trajectories, progress: float) -> Record:
        """Count the steps of the batch, after the cross-entropy of P̂ on them as it was before; none if P̂ is known."""
        dynamics, valid = self.learner.dynamics, fresh.valid
        if isinstance(dynamics, KnownGraphDynamics):
            return {}
        states = nodes_on(self.learner.graph, fresh.outcomes, valid)[:, :-1]
        seen = (states[valid], fresh.intentions[valid], fresh.outcomes[valid])
        loss = -float(safe_log(dynamics.table()[seen]).mean())
        dynamics.observe(*seen)
        return {"forward_dynamics_loss": loss}

    def updates(self, fresh: Trajectories, progress: float) -> Iterator[Terms]:
        return self.objective.updates(fresh, self.step, progress)

    def modules(self) -> dict[str, nn.Module]:
        return {"network": self.learner.network, "dynamics": self.learner.dynamics}

    def parts(self) -> dict[str, Stateful]:
        learner = self.learner
        return {
            "network": learner.network,
            "dynamics": learner.dynamics,
            "memory": learner.memory,
            "replay": learner.replay,
            "generators": learner.generators,
            "objective": self.objective,
        }

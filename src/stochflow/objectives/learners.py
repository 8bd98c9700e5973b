"""The learner of sequences and the learner of graphs: what an objective reads, in each of the two families."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from stochflow.core.logspace import safe_log
from stochflow.environments.channels import Channel, noiseless
from stochflow.environments.graphs.environment import GraphEnvironment, states_on
from stochflow.environments.sequences.environment import SequenceEnvironment
from stochflow.models.dynamics.counted import GraphDynamics
from stochflow.models.dynamics.tabular import Dynamics, KnownDynamics
from stochflow.models.flow_network import FlowNetwork
from stochflow.models.graph_network import GraphNetwork
from stochflow.objectives.base import Learner
from stochflow.sampling.object_memory import ObjectMemory
from stochflow.sampling.score_memory import ScoreMemory
from stochflow.sampling.trajectories import Trajectories


@dataclass(frozen=True)
class SequenceLearner(Learner):
    """States are prefixes.

    Attributes:
        log_shares: log p_B(h|x) of histories where several write one design, [num, L] → [num]; None where one does.
    """

    environment: SequenceEnvironment
    network: FlowNetwork
    dynamics: Dynamics
    memory: ScoreMemory
    log_shares: Callable[[Tensor], Tensor] | None = None

    def log_rewards(self, batch: Trajectories, step: int | None = None) -> Tensor:
        return self.log_rewards_of(batch.outcomes, batch.scores, step)

    def log_rewards_of(self, outcomes: Tensor, scores: Tensor, step: int | None = None) -> Tensor:
        """log R of sequences, float64; [batch, L], [batch] → [batch].

        Where several histories write one design, its reward is shared out among them: log R(x) + log p_B(h|x).
        """
        log_rewards = self.reward.log_reward(scores, step)
        return log_rewards if self.log_shares is None else log_rewards + self.log_shares(outcomes.cpu())

    def paid(self) -> tuple[Tensor, Tensor]:
        """Paid designs, [n, L], and their scores, [n], in order of arrival: those that keep the constraints, if any do.

        What breaks a constraint is known to score zero and would only confuse a regression.
        """
        designs, mask = self.memory.designs, self.network.mask
        sequences, scores = designs.sequences, designs.scores
        if mask is not None and bool((feasible := mask.alive(sequences)).any()):
            return sequences[feasible], scores[feasible]
        return sequences, scores

    def is_full(self, batch: Trajectories) -> bool:
        if self.network.reads_history:
            return False
        return self.network.mask is None and len(batch) > 0 and bool(batch.valid.numpy().all())

    @torch.no_grad()
    def log_dynamics(self, batch: Trajectories) -> Tensor:
        if not self.network.reads_history:
            return self.log_dynamics_of(batch.outcomes)
        outcomes, intentions = batch.outcomes.to(self.device), batch.intentions.to(self.device)
        return self.dynamics.log_matrices(outcomes, intentions=intentions)

    @torch.no_grad()
    def log_dynamics_of(self, outcomes: Tensor) -> Tensor:
        """log P̂(b|s_t,a) of the next state along sequences, detached; [batch, time] → [batch or 1, time, K, K].

        Without feedback the next state is what was intended, and P̂ comes in when the order is made.
        """
        return self.transitions.log_matrices(outcomes.to(self.device))

    @cached_property
    def transitions(self) -> Dynamics:
        """P̂ of the next state: without feedback the one that is known, in which every intention comes as it is."""
        if not self.environment.ordered:
            return self.dynamics
        network = self.network
        return KnownDynamics(noiseless(network.num_tokens), network.length).to(self.device)

    @torch.no_grad()
    def log_channel_of(self, outcomes: Tensor) -> Tensor:
        """log P̂(b|s_t,a) of what is made, detached; as `log_dynamics_of`, from which it differs without feedback."""
        return self.dynamics.log_matrices(outcomes.to(self.device))

    @torch.no_grad()
    def log_beliefs(self, outcomes: Tensor, intentions: Tensor | None = None) -> Tensor:
        if not self.network.reads_history:
            return self.log_channel_of(outcomes).double().cpu()
        meant = (outcomes if intentions is None else intentions).to(self.device)
        return self.dynamics.log_matrices(outcomes.to(self.device), intentions=meant).double().cpu()

    def believed_channel(self) -> Channel:
        """P̂ of whole orders, which sees no state."""
        anything = torch.zeros(1, self.network.length, dtype=torch.int64)
        return Channel(self.log_beliefs(anything)[0].exp(), "learned")

    def child_flows(self, batch: Trajectories, step: int) -> Tensor:
        """On a tree p_B is one, and the children of the last states are finished."""
        num_tokens, outcomes = self.network.num_tokens, batch.outcomes
        flows = self.network.children_along(outcomes, batch.valid).log_flow
        prefixes = outcomes[:, :-1].cpu().repeat_interleave(num_tokens, dim=0)
        letters = torch.arange(num_tokens).repeat(len(outcomes)).unsqueeze(-1)
        leaves = torch.cat([prefixes, letters], dim=1)
        log_rewards = self.log_rewards_of(leaves, self.memory.lookup(leaves), step)
        log_rewards = log_rewards.float().view(-1, num_tokens).to(flows.device)
        flows[:, -1] = torch.where(log_rewards.isnan(), flows[:, -1], log_rewards)
        return flows


@dataclass(frozen=True)
class GraphLearner(Learner):
    """States are nodes of a directed acyclic graph, which may have several parents."""

    environment: GraphEnvironment
    network: GraphNetwork
    dynamics: GraphDynamics
    memory: ObjectMemory

    def replayed(self, fresh: Trajectories) -> Iterator[Trajectories]:
        """Without the steps that no episode of a batch has taken."""
        return (batch.trimmed() for batch in super().replayed(fresh))

    def log_dynamics(self, batch: Trajectories) -> Tensor:
        states = states_on(self.environment.graph, batch.outcomes, batch.valid)
        return safe_log(self.dynamics.table()[states]).float().to(self.device)

    def log_beliefs(self, outcomes: Tensor, intentions: Tensor | None = None) -> Tensor:
        return safe_log(self.dynamics.table())

    def child_flows(self, batch: Trajectories, step: int) -> Tensor:
        graph = self.environment.graph
        flows = self.network.children_along(batch.outcomes, batch.valid)
        states = states_on(graph, batch.outcomes, batch.valid)
        objects = graph.children[states] - graph.num_states  # below zero where a child is a state
        log_rewards = self.reward.log_reward(self.memory.lookup(objects.clamp_min(0)), step)
        paid = ((objects >= 0) & ~log_rewards.isnan()).to(self.device)
        log_flow = torch.where(paid, log_rewards.float().to(self.device), flows.log_flow)
        return log_flow if flows.log_parent is None else log_flow + flows.log_parent

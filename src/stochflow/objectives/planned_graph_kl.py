"""SGFN-KL in state scope on a graph, with values planned from what was paid for and from P̂."""

from collections.abc import Iterator

import torch
from torch import Tensor

from stochflow.core.logspace import log_marginal, safe_log
from stochflow.models.base import Sampler
from stochflow.models.graph_network import GraphSampler
from stochflow.objectives.base import Objective, Terms
from stochflow.objectives.divergence import policy_kl, state_kl
from stochflow.objectives.entropy import EntropyTerms, entropy_terms
from stochflow.objectives.learners import GraphLearner
from stochflow.objectives.planning.novelty import novelty_bonus
from stochflow.objectives.planning.plan_states import draw_states
from stochflow.sampling.trajectories import Trajectories
from stochflow.truth.dag import GraphOptimum, graph_optimum

_MAX_ROWS = 2**13  # states in one update
_PLAN_TOLERANCE = 1e-4
_PLAN_SWEEPS = 64
_MIN_VISITS = 1e-12


class PlannedGraphKL(Objective):
    """Distils KL(M_θ(·|s)‖T(·|s)), T ∝ exp(V(s') + log p_B(s|s')), into the network.

    The plan is the attainable optimum under P̂: V of a paid object is its log R, of an unpaid one the flow head, and p_B
    is the posterior of the plan itself. With it T(s'|s) ∝ M*(s'|s)·exp E*[log R(x) − log P*(x) | s'], and the sum over
    visited states of this divergence, above its minimum, is what the KL over episodes loses against the plan.
    """

    learner: GraphLearner

    def __init__(self, learner: GraphLearner) -> None:
        super().__init__(learner)
        self._graph = learner.environment.graph
        self.plan: GraphOptimum | None = None
        self._eager: Tensor | None = None
        self._planned_at, self._num_planned, self._num_sampled = 0.0, 0, 0
        self._believed = learner.dynamics.table()

    def sampler(self, batch_size: int) -> Sampler:
        if self._eager is None:
            return super().sampler(batch_size)
        return GraphSampler(self._graph, batch_size, self._eager)

    def updates(self, fresh: Trajectories, step: int, progress: float) -> Iterator[Terms]:
        self._num_sampled += len(fresh)
        if self._due(progress):
            self.replan(step)
            self._planned_at = progress
        for _ in range(self.learner.config.optimiser.updates):
            yield self.terms(step, progress)

    def replan(self, step: int) -> None:
        """Plan from where the last plan stands: for the targets, and with the bonus for the behaviour."""
        learner, paid = self.learner, self.learner.memory.paid
        self._believed = learner.dynamics.table()
        log_reward = self._log_reward(step)
        self.plan = self._solved(log_reward, None if self.plan is None else self.plan.log_policy)
        eager = self.plan
        if not bool(paid.all()):
            # with everything paid for, a bonus for the rest changes nothing
            bonus = novelty_bonus(learner.config.plan.bonus, self._num_sampled, int(paid.sum()))
            eager = self._solved(log_reward - bonus * paid, self.plan.log_policy)
        self._eager = eager.log_policy
        self._num_planned = learner.memory.num_calls

    def terms(self, step: int, progress: float) -> Terms:
        """Loss on states in proportion to the plan's visits."""
        plan, learner = self.plan, self.learner
        if plan is None:
            raise RuntimeError("replan before asking for terms")
        graph, network, device = self._graph, learner.network, learner.network.device
        visits = plan.visits[: graph.num_states]
        states, weights = draw_states(visits / visits.sum(), _MAX_ROWS, learner.generators["replay"])
        on_device = states.to(device)
        hidden = network.hidden(on_device)
        log_policy = network.log_policy(hidden, on_device)
        log_marginals = log_marginal(log_policy, safe_log(self._believed[states]).float().to(device))
        weights = weights.float().to(device)
        log_targets = self._log_targets(states).float().to(device)
        divergence = (weights * state_kl(log_marginals, log_targets, torch.zeros_like(weights))).sum()
        # log F(s) = log of the flow that the plan sends through s
        values = (plan.advances[states] + safe_log(visits[states])).float().to(device)
        flow_loss = (weights * (network.log_flow(hidden, on_device) - values).square()).sum() + self._object_loss(step)
        backward_loss = self._backward_loss()
        imitation_loss = (weights * policy_kl(plan.log_policy[states].float().to(device), log_policy)).sum()
        config = learner.config.objective
        loss = divergence + config.imitation_weight * imitation_loss + config.flow_weight * (flow_loss + backward_loss)
        told: dict[str, Tensor] = {}
        if config.lambda_ratio or config.lambda_dynamics:
            entropy = self._entropy(states, weights, log_policy, progress)
            loss = loss + entropy.penalty
            told = {"log_entropy_ratio": entropy.log_ratio, "dynamics_loss": entropy.dynamics}
        return {
            "loss": loss,
            "kl_loss": divergence,
            **told,
            "imitation_loss": imitation_loss,
            "flow_loss": flow_loss,
            "backward_loss": backward_loss,
        }

    def _entropy(self, states: Tensor, weights: Tensor, log_policy: Tensor, progress: float) -> EntropyTerms:
        """The entropy terms at states of all depths, [rows]; each depth is a column of its own."""
        graph, device = self._graph, log_policy.device
        depths, rows = graph.depths[states], torch.arange(len(states))
        size = (len(states), int(depths.max()) + 1)
        visits = torch.zeros(size, device=device)
        visits[rows, depths] = weights
        choices = graph.valid_actions[states].sum(dim=-1).to(device)
        policies = log_policy.unsqueeze(1).expand(*size, -1)
        config = self.learner.config.objective
        return entropy_terms(policies, visits, config, progress, choices.unsqueeze(1).expand(size))

    def log_z(self) -> float:
        """V(root) of the last plan; it aims at log Z minus the smallest reachable KL."""
        return super().log_z() if self.plan is None else float(self.plan.advances[0])

    def state_dict(self) -> dict[str, Tensor]:
        numbers = [self._planned_at, float(self._num_planned), float(self._num_sampled)]
        state = {"numbers": torch.tensor(numbers, dtype=torch.float64), "believed": self._believed}
        if self.plan is not None and self._eager is not None:
            state |= {name: value for name, value in vars(self.plan).items() if isinstance(value, Tensor)}
            state["bounds"] = torch.tensor([self.plan.kl, self.plan.min_kl, self.plan.log_z], dtype=torch.float64)
            state["eager"] = self._eager
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._planned_at, *counts = state["numbers"].tolist()
        self._num_planned, self._num_sampled = map(int, counts)
        self._believed = state["believed"]
        if "eager" in state:
            tables = (state[name] for name in ("log_policy", "marginals", "visits", "advances"))
            self.plan, self._eager = GraphOptimum(*state["bounds"].tolist(), *tables), state["eager"]

    def _solved(self, log_reward: Tensor, start: Tensor | None) -> GraphOptimum:
        graph = self._graph
        return graph_optimum(graph, log_reward, self._believed, start, _PLAN_TOLERANCE, _PLAN_SWEEPS)

    def _log_reward(self, step: int) -> Tensor:
        """log R of paid objects, log F of the others, float64, [X]."""
        learner = self.learner
        paid, graph = learner.memory.paid, self._graph
        log_reward = learner.reward.log_reward(graph.scores, step)
        if bool(paid.all()):
            return log_reward
        guessed = learner.network.log_flows(torch.arange(graph.num_states, graph.num_nodes))
        return torch.where(paid, log_reward, guessed)

    def _log_targets(self, states: Tensor) -> Tensor:
        """log T(outcome|s), log 1e-30 where there is no outcome; [rows] → [rows, C]."""
        if self.plan is None:
            raise RuntimeError("replan before asking for targets")
        graph = self._graph
        ahead = self.plan.advances[graph.children[states].clamp_min(0)]
        logits = safe_log(self.plan.marginals[states]) + ahead
        return torch.log_softmax(torch.where(graph.possible[states], logits, safe_log(torch.zeros(()))), dim=-1)

    def _object_loss(self, step: int) -> Tensor:
        """Mean of (log F(x) − log R(x))² over paid objects: how the flow head guesses the others; a scalar."""
        learner, device = self.learner, self.learner.network.device
        known = learner.memory.paid.nonzero().squeeze(-1)
        if len(known) > _MAX_ROWS:
            known = known[torch.randint(len(known), (_MAX_ROWS,), generator=learner.generators["replay"])]
        log_reward = learner.reward.log_reward(self._graph.scores[known], step).float().to(device)
        nodes = (known + self._graph.num_states).to(device)
        return (learner.network.log_flow(learner.network.hidden(nodes), nodes) - log_reward).square().mean()

    def _backward_loss(self) -> Tensor:
        """Cross-entropy of π_B against the posterior of the plan, at nodes in proportion to its visits; a scalar."""
        if self.plan is None:
            raise RuntimeError("replan before asking for terms")
        graph, network = self._graph, self.learner.network
        shares = self.plan.visits[1:] / self.plan.visits[1:].sum()
        nodes, weights = draw_states(shares, _MAX_ROWS, self.learner.generators["replay"])
        nodes = nodes + 1  # all but the root, which nothing leads to
        steps = graph.parents[nodes]
        states, outcomes = steps.clamp_min(0) // graph.num_outcomes, steps.clamp_min(0) % graph.num_outcomes
        # μ(s)·π(a|s)·P̂(s'|s,a) of every parent and intention, [rows, parents, A]
        joint = self.plan.visits[states].unsqueeze(-1) * self.plan.log_policy[states].exp()
        joint = joint * self._believed[states, :, outcomes] * (steps >= 0).unsqueeze(-1)
        posterior = joint / joint.sum(dim=(-2, -1), keepdim=True).clamp_min(_MIN_VISITS)
        on_device = nodes.to(network.device)
        log_pairs = network.log_backward(network.hidden(on_device), on_device)
        per_node = -(posterior.float().to(network.device) * log_pairs).sum(dim=(-2, -1))
        return (weights.float().to(network.device) * per_node).sum()

    def _due(self, progress: float) -> bool:
        config = self.learner.config.plan
        grown = self.learner.memory.num_calls > config.growth * self._num_planned
        # the distance either way: progress falls when a resumed run is given a larger budget
        return self.plan is None or grown or abs(progress - self._planned_at) >= config.every

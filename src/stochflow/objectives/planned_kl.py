"""SGFN-KL in state scope with values planned on the trie of visited prefixes."""

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from stochflow.core.errors import ConfigError
from stochflow.core.logspace import log_marginal, safe_log
from stochflow.models.base import Sampler
from stochflow.models.evaluation import AtPrefixes, ClosedFormLoss, Evaluation, Heads
from stochflow.objectives.base import ARITHMETIC, Objective, Terms
from stochflow.objectives.divergence import policy_kl, state_kl
from stochflow.objectives.entropy import EntropyTerms, entropy_terms
from stochflow.objectives.imagined_kl import ImaginedKL, with_prefix
from stochflow.objectives.learners import SequenceLearner
from stochflow.objectives.path_gradients import StateOutputs
from stochflow.objectives.planning.leaf_model import LeafModel
from stochflow.objectives.planning.novelty import novelty_bonus
from stochflow.objectives.planning.order_values import known_share, order_values
from stochflow.objectives.planning.plan import Plan, least_unplanned_nats, make_plan, unplanned_nats
from stochflow.objectives.planning.plan_prefixes import PlanSampler, chosen_sequences, whole_trie
from stochflow.objectives.planning.plan_states import DrawnStates, PlannedStates
from stochflow.sampling.prefix_trie import PrefixTrie
from stochflow.sampling.trajectories import Trajectories

_MAX_ROWS = 2**13  # states in one update, all depths together
_LEAST_BATCH = 64  # below which a round costs more than it brings
_MAX_ENTRIES = 2**20  # of a table of P̂ per state: four megabytes


class PlannedKL(Objective):
    """Distils KL(M_θ(·|s)‖softmax V(children)) with V planned from what was paid for.

    V of a paid leaf is its log R, of an unpaid leaf the reward model's expectation. A small tree is planned as a whole;
    in others an unvisited prefix has the value of the flow head. Regret is exactly the sum over depths of this
    divergence (above its minimum) under the policy's visits.

    The gradient of KL(M_θ‖·) in the logit of an intention is proportional to π_θ(a|s), so an intention that was ruled
    out early gets none. A small multiple of KL(π of the plan‖π_θ), whose gradient is π_θ − π of the plan, brings it
    back.
    """

    learner: SequenceLearner

    def __init__(self, learner: SequenceLearner) -> None:
        super().__init__(learner)
        self.leaf_model = LeafModel(learner.memory.trie.num_tokens, learner.memory.trie.length)
        self.plan: Plan | None = None
        self.trie = learner.memory.trie
        self._chosen: Tensor | None = None
        self.behaviour_policies: list[Tensor] = []
        self._states: PlannedStates | None = None  # those of the plan, when somebody has asked for them
        self._planned_at = 0.0
        self._num_planned = self._num_sampled = 0
        self.planned_share = 1.0
        self.imagined = ImaginedKL(learner)
        # of designs that several histories write not every leaf is a history
        fits = self.trie.num_tokens**self.trie.length <= learner.config.plan.whole
        self._whole = fits and learner.environment.enumerable and learner.memory.designs is learner.memory
        if learner.environment.ordered and not self._whole and not learner.config.imagination.updates:
            raise ConfigError(
                f"orders of {learner.environment.name} are learned from a surrogate; set imagination.updates above 0 "
                "and start without torchrun, or add --feedback step"
            )

    @property
    def reward_mean(self) -> str:
        """Leaves of the plan are the memory's means of R."""
        return ARITHMETIC

    @property
    def batch_size(self) -> int:
        """As configured, but less of a small budget: every round is chosen with what the others have found."""
        size, budget = self.learner.config.optimiser.batch_size, self.learner.config.budget
        amount = budget.trajectories or budget.oracle_calls
        return size if amount is None else min(size, max(_LEAST_BATCH, amount // self.learner.config.plan.rounds))

    @property
    def _always_planned(self) -> bool:
        """Where a space can be enumerated the flow head has few letters to bridge, and the plan is enough.

        A plan of orders has a value for every one of them, or there is none.
        """
        if self.learner.environment.ordered:
            return self._whole
        return self.learner.environment.enumerable or not self.learner.config.imagination.updates

    def sampler(self, batch_size: int) -> Sampler:
        sampler = self.learner.network.sampler(batch_size)
        if self.behaviour_policies and self.planned_share > 0.0:
            sampler = PlanSampler(self.trie, self.behaviour_policies, sampler, batch_size)
        near = int((1.0 - self.planned_share) * self.learner.config.imagination.near * batch_size)
        return self.imagined.sampler(near, sampler) if near else sampler

    def updates(self, fresh: Trajectories, step: int, progress: float) -> Iterator[Terms]:
        self.learner.memory.settle()  # every batch for itself: plans refer to prefixes by number
        self._num_sampled += len(fresh)
        if self._due(progress):
            self.replan(step)
            self._planned_at = progress
        config = self.learner.config
        weighs = config.objective.lambda_ratio != 0.0 or config.objective.lambda_dynamics != 0.0
        num_imagined = round((1.0 - self.planned_share) * config.imagination.updates)
        for terms in self.imagined.updates(num_imagined):
            yield {**terms, "planned_share": self.planned_share}
        for left in range(round(self.planned_share * config.optimiser.updates) - 1, -1, -1):
            # where the entropy has no weight it is only told, and once a step is enough
            terms = self.terms(progress, entropy=weighs or left == 0)
            yield {**terms, "planned_share": self.planned_share}

    def replan(self, step: int) -> None:
        """Fit the reward model and plan twice: for the targets, and with the bonus for the behaviour.

        Where no plan could count there is none, and everything is learned from the surrogate.
        """
        memory = self.learner.memory
        self._choose(None if self._whole else chosen_sequences(memory, self.learner.config.plan.max_entries))
        self._num_planned = len(memory)
        least = 0.0 if self._always_planned else self._least_unplanned()
        if self._share_of(least) == 0.0:
            self.plan, self._states, self.behaviour_policies = None, None, []
            self._share_out(least)
            return
        self.leaf_model.fit(*self.learner.paid(), self.learner.reward, step)
        log_rewards, paid = self._leaf_values(step)
        asked: dict[int, Tensor] = {}

        def frontier(prefixes: Tensor) -> Tensor:
            # both plans ask for the same prefixes, one depth at a time
            depth = prefixes.shape[1]
            if depth not in asked:
                asked[depth] = self._frontier(prefixes, step)
            return asked[depth]

        world = (frontier, self._level_dynamics, self._level_allowed)
        bonus = novelty_bonus(self.learner.config.plan.bonus, self._num_sampled, len(memory))
        values, known = log_rewards, paid.double()
        if self.learner.environment.ordered:
            channel, length = self.learner.believed_channel(), self.trie.length
            values = order_values(log_rewards, channel, length)
            known = known_share(paid, channel, length)
        self.plan, self._states = make_plan(self.trie, values, *world), None
        eager = make_plan(self.trie, values - bonus * known, *world)
        self.behaviour_policies = eager.policies
        self._share_out(unplanned_nats(self.plan, self.trie.num_tokens))

    def _least_unplanned(self) -> float:
        ordered = self.learner.environment.ordered
        return math.inf if ordered else least_unplanned_nats(self.trie, self._level_dynamics)

    def _leaf_values(self, step: int) -> tuple[Tensor, Tensor]:
        """V of the trie's leaves, log R where it was paid for and elsewhere what is believed; and which were paid."""
        leaves = self.trie.sequences
        scores = self.learner.memory.lookup(leaves)
        values, paid = self.learner.log_rewards_of(leaves, scores, step), ~scores.isnan()
        if not bool(paid.all()):
            values[~paid] = self._frontier(leaves[~paid], step)
        return values, paid

    def _share_of(self, unplanned: float) -> float:
        """How much is learned from the plan instead of a surrogate.

        The flow head is fitted to plans that are made of its own values, so a plan is only as good as it covers what it
        plans: all of it up to `horizon` unplanned nats, none from twice as many on.
        """
        planned = 2.0 - unplanned / self.learner.config.imagination.horizon
        return 1.0 if self._always_planned else min(1.0, max(0.0, planned))

    def _share_out(self, unplanned: float) -> None:
        """Learn so much from the plan, and the rest from a surrogate."""
        self.planned_share = self._share_of(unplanned)
        if self.planned_share < 1.0:
            self.imagined.refresh()

    def terms(self, progress: float, entropy: bool = True) -> Terms:
        """Loss on states drawn from the plan's own visits, every depth with equal weight.

        Args:
            entropy: False to leave out what the entropy adds.
        """
        learner = self.learner
        if self.plan is None:
            raise RuntimeError("replan before asking for terms")
        if self._states is None:
            self._states = PlannedStates(self.plan, self.trie)
        num_rows = min(learner.config.plan.rows_per_level, max(_MAX_ROWS // self.trie.length, 1))
        drawn = self._states.draw(num_rows, learner.generators["replay"])
        evaluation = learner.network.evaluate(AtPrefixes(drawn.tokens, drawn.depths))
        # where P̂ is one table per depth and all may be intended, the gradient has a closed form
        closed = learner.network.mask is None and not learner.dynamics.sees_state
        terms = self._closed_form_terms if closed else self._autograd_terms
        return terms(self._states, drawn, evaluation, progress, entropy)

    def _autograd_terms(
        self,
        states: PlannedStates,
        drawn: DrawnStates,
        evaluation: Evaluation[Heads],
        progress: float,
        entropy: bool,
    ) -> Terms:
        """What `terms` says, by autograd."""
        config, device = self.learner.config.objective, self.learner.device
        tokens, depths, weights = (column.to(device) for column in (drawn.tokens, drawn.depths, drawn.weights))
        log_targets, values = states.log_targets[drawn.nodes].to(device), states.values[drawn.nodes].to(device)
        heads = evaluation.heads()
        log_marginals = self._log_marginals(heads.log_policy, tokens, depths, drawn.sizes)
        divergence = (weights * state_kl(log_marginals, log_targets, torch.zeros_like(weights))).sum()
        flow_loss = (weights * (heads.log_flow - values).square()).sum()
        planned = states.policies[drawn.nodes].float().to(device)
        imitation_loss = (weights * policy_kl(safe_log(planned), heads.log_policy)).sum()
        loss = divergence + config.flow_weight * flow_loss + config.imitation_weight * imitation_loss
        terms = {"loss": loss, "kl_loss": divergence, "flow_loss": flow_loss, "imitation_loss": imitation_loss}
        if not entropy:
            return terms
        found = self._entropy(heads.log_policy, drawn, progress)
        told = {"log_entropy_ratio": found.log_ratio, "dynamics_loss": found.dynamics}
        return terms | {"loss": loss + found.penalty, **told}

    def _closed_form_terms(
        self,
        states: PlannedStates,
        drawn: DrawnStates,
        evaluation: Evaluation[Heads],
        progress: float,
        entropy: bool,
    ) -> Terms:
        """The same with the gradient in closed form."""
        learner, config = self.learner, self.learner.config.objective
        left = learner.network.length - drawn.depths.numpy()
        outputs = StateOutputs(evaluation.outputs(), learner.network.num_tokens, left)
        nodes, weights = drawn.nodes.numpy(), drawn.weights.numpy()
        matrices = learner.log_dynamics_of(drawn.tokens[:1])[0].exp().cpu().numpy()
        divergence = outputs.divergence(matrices, drawn.sizes, states.log_targets.numpy().take(nodes, axis=0), weights)
        flow_loss = outputs.flow_loss(states.values.numpy().take(nodes), weights, config.flow_weight)
        planned = states.policies.numpy().take(nodes, axis=0).astype(np.float32)
        imitation_loss = outputs.imitation_loss(planned, weights, config.imitation_weight)
        loss = divergence + config.flow_weight * flow_loss + config.imitation_weight * imitation_loss
        terms = {"kl_loss": divergence, "flow_loss": flow_loss, "imitation_loss": imitation_loss}
        if entropy:
            weighs = config.lambda_ratio != 0.0 or config.lambda_dynamics != 0.0
            log_policy = torch.from_numpy(outputs.log_policy).requires_grad_(weighs)
            found = self._entropy(log_policy, drawn, progress)
            if weighs:
                outputs.add_grad_policy(torch.autograd.grad(found.penalty, log_policy)[0].numpy())
            penalty, terms["log_entropy_ratio"], terms["dynamics_loss"] = (float(term.detach()) for term in found)
            loss += penalty
        return {"loss": ClosedFormLoss.of(loss, evaluation, outputs.gradient), **terms}

    def _entropy(self, log_policy: Tensor, drawn: DrawnStates, progress: float) -> EntropyTerms:
        """What the entropy of π, [rows, K], adds; quantiles are those of all draws, so that each has its own row."""
        counts, device = drawn.counts, log_policy.device
        sizes = [int(level.sum()) for level in counts.split(drawn.sizes)]
        weights = (drawn.weights / counts).repeat_interleave(counts).to(device)
        drawn_policies = log_policy.repeat_interleave(counts.to(device), dim=0)
        policies, visits = _by_depth(drawn_policies, sizes), _by_depth(weights, sizes)
        return entropy_terms(policies, visits, self.learner.config.objective, progress)

    def log_z(self) -> float:
        """V(root) of the last plan, log F of the root without one; it aims at log Z minus the smallest reachable KL."""
        return float(self.plan.values[0]) if self.plan is not None else self.learner.network.root_log_flow()

    def state_dict(self) -> dict[str, Tensor]:
        numbers = [self._planned_at, float(self._num_planned), float(self._num_sampled)]
        state = {f"leaves.{name}": value for name, value in self.leaf_model.state_dict().items()}
        state["numbers"] = torch.tensor(numbers, dtype=torch.float64)
        if self.plan is not None:
            levels = {"behaviour": self.behaviour_policies, **vars(self.plan)}
            state |= {f"{name}.{t}": level for name, tensors in levels.items() for t, level in enumerate(tensors)}
        if self.planned_share < 1.0:
            state |= {f"imagined.{name}": value for name, value in self.imagined.state_dict().items()}
            state["planned_share"] = torch.tensor(self.planned_share, dtype=torch.float64)
        return state if self._chosen is None else state | {"chosen": self._chosen}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.leaf_model.load_state_dict(with_prefix(state, "leaves."))
        self._planned_at, *counts = state["numbers"].tolist()
        self._num_planned, self._num_sampled = map(int, counts)
        self._choose(state.get("chosen"))
        if "planned_share" in state:
            self.planned_share = float(state["planned_share"])
            self.imagined.load_state_dict(with_prefix(state, "imagined."))
        if "behaviour.0" in state:
            length = self.trie.length

            def levels(name: str) -> list[Tensor]:
                return [state[f"{name}.{t}"] for t in range(length)]

            self.behaviour_policies = levels("behaviour")
            self.plan = Plan(levels("child_values"), levels("values"), levels("policies"), levels("visits"))
            self._states = None

    def _choose(self, chosen: Tensor | None) -> None:
        """Plan on these sequences of the memory, [num], or on all of them as they come; or on the whole tree."""
        memory = self.learner.memory
        if self._whole:
            if self.trie is memory.trie:
                self.trie = whole_trie(memory.trie.num_tokens, memory.trie.length)
            return
        self._chosen, self.trie = chosen, memory.trie
        if chosen is not None:
            self.trie = PrefixTrie(memory.trie.num_tokens, memory.trie.length)
            self.trie.insert(memory.sequences[chosen])

    def _log_marginals(self, log_policy: Tensor, tokens: Tensor, depths: Tensor, sizes: list[int]) -> Tensor:
        """log M at one prefix per row, rows by depth; [rows, K] → [rows, K]. P̂ is held fixed."""
        dynamics = self.learner.transitions
        if dynamics.sees_state:
            with torch.no_grad():
                log_dynamics = dynamics.log_matrices_at(tokens, depths)
            return log_marginal(log_policy, log_dynamics)
        log_dynamics = self.learner.log_dynamics_of(tokens[:1])
        if len(depths) * log_dynamics[0, 0].numel() <= _MAX_ENTRIES:
            return log_marginal(log_policy, log_dynamics[0, depths])
        # one K×K table per depth, not per row
        log_marginals = log_marginal(_by_depth(log_policy, sizes), log_dynamics)
        return torch.cat([log_marginals[:size, t] for t, size in enumerate(sizes)])

    def _due(self, progress: float) -> bool:
        config = self.learner.config.plan
        grown = len(self.learner.memory) > config.growth * self._num_planned
        # the distance either way: progress falls when a resumed run is given a larger budget
        return not self._num_planned or grown or abs(progress - self._planned_at) >= config.every

    @torch.no_grad()
    def _frontier(self, prefixes: Tensor, step: int) -> Tensor:
        """V of prefixes one token outside the trie, float64; [rows, t] → [rows].

        Where constraints leave no hope every completion is worth the floor, and that is known without asking.
        """
        learner = self.learner
        network, mask = learner.network, learner.network.mask
        if mask is None:
            return self._believed(prefixes, step)
        values = math.log(learner.reward.floor) + network.log_completions(prefixes)
        hopeful = mask.alive(prefixes)
        if bool(hopeful.any()):
            values[hopeful] = self._believed(prefixes[hopeful], step)
        return values

    def _believed(self, prefixes: Tensor, step: int) -> Tensor:
        """V by the reward model for complete sequences, by the flow head for others."""
        learner, missing = self.learner, self.learner.network.length - prefixes.shape[1]
        if missing == 0:
            return self._believed_leaves(prefixes, step)
        ended = learner.network.ended(prefixes)
        values = torch.empty(len(prefixes), dtype=torch.float64)
        values[~ended] = learner.network.log_flow_of(prefixes[~ended].to(learner.device)).double().cpu()
        if bool(ended.any()):  # nothing but stops can follow: the design is there already
            stop = int(learner.network.stop or 0)
            leaves = torch.nn.functional.pad(prefixes[ended], (0, missing), value=stop)
            values[ended] = self._believed_leaves(leaves, step)
        return values

    def _believed_leaves(self, leaves: Tensor, step: int) -> Tensor:
        """log R by the reward model, or what was paid where a history of the same design or another plan has it."""
        learner, memory = self.learner, self.learner.memory
        values = self.leaf_model.expected_log_reward(memory.canonical(leaves), learner.reward, step)
        if self._chosen is not None or memory.designs is not memory:
            paid = learner.reward.log_reward(memory.lookup(leaves), step)
            values = torch.where(paid.isnan(), values, paid)
        return values if learner.log_shares is None else values + learner.log_shares(leaves)

    def _level_allowed(self, prefixes: Tensor) -> Tensor | None:
        """What any policy may intend at all, where the world has rules; [rows, t] → [rows, K]."""
        mask = self.learner.network.mask
        return mask.next(prefixes) if mask is not None and mask.binding else None

    @torch.no_grad()
    def _level_dynamics(self, sequences: Tensor, depth: int) -> Tensor:
        dynamics = self.learner.transitions
        if not dynamics.sees_state:
            sequences = sequences[:1]
        depths = torch.full((len(sequences),), depth, device=self.learner.device)
        matrices = dynamics.log_matrices_at(sequences.to(self.learner.device), depths).exp().double().cpu()
        return matrices if dynamics.sees_state else matrices[0]


def _by_depth(rows: Tensor, sizes: list[int]) -> Tensor:
    """Rows grouped by depth and padded with zeros; [rows, ...] → [most, time, ...]."""
    return torch.nn.utils.rnn.pad_sequence(list(rows.split(sizes)))

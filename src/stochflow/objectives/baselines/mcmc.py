"""Metropolis–Hastings over whole sequences: many chains side by side, one per trajectory of a batch."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from stochflow.core.logspace import log_mean_exp
from stochflow.models.base import Sampler
from stochflow.objectives.base import ARITHMETIC, Objective, Terms
from stochflow.objectives.learners import SequenceLearner
from stochflow.sampling.policies import OpenLoopPolicy, OpenLoopSampler, Policy
from stochflow.sampling.trajectories import Trajectories


class Reservoir:
    """A uniform choice of at most `capacity` of all rows ever added.

    Attributes:
        rows: the rows chosen so far, uint8, [num_kept, L].
        num_seen: rows added so far.
    """

    def __init__(self, capacity: int, length: int) -> None:
        self._capacity = capacity
        self.rows = torch.empty(0, length, dtype=torch.uint8)
        self.num_seen = 0

    def add(self, rows: Tensor, generator: torch.Generator) -> None:
        """Row number i replaces a random one with probability capacity/i; [num, L]."""
        free = self._capacity - len(self.rows)
        self.rows = torch.cat([self.rows, rows[:free].to(torch.uint8)])
        self.num_seen += len(rows[:free])
        late = rows[free:].to(torch.uint8)
        if not len(late):
            return
        arrivals = self.num_seen + 1 + torch.arange(len(late))
        uniform = torch.rand(len(late), generator=generator, dtype=torch.float64)
        slots = (uniform * arrivals).long()
        # of several rows for one slot the last one stays, as if they had come one after another
        last = torch.full((int(arrivals[-1]),), -1).scatter_reduce(0, slots, torch.arange(len(late)), "amax")
        taken = (last[: self._capacity] >= 0).nonzero().squeeze(-1)
        self.rows[taken] = late[last[taken]]
        self.num_seen += len(late)


def one_letter_changed(sequences: Tensor, num_tokens: int, generator: torch.Generator) -> Tensor:
    """Each sequence with one uniformly chosen letter replaced by another one, [batch, L]."""
    positions = torch.randint(sequences.shape[1], (len(sequences), 1), generator=generator)
    shifts = torch.randint(1, num_tokens, (len(sequences), 1), generator=generator)
    return sequences.scatter(1, positions, (sequences.gather(1, positions) + shifts) % num_tokens)


def accepted(log_ratios: Tensor, generator: torch.Generator) -> Tensor:
    """True with probability min(1, exp(log ratio)); [batch] → [batch]."""
    return torch.rand(log_ratios.shape, generator=generator, dtype=torch.float64).log() < log_ratios


class MetropolisHastings(Objective):
    """Chains that move to what the world made of a proposal, or stay, by the ratio of rewards.

    A proposal changes one letter of a chain's state and is intended letter by letter; the world makes something of it,
    and that is accepted with probability min(1, (R(x)/R(y))^{1/T}). Under a channel whose matrices are symmetric (no
    noise, uniform slip, DNA synthesis) a realised proposal is as likely as its reverse, so at T = 1 the states settle
    at R/Z exactly; under any other channel only nearly. No gradient is taken.

    The policy that is evaluated is a list of designs to make: a state of the second half is taken uniformly and
    intended as it is.

    Attributes:
        states: where the chains are, [num_chains, L].
        scores: their scores, float64, [num_chains].
        kept: states after the burn-in.
    """

    learner: SequenceLearner
    # a state keeps the measurement it was accepted with: a pseudo-marginal chain (Andrieu and Roberts 2009)
    reward_mean = ARITHMETIC
    reads_dynamics = False  # what came is accepted or not, whatever was meant

    def __init__(self, learner: SequenceLearner) -> None:
        super().__init__(learner)
        network, config = learner.network, learner.config.chains
        self.states = torch.empty(0, network.length, dtype=torch.int64)
        self.scores = torch.empty(0, dtype=torch.float64)
        self.kept = Reservoir(config.kept, network.length)

    def sampler(self, batch_size: int) -> Sampler:
        """Proposals for the chains there are; a chain that has not begun intends anything."""
        network, generator = self.learner.network, self.learner.generators["policy"]
        begun = self.states[:batch_size]
        shape = (batch_size - len(begun), network.length)
        anything = torch.randint(network.num_tokens, shape, generator=generator)
        return OpenLoopSampler(torch.cat([self.propose(begun, generator), anything]), network.num_tokens)

    def updates(self, fresh: Trajectories, step: int, progress: float) -> Iterator[Terms]:
        before, scores = self.states[: len(fresh)], self.scores[: len(fresh)]
        num_begun = len(before)
        realised, made = fresh.outcomes[:num_begun], fresh.scores[:num_begun]
        reward = self.learner.reward
        gains = reward.log_reward(made, step) - reward.log_reward(scores, step)
        log_ratios = gains / self.temperature(progress) + self.log_correction(before, realised)
        moves = accepted(log_ratios, self.learner.generators["replay"])
        states = torch.where(moves.unsqueeze(-1), realised, before)
        self.states = torch.cat([states, fresh.outcomes[num_begun:], self.states[len(fresh) :]])
        self.scores = torch.cat([torch.where(moves, made, scores), fresh.scores[num_begun:], self.scores[len(fresh) :]])
        config = self.learner.config.chains
        if progress >= config.burn_in:
            self.kept.add(self.states[: len(fresh)], self.learner.generators["replay"])
        improved = moves & (gains > 0)
        yield from self.learn(before[improved], realised[improved])

    def temperature(self, progress: float) -> float:
        """T, from `chains.heat` down to 1 at the end of the burn-in."""
        config = self.learner.config.chains
        left = max(0.0, 1.0 - progress / config.burn_in) if config.burn_in else 0.0
        return 1.0 + (config.heat - 1.0) * left

    def propose(self, states: Tensor, generator: torch.Generator) -> Tensor:
        """What to intend next, [num, L]."""
        return one_letter_changed(states, self.learner.network.num_tokens, generator)

    def log_correction(self, before: Tensor, realised: Tensor) -> Tensor:
        """log q(y|x) − log q(x|y) of the way back and the way there, [num]."""
        return torch.zeros(len(before), dtype=torch.float64)

    def learn(self, before: Tensor, after: Tensor) -> Iterator[Terms]:
        """Loss terms from the moves that raised the reward, [num_improved, L] each; none here."""
        yield from ()

    def policy(self) -> Policy:
        """The states kept, those of the moment during the burn-in, and uniform intentions before the first step."""
        designs = self._designs()
        return OpenLoopPolicy(designs, self.learner.network.num_tokens) if len(designs) else super().policy()

    def log_z(self) -> float:
        """L·log K − log mean 1/R over the states: under R/Z the mean of 1/R is K^L/Z."""
        designs, network = self._designs(), self.learner.network
        if not len(designs):
            return self.learner.network.root_log_flow()
        log_rewards = self.learner.reward.log_reward(self.learner.memory.lookup(designs))
        return network.length * math.log(network.num_tokens) - float(log_mean_exp(-log_rewards))

    def state_dict(self) -> dict[str, Tensor]:
        return {
            **{f"own.{name}": tensor for name, tensor in self.own.state_dict().items()},
            "states": self.states,
            "scores": self.scores,
            "kept": self.kept.rows,
            "num_seen": torch.tensor(self.kept.num_seen),
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        own = {name.removeprefix("own."): tensor for name, tensor in state.items() if name.startswith("own.")}
        self.own.load_state_dict(own)
        self.states, self.scores = state["states"], state["scores"]
        self.kept.rows, self.kept.num_seen = state["kept"], int(state["num_seen"])

    def _designs(self) -> Tensor:
        return self.kept.rows.long() if len(self.kept.rows) else self.states

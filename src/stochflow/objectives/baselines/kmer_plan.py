"""The exact plan on a model of the score that is a sum over k-mers: no network, no gradient, no search.

A ridge regression on position-specific k-mers predicts log R as a sum along a finite automaton whose state is the
position and the last k − 1 letters. The best policy under the learned channel and the J that it expects are then exact
by dynamic programming over L·K^(k−1) states, at any length: the soft backward recursion of maximum-entropy control
(Ziebart 2010) with the entropy of outcomes in the place of that of intentions.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from scipy import sparse
from torch import Tensor

from stochflow.core.errors import ConfigError
from stochflow.environments.channels import Channel, positional
from stochflow.environments.sequences.score_automaton import ScoreAutomaton
from stochflow.models.base import Sampler
from stochflow.objectives.base import ARITHMETIC, Objective, Terms
from stochflow.objectives.learners import SequenceLearner
from stochflow.objectives.planning.plan import PLAN_TOLERANCE
from stochflow.sampling.policies import MarkovPolicy, MarkovSampler, Policy
from stochflow.sampling.trajectories import Trajectories
from stochflow.surrogates.base import window_rows
from stochflow.truth.automaton import AutomatonOptimum, AutomatonReward, automaton_optimum

_MAX_KMERS = 4096  # of one position
_MAX_ENTRIES = 2**25  # of a dense matrix, rows × weights or rows × rows: 256 megabytes
_PENALTIES = [4.0**power for power in range(-4, 7)]
_LEAST = 1e-9  # of the largest eigenvalue: those below it are rounding


class Kmers:
    """The k-mers of at most `longest` letters that end at each position, every one with a number of its own.

    >>> kmers = Kmers(2, 3, longest=2)
    >>> kmers.design(torch.tensor([[0, 1, 1]])).indices.tolist()  # 0, 1 and 01, 1 and 11
    [0, 7, 9, 13, 17]
    """

    def __init__(self, num_tokens: int, length: int, longest: int) -> None:
        self.num_tokens, self.length = num_tokens, length
        self.longest = max(k for k in range(1, min(longest, length) + 1) if k == 1 or num_tokens**k <= _MAX_KMERS)
        self._sizes = [num_tokens**k for k in range(1, self.longest + 1)]
        self.num = length * sum(self._sizes)

    def _numbers(self, position: int, windows: Tensor) -> Tensor:
        """Numbers of the k-mers that end at a position, from its last letters as one code; [n] → [n, k-mers]."""
        first, found = position * sum(self._sizes), []
        for size in self._sizes[: position + 1]:
            found.append(first + windows % size)
            first += size
        return torch.stack(found, dim=1)

    def design(self, tokens: Tensor) -> sparse.csr_matrix:
        """One in the columns of the k-mers of each sequence; [n, L] → [n, num]."""
        windows, columns = torch.zeros(len(tokens), dtype=torch.int64), []
        for position, letters in enumerate(tokens.T):
            windows = (windows * self.num_tokens + letters) % self._sizes[-1]
            columns.append(self._numbers(position, windows))
        numbers = torch.cat(columns, dim=1)
        rows = torch.arange(len(tokens) + 1) * numbers.shape[1]
        ones = torch.ones(numbers.numel(), dtype=torch.float64)
        return sparse.csr_matrix((ones.numpy(), numbers.flatten().numpy(), rows.numpy()), (len(tokens), self.num))

    def automaton(self, weights: Tensor, constant: float) -> AutomatonReward:
        """log R = constant + Σ weights of k-mers as a sum along the automaton of (position, last letters)."""
        sizes = [min(self.num_tokens**position, self._sizes[-1] // self.num_tokens) for position in range(self.length)]
        transitions, steps, first = [], [], 0
        for position, (size, following) in enumerate(zip(sizes, [*sizes[1:], 1], strict=True)):
            windows, first = torch.arange(size * self.num_tokens), first + size
            transitions.append(first + windows % following)
            steps.append(weights[self._numbers(position, windows)].sum(dim=1))
        end = torch.full((self.num_tokens,), first)
        shape = (first + 1, self.num_tokens)
        automaton = ScoreAutomaton(torch.cat([*transitions, end]).view(shape), torch.ones(shape[0]).double())
        terminal = torch.full((shape[0],), constant, dtype=torch.float64)
        return AutomatonReward(automaton, terminal, torch.cat([*steps, end.new_zeros(end.shape).double()]).view(shape))


class Ridge(NamedTuple):
    """A ridge regression y ≈ mean + Xw whose penalty has the smallest leave-one-out error.

    Attributes:
        weights: w, float64, [num].
        mean: of y.
        r_squared: 1 − squared leave-one-out error / variance; at least zero, and zero where all y are equal.
    """

    weights: Tensor
    mean: float
    r_squared: float


def fit_ridge(design: sparse.csr_matrix, targets: Tensor) -> Ridge:
    """Fit by one eigendecomposition for all penalties, of XᵀX or XXᵀ, whichever is smaller; [n, num], [n].

    The error of a row that is left out is its residual over one minus its leverage.
    """
    mean = float(targets.mean())
    centred = targets - mean
    wide = design.shape[0] <= design.shape[1]
    values, vectors = torch.linalg.eigh(torch.from_numpy((design @ design.T if wide else design.T @ design).toarray()))
    kept = values > _LEAST * values[-1]
    values, vectors = values[kept], vectors[:, kept]
    left = (
        vectors if wide else torch.from_numpy(design @ vectors.numpy()) / values.sqrt()
    )  # singular vectors, [n, rank]
    projected, squares = left.T @ centred, left.square()

    def squared_error(penalty: float) -> float:
        shares = values / (values + penalty)
        return float(((centred - left @ (shares * projected)) / (1.0 - squares @ shares)).square().sum())

    errors = {penalty: squared_error(penalty) for penalty in _PENALTIES}
    penalty = min(errors, key=errors.__getitem__)
    weights = torch.from_numpy(design.T @ (left @ (projected / (values + penalty))).numpy())
    total = float(centred.square().sum())
    return Ridge(weights, mean, max(0.0, 1.0 - errors[penalty] / total) if total > 0.0 else 0.0)


class KmerPlan(Objective):
    """Intends by the exact plan on a k-mer model of everything that was paid for.

    Whenever enough has been paid (`plan.growth`, `plan.every`) log R is regressed on the k-mers of up to `plan.kmer`
    letters, and planned on with P̂. Batches are drawn from a plan whose log R is multiplied by the R² of held-out
    designs: as long as the model predicts nothing, intentions are uniform. The policy that is evaluated is the plan
    itself: KL(P_π‖R/Z) is linear in log R, so under uncertainty its minimiser is that of the expected log R, and an
    expectation is what a ridge regression is.

    Attributes:
        policies: π(a|t, last letters) of the plan, [K^m, K] per position; empty before the first one.
        behaviour: the same of the plan that batches are drawn from.
        value: V(root) of the plan: the J that it expects.
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
        self.kmers = Kmers(network.num_tokens, network.length, learner.config.plan.kmer)
        self.policies: list[Tensor] = []
        self.behaviour: list[Tensor] = []
        self.value, self._planned_at, self._num_planned = 0.0, 0.0, 0

    def sampler(self, batch_size: int) -> Sampler:
        """The tempered plan; uniform intentions, those of a network that is never trained, before the first one."""
        if not self.behaviour:
            return super().sampler(batch_size)
        return MarkovSampler(MarkovPolicy(self.behaviour, self.learner.network.mask), batch_size)

    def updates(self, fresh: Trajectories, step: int, progress: float) -> Iterator[Terms]:
        config, num_paid = self.learner.config.plan, len(self.learner.memory)
        # the distance either way: progress falls when a resumed run is given a larger budget
        late = abs(progress - self._planned_at) >= config.every
        if num_paid and (late or num_paid > config.growth * self._num_planned):
            self.replan()
            self._planned_at, self._num_planned = progress, num_paid
        yield from ()

    def replan(self) -> None:
        """Fit the model to what was paid for, and plan on it twice: for evaluation, and for the next batches."""
        model = self._fit()
        plan = self._plan(model.weights, model.mean)
        self.policies, self.value = plan.policies, plan.value
        self.behaviour = self._plan(model.r_squared * model.weights, model.mean).policies

    def _fit(self) -> Ridge:
        sequences, scores = self.learner.paid()
        size = max(_MAX_ENTRIES // self.kmers.num, math.isqrt(_MAX_ENTRIES))
        rows = window_rows(scores, size)
        return fit_ridge(self.kmers.design(sequences[rows]), self.learner.reward.log_reward(scores[rows]))

    def _plan(self, weights: Tensor, constant: float) -> AutomatonOptimum:
        rewards = self.kmers.automaton(weights, constant)
        return automaton_optimum(rewards, self._believed(), self.kmers.length, PLAN_TOLERANCE)

    def _believed(self) -> Channel:
        """P̂ as a channel: one matrix per position."""
        anything = torch.zeros(1, self.kmers.length, dtype=torch.int64)
        matrices = self.learner.log_dynamics_of(anything)[0].double().cpu().exp()
        return positional(matrices / matrices.sum(dim=-1, keepdim=True), "learned")

    def policy(self) -> Policy:
        """The plan, and uniform intentions before the first one."""
        return MarkovPolicy(self.policies, self.learner.network.mask) if self.policies else super().policy()

    def log_z(self) -> float:
        """V(root) of the plan; as far as the model is right, log Z minus the smallest reachable KL."""
        return self.value if self.policies else super().log_z()

    def state_dict(self) -> dict[str, Tensor]:
        numbers = torch.tensor([self.value, self._planned_at, self._num_planned], dtype=torch.float64)
        levels = {"plan": self.policies, "behaviour": self.behaviour}
        tables = {f"{name}.{t}": table for name, tables in levels.items() for t, table in enumerate(tables)}
        return {"numbers": numbers, **tables}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.value, self._planned_at, num_planned = state["numbers"].tolist()
        self._num_planned = int(num_planned)
        positions = range(self.kmers.length) if "plan.0" in state else ()
        self.policies, self.behaviour = ([state[f"{name}.{t}"] for t in positions] for name in ("plan", "behaviour"))

"""Trajectory balance on a proxy of the score: a surrogate scores most designs, and one batch a round is paid for.

Where the policy draws all letters it is GFlowNet active learning (Jain et al. 2022, arXiv:2203.04115); where it draws
some letters of good designs, δ-conservative search (Kim et al. 2024, arXiv:2410.04461).
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from stochflow.core.errors import ConfigError
from stochflow.environments.channels import noiseless
from stochflow.environments.sequences.environment import SequenceEnvironment
from stochflow.environments.sequences.task import MAX_SCORE
from stochflow.models.base import Sampler
from stochflow.objectives.base import ARITHMETIC, Terms
from stochflow.objectives.imagined_kl import BelievedEnvironment, with_prefix
from stochflow.objectives.learners import SequenceLearner
from stochflow.objectives.trajectory_balance import TrajectoryBalance
from stochflow.sampling.policies import KeptLetters
from stochflow.sampling.rollout import Exploration, Walk, rollout
from stochflow.sampling.trajectories import Trajectories
from stochflow.surrogates.base import Surrogate
from stochflow.surrogates.gaussian_process import GaussianProcess
from stochflow.surrogates.letter_distances import letter_distance

_RANK_SHIFT = 0.01
_SHORT = 50
_DELTA_SHORT, _DELTA_LONG = 0.5, 0.05


def rank_weights(scores: Tensor) -> Tensor:
    """1/(0.01·n + rank), the best of n having rank 0; [n] → float64, [n].

    Weighted retraining (Tripp et al. 2020): how often a paid design is searched around, whatever the scale of scores.

    >>> rank_weights(torch.tensor([0.1, 0.9])).round(decimals=2)
    tensor([ 0.9800, 50.0000], dtype=torch.float64)
    """
    ranks = torch.empty(len(scores), dtype=torch.float64)
    ranks[scores.argsort(descending=True, stable=True)] = torch.arange(len(scores), dtype=torch.float64)
    return 1.0 / (_RANK_SHIFT * len(scores) + ranks)


class ProxyBalance(TrajectoryBalance):
    """Trajectory balance whose rewards are mostly a surrogate's.

    A round is a training step: a batch is paid for, the surrogate is fitted to all paid scores, and the policy learns
    from paid trajectories and from walks that cost nothing. Such a walk takes a paid design, the better the more often,
    draws each letter anew from the policy with probability δ and intends the others; its score is the upper confidence
    bound mean + κ·deviation of the surrogate. At δ = 1 it is a rollout of the policy. The next calls are the best of
    many such walks, by the same bound, that were never paid for.

    δ is the same for all designs: the paper lowers it where the proxy is uncertain of a design, and a Gaussian process
    is nearly certain of all that was paid for. Free walks are without noise where the realised path is balanced, which
    takes outcomes for intentions, and go through P̂ where the intended path is. A chosen design is intended letter by
    letter, and the world makes of it what it makes.

    Attributes:
        surrogate: a regression model of the score.
        num_fitted: oracle calls when it was fitted; 0 before.
    """

    learner: SequenceLearner
    reward_mean = ARITHMETIC  # paid scores are the memory's means of R, for the surrogate and for the balance

    def __init__(self, learner: SequenceLearner) -> None:
        super().__init__(learner)
        network = learner.network
        if self.reads_dynamics and learner.dynamics.sees_state:
            raise ConfigError(
                f"free walks of {learner.config.method} need a P̂ that does not see the prefix; set dynamics.depends_on "
                "to position, or objective.path to realised"
            )
        self._config, self._length = learner.config.search, network.length
        self._exploration = Exploration(**learner.config.exploration.model_dump())
        # log R is a multiple of the log score, so that is what has to be right
        self.surrogate: Surrogate = GaussianProcess(
            network.num_tokens, network.length, letter_distance(learner.environment.task), transform="log"
        )
        self.num_fitted = 0

    @property
    def delta(self) -> float:
        """δ, as set or by the length of designs."""
        default = _DELTA_SHORT if self._length <= _SHORT else _DELTA_LONG
        return default if self._config.delta is None else self._config.delta

    def sampler(self, batch_size: int) -> Sampler:
        """The policy in the first round, and then the calls that look best."""
        sampler = super().sampler(batch_size)
        if not self.num_fitted:
            return sampler
        designs = self.next_calls(batch_size)
        return KeptLetters(designs, torch.ones_like(designs).bool(), self.learner.network.num_tokens, sampler)

    def updates(self, fresh: Trajectories, step: int, progress: float) -> Iterator[Terms]:
        optimiser, share = self.learner.config.optimiser, self._config.paid_share
        if self.learner.memory.num_calls >= self._config.growth * self.num_fitted:
            self.fit()
        for update in range(optimiser.updates):
            if not update:
                batch = self._paid(fresh)
            elif int(update * share) > int((update - 1) * share):
                batch = self._paid(self.learner.replay.sample(len(fresh), self._generator))
            else:
                batch = self._scored(self.walk(optimiser.batch_size, self._exploration))
            yield self.terms(batch, step)

    def fit(self) -> None:
        """Fit the surrogate to all paid scores."""
        self.surrogate.fit(*self.learner.paid())
        self.num_fitted = self.learner.memory.num_calls

    def predicted(self, designs: Tensor) -> Tensor:
        """mean + κ·deviation of the score, zero where constraints are broken; [n, L] → [n]."""
        kappa, mask = self._config.kappa, self.learner.network.mask
        mean = self.surrogate.predict_mean
        scores = (self.surrogate.predict(designs).at(kappa) if kappa else mean(designs)).clamp(0.0, MAX_SCORE)
        return scores if mask is None else torch.where(mask.alive(designs), scores, 0.0)

    def walk(self, num: int, exploration: Exploration | None = None) -> Walk:
        """So many walks from paid designs whose letters are drawn anew with probability δ; nothing is paid for."""
        network, generator = self.learner.network, self._generator
        sampler = network.recording_sampler(num)
        if self.delta < 1.0:
            sequences, scores = self.learner.paid()
            rows = torch.multinomial(rank_weights(scores), num, replacement=True, generator=generator)
            kept = torch.rand(num, self._length, generator=generator) >= self.delta
            sampler = KeptLetters(sequences[rows], kept, network.num_tokens, sampler)
        streams = {"policy": generator, "channel": generator}
        return rollout(self._world(), sampler, num, streams, exploration, with_log_behaviour=False)

    def next_calls(self, num: int) -> Tensor:
        """Of many walks those with the best predicted scores, each once and what was never paid for first; [num, L]."""
        found = torch.cat([self.walk(num).outcomes for _ in range(self._config.candidates)]).unique(dim=0)
        unpaid = self.learner.memory.lookup(found).isnan()
        scores = torch.where(unpaid, self.predicted(found), -1.0)
        best = scores.argsort(descending=True, stable=True)
        return found[best[torch.arange(num) % len(best)]]

    def _world(self) -> SequenceEnvironment:
        """Where free walks are taken."""
        environment, num_tokens = self.learner.environment, self.learner.network.num_tokens
        if not self.reads_dynamics:
            return SequenceEnvironment(environment.task, noiseless(num_tokens))
        matrices = self.learner.log_dynamics_of(torch.zeros(1, self._length, dtype=torch.int64))[0].exp()
        return BelievedEnvironment(environment, matrices.double().cpu().numpy())

    def _scored(self, walk: Walk) -> Trajectories:
        scores = self.predicted(walk.outcomes)
        return Trajectories(walk.intentions, walk.outcomes, walk.valid, scores, walk.log_behaviour)

    def _paid(self, batch: Trajectories) -> Trajectories:
        """The same with remembered scores, which are means of several measurements where these are noisy."""
        return replace(batch, scores=self.learner.memory.lookup(batch.outcomes))

    @property
    def _generator(self) -> torch.Generator:
        return self.learner.generators["replay"]

    def state_dict(self) -> dict[str, Tensor]:
        state = {f"surrogate.{name}": value for name, value in self.surrogate.state_dict().items()}
        return state | {"num_fitted": torch.tensor(self.num_fitted)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.surrogate.load_state_dict(with_prefix(state, "surrogate."))
        self.num_fitted = int(state["num_fitted"])

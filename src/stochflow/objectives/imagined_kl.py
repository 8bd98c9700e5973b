"""KL to the reward of a surrogate: forward on designs of chains, reverse on rollouts through P̂. Nothing is paid for."""

import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor

from stochflow.core.logspace import log_marginal, pick
from stochflow.environments.base import Episodes, Ints, Streams
from stochflow.environments.sequences.environment import SequenceEnvironment
from stochflow.models.base import Sampler
from stochflow.models.evaluation import AlongPaths, Array, ClosedFormLoss
from stochflow.objectives.base import Terms
from stochflow.objectives.learners import SequenceLearner
from stochflow.objectives.path_gradients import PathOutputs, log_sum, silent
from stochflow.objectives.planning.order_values import OrderDraws
from stochflow.objectives.planning.surrogate_chains import SurrogateChains
from stochflow.sampling.policies import DesignsFirst
from stochflow.sampling.rollout import Walk, rollout
from stochflow.surrogates.base import Surrogate
from stochflow.surrogates.convolution import ConvolutionEnsemble
from stochflow.surrogates.ensemble import Ensemble
from stochflow.surrogates.gaussian_process import GaussianProcess
from stochflow.surrogates.letter_distances import letter_distance
from stochflow.surrogates.position_pairs import PositionPairEnsemble

_VALUE_WEIGHT = 0.01
# The gradient of log M in the logit of an intention is proportional to its probability, so one that was ruled out would
# get none, and noise excuses every letter that then never comes as intended.
_STRAYING = 0.01
_ORDER_DRAWS = 4  # outcomes by which an order is judged
_CHECK_EVERY = 8  # updates between two measurements of the held-out chains
_RISE = 0.5  # nats by which their cross-entropy may exceed its lowest value
_UNCOVERED = 3.0  # nats by which the cross-entropy of the chains may exceed the entropy of the policy


class BelievedEpisodes(Episodes):
    """Letters through P̂ instead of the world."""

    def __init__(self, matrices: Array, uniform: Array) -> None:
        """P̂(b|a) of every position, [L, K, K], and one random number per step, [L, batch]."""
        self._cumulative, self._uniform = matrices.cumsum(axis=-1), uniform

    def step(self, intentions: Ints, time: int) -> Ints:
        rows = self._cumulative[time][intentions]
        found: Ints = (rows[:, :-1] < self._uniform[time][:, None]).sum(axis=-1)
        return found


class BelievedEnvironment(SequenceEnvironment):
    """The learner's environment with P̂ in place of the channel, for rollouts that cost nothing."""

    def __init__(self, environment: SequenceEnvironment, matrices: Array) -> None:
        super().__init__(environment.task, environment.channel)
        self._matrices = matrices

    def begin(self, num: int, streams: Streams) -> Episodes:
        uniform = torch.rand(self.max_steps, num, generator=streams["channel"], dtype=torch.float64)
        return BelievedEpisodes(self._matrices, uniform.numpy())


class ImaginedKL:
    """Losses on designs that a surrogate has scored, and which designs to pay for next.

    Forward KL, −E[log P_π(x)] over designs drawn from the surrogate's R/Z, keeps all their modes; reverse KL,
    E_π[log P_π(x) − log R(x)] over rollouts through P̂, is the divergence that counts, and sharpens them. Both integrate
    the intention out: log P_π(x) = Σ_t log M(x_t|s_t).

    Attributes:
        surrogate: regression models of the score, fitted to all that was paid for; the one that foresaw best speaks.
        chains: Metropolis chains on its reward.
    """

    def __init__(self, learner: SequenceLearner) -> None:
        num_tokens, length = learner.network.num_tokens, learner.network.length
        self._learner, self._config = learner, learner.config.imagination
        distance = letter_distance(learner.environment.task)
        # log R is a multiple of the log score, so that is what has to be right
        self.surrogate = Ensemble(
            {
                "gaussian-process": GaussianProcess(num_tokens, length, distance, transform="log"),
                "convolution": ConvolutionEnsemble(num_tokens, length, distance, transform="log"),
                "position-pairs": PositionPairEnsemble(num_tokens, length, distance, transform="log"),
            },
            mode="foresee",
        )
        self.chains = SurrogateChains(self._config, distance, length)
        self._best = 0.0
        self._draws: OrderDraws | None = None  # of what comes of orders, since the last fit
        # with other rules for every prefix, or a P̂ that sees it, an imagined rollout would not be the policy's
        can_imagine = learner.network.mask is None and not learner.dynamics.sees_state
        self._reverse, self._num_repairs = (self._config.reverse, self._config.num_repairs) if can_imagine else (0.0, 0)

    def refresh(self) -> None:
        """Fit the surrogate to all paid scores and let the chains walk on it."""
        if self._learner.environment.ordered:
            shape = (_ORDER_DRAWS, self._learner.network.length)
            self._draws = OrderDraws(torch.rand(shape, generator=self._generator, dtype=torch.float64))
        sequences, scores = self._learner.paid()
        self.surrogate.fit(sequences, scores)
        self._best = float(scores.max())
        log_rewards = self._learner.reward.log_reward(scores)
        drawn = self._imagined(self._num_repairs).outcomes if self._num_repairs else sequences[:0]
        self.chains.refresh(sequences, log_rewards, self.log_reward, drawn, self._generator)

    def log_reward(self, tokens: Tensor) -> Tensor:
        """log R of the predicted scores, none better than the best that was paid for; [n, L] → [n].

        Of orders it is the mean of log R over what P̂ makes of them.
        """
        return self._over_outcomes(self._log_reward_of, tokens)

    def _over_outcomes(self, figure: Callable[[Tensor], Tensor], tokens: Tensor) -> Tensor:
        """A figure of designs, or its mean over the outcomes of orders; [n, L] → [n]."""
        if self._draws is None:
            return figure(tokens)
        return self._draws.mean(figure, tokens, self._learner.believed_channel())

    def _log_reward_of(self, tokens: Tensor) -> Tensor:
        learner = self._learner
        scores = self.surrogate.predict_mean(learner.memory.canonical(tokens)).clamp(0.0, self._best)
        log_rewards = learner.log_rewards_of(tokens, scores)
        if learner.network.mask is None:
            return log_rewards
        return torch.where(learner.network.mask.alive(tokens), log_rewards, math.log(learner.reward.floor))

    def predicted(self, tokens: Tensor, surrogate: Surrogate | None = None) -> Tensor:
        """Predicted score; −∞ if it breaks a constraint. [n, L] → [n]."""
        return self._over_outcomes(partial(self._predicted_of, surrogate=surrogate), tokens)

    def _predicted_of(self, tokens: Tensor, surrogate: Surrogate | None) -> Tensor:
        scores = (surrogate or self.surrogate).predict_mean(self._learner.memory.canonical(tokens))
        return self._where_alive(tokens, scores)

    def promise(self, tokens: Tensor, surrogate: Surrogate | None = None) -> Tensor:
        """Score that a design may have, `optimism` deviations above its prediction; −∞ if it breaks a constraint.

        Args:
            surrogate: that predicts; the one that foresaw best unless given.
        """
        return self._over_outcomes(partial(self._promise_of, surrogate=surrogate), tokens)

    def _promise_of(self, tokens: Tensor, surrogate: Surrogate | None) -> Tensor:
        learner = self._learner
        prediction = (surrogate or self.surrogate).predict(learner.memory.canonical(tokens))
        return self._where_alive(tokens, prediction.at(self._config.optimism))

    def _where_alive(self, tokens: Tensor, scores: Tensor) -> Tensor:
        mask = self._learner.network.mask
        return scores if mask is None else torch.where(mask.alive(tokens), scores, -math.inf)

    def updates(self, num: int) -> Iterator[Terms]:
        """Terms of so many updates; reverse KL in its share of them, while the policy covers what the chains visit.

        What a policy has left out becomes ever rarer by reverse KL. It shows in the designs of the chains, which are
        then less probable under the policy than its own draws; forward KL brings them back.

        Chains that have hardly mixed are a few hundred designs, which a network can learn by heart. Some are held out,
        and when these become less probable the updates end.
        """
        share, rows = self._reverse, self._config.rows
        quality = self.surrogate.quality
        told = {"surrogate_r2": quality.arrived_r_squared, "surrogate_coverage": quality.arrived_coverage}
        told = {name: value for name, value in told.items() if math.isfinite(value)}
        told |= {f"surrogate_{name.replace('-', '_')}": weight for name, weight in quality.weights.items()}
        cross_entropy = lowest = math.inf  # of the chains' designs under the policy
        for update in range(num):
            if update % _CHECK_EVERY == 0:
                held_out = self._cross_entropy(self.chains.held_out)
                if held_out > lowest + _RISE:
                    return
                lowest = min(lowest, held_out)
                told["held_out_cross_entropy"] = held_out
            if int((update + 1) * share) > int(update * share):
                terms = self.reverse_terms(rows // 2)
                if cross_entropy <= terms["imagined_entropy"] + _UNCOVERED:
                    yield {**terms, **told}
                    continue
            terms = self.forward_terms(*self.chains.draw(rows, self._generator))
            cross_entropy = float(terms.get("chain_cross_entropy", math.inf))
            yield {**terms, **told}

    @torch.no_grad()
    def _cross_entropy(self, designs: Tensor) -> float:
        """Mean of −log P_π(x); [n, L]."""
        learner = self._learner
        heads = learner.network.evaluate(AlongPaths(designs, torch.ones_like(designs, dtype=torch.bool))).heads()
        log_probs = pick(log_marginal(heads.log_policy, learner.log_dynamics_of(designs)), designs.to(learner.device))
        return -float(log_probs.sum(dim=-1).mean())

    def sampler(self, num_near: int, rest: Sampler) -> Sampler:
        """Intends designs near the best paid ones in the first rows, and what `rest` says in the others.

        What the other surrogates believe is tested too, in a share of these designs: where only the one that foresaw
        best is followed, nothing arrives that it has not foreseen.
        """
        others = self.surrogate.unused
        num_tests = int(self._config.doubt * num_near) // max(len(others), 1)
        sizes = [num_near - num_tests * len(others), *(num_tests for _ in others)]
        judges = zip(sizes, [self.surrogate, *others], strict=True)
        designs = torch.cat([self._near(size, judge) for size, judge in judges])
        return DesignsFirst(designs, self._learner.network.num_tokens, rest)

    def _near(self, num: int, judge: Surrogate) -> Tensor:
        """Designs that one of the surrogates believes in, [num, L]."""
        predicted, promise = (partial(each, surrogate=judge) for each in (self.predicted, self.promise))
        return self.chains.near_parents(num, predicted, promise, self._generator)

    @property
    def _generator(self) -> torch.Generator:
        return self._learner.generators["replay"]

    def state_dict(self) -> dict[str, Tensor]:
        parts = {"surrogate": self.surrogate.state_dict(), "chains": self.chains.state_dict()}
        state = {f"{part}.{name}": value for part, values in parts.items() for name, value in values.items()}
        state |= {"best": torch.tensor(self._best, dtype=torch.float64)}
        return state if self._draws is None else state | {"draws": self._draws.uniform}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.surrogate.load_state_dict(with_prefix(state, "surrogate."))
        self.chains.load_state_dict(with_prefix(state, "chains."))
        self._best = float(state["best"])
        self._draws = OrderDraws(state["draws"]) if "draws" in state else None

    def forward_terms(self, designs: Tensor, given: Tensor) -> Terms:
        """Forward KL of what was drawn, up to its entropy; [n, L], and how many letters of each were given, [n]."""
        learner = self._learner
        evaluation = learner.network.evaluate(AlongPaths(designs, torch.ones_like(designs, dtype=torch.bool)))
        if learner.network.mask is not None:
            log_policy = evaluation.heads().log_policy
            log_probs = pick(log_marginal(log_policy, learner.log_dynamics_of(designs)), designs.to(learner.device))
            drawn = torch.arange(designs.shape[1]) >= given.unsqueeze(1)
            negative = -(log_probs * drawn.to(learner.device)).sum(dim=-1).mean()
            return {"loss": negative, "forward_kl_loss": negative.detach()}
        outputs = PathOutputs(evaluation.outputs(), learner.network.num_tokens, designs.shape[1])
        log_marginals, choice = self._marginals(outputs, designs, _STRAYING)
        free = np.arange(designs.shape[1]) >= given.numpy()[:, None]
        coefficient = np.where(free, log_marginals.dtype.type(-1.0 / len(designs)), log_marginals.dtype.type(0.0))
        outputs.add_grad_forward(coefficient, choice)
        loss, whole = float((coefficient * log_marginals).sum()), given.numpy() == 0
        told = {"chain_cross_entropy": -float(log_marginals[whole].sum(axis=1).mean())} if whole.any() else {}
        return {"loss": ClosedFormLoss.of(loss, evaluation, outputs.gradient), "forward_kl_loss": loss, **told}

    def reverse_terms(self, num: int) -> Terms:
        """Reverse KL by the policy gradient with log F as baseline, on so many rollouts through P̂.

        What remains after step t is G_t = log R(x) − Σ_{u ≥ t} log M(x_u|s_u); its mean is the soft value of s_t, which
        the flow head learns, and G_t − log F(s_t) weighs the gradient of log M(x_t|s_t).
        """
        learner = self._learner
        walk = self._imagined(num)
        evaluation = learner.network.evaluate(AlongPaths(walk.outcomes, walk.valid))
        outputs = PathOutputs(evaluation.outputs(), learner.network.num_tokens, walk.outcomes.shape[1])
        log_marginals, choice = self._marginals(outputs, walk.outcomes)
        log_rewards = self.log_reward(walk.outcomes).float().numpy()
        to_go = log_rewards[:, None] - np.cumsum(log_marginals[:, ::-1], axis=1)[:, ::-1]
        gains = to_go - outputs.log_flow
        errors = -gains
        gains = gains - gains.mean(axis=0)
        gains /= max(float(gains.std()), 1.0)
        outputs.add_grad_forward(-gains / num, choice)
        outputs.add_grad_flow((2.0 * _VALUE_WEIGHT / errors.size) * errors)
        residual = to_go[:, 0]
        return {
            "loss": ClosedFormLoss.of(-float(residual.mean()), evaluation, outputs.gradient),
            "imagined_j": float(residual.mean()),
            "imagined_entropy": float((residual - log_rewards).mean()),
        }

    def _imagined(self, num: int) -> Walk:
        """Rollouts of the policy through P̂."""
        learner = self._learner
        matrices = learner.log_dynamics_of(torch.zeros(1, learner.network.length, dtype=torch.int64))[0].exp()
        world = BelievedEnvironment(learner.environment, matrices.double().cpu().numpy())
        sampler = learner.network.recording_sampler(num)
        streams = {"policy": self._generator, "channel": self._generator}
        return rollout(world, sampler, num, streams, with_log_behaviour=False)

    @silent()
    def _marginals(self, outputs: PathOutputs, outcomes: Tensor, straying: float = 0.0) -> tuple[Array, Array]:
        """log M(x_t|s_t), [n, L], and the posterior of the intention given what came, [n, L, K].

        Args:
            straying: share of uniform intentions in the prior of that posterior.
        """
        log_matrices = self._learner.log_dynamics_of(outcomes).cpu().numpy()
        log_policy, log_likelihood = outputs.log_policy, outputs.log_likelihood(log_matrices, outcomes.numpy())
        joint = log_policy + log_likelihood
        log_marginals = total = log_sum(joint)
        if straying:
            joint = np.logaddexp(log_policy, math.log(straying / log_policy.shape[-1])) + log_likelihood
            total = log_sum(joint)
        return log_marginals, np.exp(joint - total[..., None])


def with_prefix(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The part of a state whose names begin like this, without it."""
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}

"""Fitting of the dynamics model P̂ to observed transitions, once per training step."""

from collections.abc import Iterator
from typing import Protocol

from stochflow.config.schema import DynamicsConfig
from stochflow.core.arrays import Bools
from stochflow.core.logspace import safe_log
from stochflow.environments.graphs.environment import nodes_on
from stochflow.models.dynamics.counted import KnownGraphDynamics
from stochflow.models.dynamics.tabular import (
    Codes,
    DynamicsModel,
    dynamics_cross_entropy,
    transition_codes,
    transition_counts,
)
from stochflow.models.dynamics.tabular_fit import TableAdam
from stochflow.objectives.learners import GraphLearner, SequenceLearner
from stochflow.sampling.trajectories import Trajectories
from stochflow.training.optimizer import FlatAdam, Record, State, finite_numbers

_FINAL_SHARE = 0.1
_MAX_COUNTS = 2**22  # transition counts, or steps to count, at once: tens of megabytes


def dynamics_learning_rate(config: DynamicsConfig, progress: float) -> float:
    """Falls linearly to a tenth."""
    return config.learning_rate * (1.0 - (1.0 - _FINAL_SHARE) * progress)


class DynamicsFitter(Protocol):
    """Learns P̂ from what was observed, once per training step.

    Attributes:
        idle: True where nothing is learned of the world.
    """

    idle: bool

    def fit(self, fresh: Trajectories, progress: float) -> Record:
        """Learn from a fresh batch; what is said of it, or nothing where P̂ is not learned."""

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State, /) -> None: ...


class CountingFitter:
    """Counts the transitions of a graph."""

    idle = False

    def __init__(self, learner: GraphLearner) -> None:
        self._learner = learner

    def fit(self, fresh: Trajectories, progress: float) -> Record:
        """Count the steps of the batch, after the cross-entropy of P̂ on them as it was before; none if P̂ is known."""
        dynamics, valid = self._learner.dynamics, fresh.valid
        if isinstance(dynamics, KnownGraphDynamics):
            return {}
        states = nodes_on(self._learner.environment.graph, fresh.outcomes, valid)[:, :-1]
        seen = (states[valid], fresh.intentions[valid], fresh.outcomes[valid])
        loss = -float(safe_log(dynamics.table()[seen]).mean())
        dynamics.observe(*seen)
        return {"forward_dynamics_loss": loss}

    def state_dict(self) -> State:
        """The counts are a part of the model."""
        return {}

    def load_state_dict(self, state: State) -> None:
        """Nothing to restore."""


class GradientFitter:
    """Cross-entropy of P̂ on observed (s, a, s'), with an optimiser of its own; nothing where P̂ is `idle`."""

    def __init__(self, learner: SequenceLearner, config: DynamicsConfig, idle: bool = False) -> None:
        self._learner, self._config, self.idle = learner, config, idle
        self._optimizer: FlatAdam | TableAdam | None = None
        model = learner.dynamics
        if isinstance(model, DynamicsModel) and not idle:
            parameters = list(model.parameters())
            self._optimizer = TableAdam(model, config.clip) if model.tabular else FlatAdam(parameters, config.clip)
            if model.tabular and config.off_policy:
                learner.replay.encode(learner.network.num_tokens)

    def fit(self, fresh: Trajectories, progress: float) -> Record:
        """One update on the fresh batch, or `rounds` on draws from the replay buffer.

        The first batch says with which probability an intention comes as it is, and P̂ starts from there.
        """
        model = self._learner.dynamics
        if self._optimizer is None or not isinstance(model, DynamicsModel):
            return {}
        if model.untouched:
            came, steps = fresh.intentions == fresh.outcomes, int(fresh.valid.sum())
            model.start((int((came & fresh.valid).sum()) + 1) / (steps + 2))
        learning_rate = dynamics_learning_rate(self._config, progress)
        losses: list[float] = []
        if isinstance(self._optimizer, TableAdam):
            for drawn in self.codes(fresh):
                counts = transition_counts(*drawn, self._learner.network.num_tokens)
                losses += self._optimizer.fit(counts, learning_rate).tolist()
        else:
            losses = [self._update(batch, self._optimizer, learning_rate) for batch in self._batches(fresh)]
        loss = sum(losses) / len(losses)
        return finite_numbers({"forward_dynamics_loss": loss})

    def codes(self, fresh: Trajectories) -> Iterator[tuple[Codes, Bools | None]]:
        """What `transition_counts` is to count in the rounds of a step, as many at once as memory allows."""
        config, learner = self._config, self._learner
        num_tokens = learner.network.num_tokens
        if not config.off_policy:
            intentions, outcomes, valid = (each.numpy() for each in (fresh.intentions, fresh.outcomes, fresh.valid))
            yield transition_codes(intentions, outcomes, num_tokens)[None], valid[None]
            return
        entries = learner.network.length * max(num_tokens**2, config.sample_size)
        block = max(1, _MAX_COUNTS // entries)
        for done in range(0, config.rounds, block):
            rounds = min(block, config.rounds - done)
            yield learner.replay.sample_codes(rounds, config.sample_size, learner.generators["replay"])

    def _update(self, batch: Trajectories, optimizer: FlatAdam, learning_rate: float) -> float:
        """One update by automatic differentiation; the loss before it."""
        learner = self._learner
        intentions, outcomes = batch.intentions.to(learner.device), batch.outcomes.to(learner.device)
        loss = dynamics_cross_entropy(
            learner.dynamics.log_matrices(outcomes, intentions=intentions),
            intentions,
            outcomes,
            batch.valid.to(learner.device),
        )
        optimizer.step(loss, learning_rate)
        return float(loss.detach())

    def _batches(self, fresh: Trajectories) -> Iterator[Trajectories]:
        if not self._config.off_policy:
            yield fresh
            return
        reads_history = self._learner.network.reads_history
        for _ in range(self._config.history_rounds if reads_history else self._config.rounds):
            yield self._learner.replay.sample(self._config.sample_size, self._learner.generators["replay"])

    def state_dict(self) -> State:
        return {} if self._optimizer is None else self._optimizer.state_dict()

    def load_state_dict(self, state: State) -> None:
        if self._optimizer is not None:
            self._optimizer.load_state_dict(state)

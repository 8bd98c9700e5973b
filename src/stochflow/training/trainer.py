"""The training loop: sample → fit the dynamics → objective → step → record."""

import math
import time
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from stochflow.config.schema import OptimiserConfig
from stochflow.models.base import Sampler
from stochflow.objectives.base import Learner, Objective, Terms
from stochflow.sampling.rollout import Exploration, Walk, rollout
from stochflow.sampling.trajectories import Trajectories, no_trajectories
from stochflow.training.dynamics_fitter import DynamicsFitter
from stochflow.training.optimizer import FlatAdam, Record, State, learning_rate_factor, require_finite

# a budget of oracle calls ends after so many steps in a row without a new design: perhaps there are no more
MAX_IDLE_STEPS = 100


class Stateful(Protocol):
    """Anything that can be saved as tensors and restored from them."""

    def state_dict(self) -> Any: ...

    def load_state_dict(self, state: State, /) -> Any: ...


class Trainer:
    """Owns the counters and the policy's optimizer of one run and takes it forward step by step.

    Attributes:
        step: training steps taken.
        trajectories: trajectories sampled.
        seconds: time spent in `train_step`, evaluation excluded.
        idle_steps: steps since the last oracle call.
        optimizer: the policy's optimizer.
    """

    def __init__(self, learner: Learner, objective: Objective, fitter: DynamicsFitter) -> None:
        self.learner, self.objective, self.dynamics_fitter = learner, objective, fitter
        self._config, self._reward = learner.config, learner.reward
        weights = [*learner.network.parameters(), *objective.own.parameters()]
        self.optimizer = FlatAdam([weight for weight in weights if weight.requires_grad], self._config.optimiser.clip)
        self.exploration = Exploration(**self._config.exploration.model_dump())
        self.step, self.trajectories, self.seconds = 0, 0, 0.0
        self.idle_steps, self._num_free = 0, 0

    @property
    def calls(self) -> int:
        """Oracle calls: answers that this run paid for; a new object once, or every visit where answers are noisy."""
        return self.learner.memory.num_calls - self._num_free

    @property
    def progress(self) -> float:
        """Share of the budget that is spent, in [0, 1]."""
        return self._progress_at(self.step, self.trajectories)

    def progress_within(self, before: float, num_fresh: int) -> float:
        """The middle of a step with so many fresh trajectories: a first one at learning rate zero would be for nothing.

        Args:
            before: progress when the step began.
        """
        return (before + self._progress_at(self.step + 1, self.trajectories + num_fresh)) / 2

    @property
    def exhausted(self) -> bool:
        """True when a budget of oracle calls cannot be spent because nothing new comes any more."""
        return self._config.budget.oracle_calls is not None and self.idle_steps >= MAX_IDLE_STEPS

    @property
    def finished(self) -> bool:
        return self.progress >= 1.0

    @property
    def standing(self) -> dict[str, Any]:
        """What a summary says of a run of any kind: who trained, for how long, and whether to the end."""
        return {
            "method": self._config.method,
            "beta": self._config.reward.beta,
            "seed": self._config.seed,
            "steps": self.step,
            "trajectories": self.trajectories,
            "oracle_calls": self.calls,
            "support": self._config.pretraining.support,
            "seconds": round(self.seconds, 3),
            "status": "finished" if self.finished else "interrupted",
        }

    def train_step(self) -> Record:
        """Sample a batch, learn from it, and say what happened."""
        started = time.perf_counter()
        config: OptimiserConfig = self._config.optimiser
        before = self.progress
        fresh = self.collect()
        progress = self.progress_within(before, len(fresh))
        dynamics_record = self.fit_dynamics(fresh, progress)
        learning_rate = config.learning_rate * learning_rate_factor(progress, config.warmup)
        logged: list[Record] = []
        for terms in self.updates(fresh, progress):
            logged.append(require_finite(terms))
            self.optimizer.step(terms["loss"], learning_rate)
            del terms  # which hold the buffers that the next evaluation uses
        self.optimizer.require_finite()
        learned = dynamics_record | _means(logged)
        return self.advance(fresh, learning_rate, time.perf_counter() - started, learned)

    def fit_dynamics(self, fresh: Trajectories, progress: float) -> Record:
        """Learn P̂ from a fresh batch and say how well it did."""
        return self.dynamics_fitter.fit(fresh, progress)

    def updates(self, fresh: Trajectories, progress: float) -> Iterator[Terms]:
        """Loss terms of the objective, one dictionary per parameter update."""
        return self.objective.updates(fresh, self.step, progress)

    def advance(self, fresh: Trajectories, learning_rate: float, seconds: float, learned: Record) -> Record:
        """Count a step that was taken with a fresh batch, and say what happened."""
        self.step += 1
        self.trajectories += len(fresh)
        self.seconds += seconds
        record = {
            "step": self.step,
            "trajectories": self.trajectories,
            "oracle_calls": self.calls,
            "seconds": round(self.seconds, 3),
            "learning_rate": learning_rate,
            "beta": self._reward.exponent(self.step - 1),
        }
        if self.objective.samples:
            scores = fresh.scores.numpy()
            record["batch_score"] = float(np.add.reduce(scores) / len(fresh)) if len(fresh) else math.nan
        return record | learned

    @property
    def batch_size(self) -> int:
        """Trajectories of the next step: what the objective asks for, or what is left of the budget."""
        size, budget = self.objective.batch_size, self._config.budget.trajectories
        return size if budget is None else min(size, budget - self.trajectories)

    def begin(self) -> None:
        """Called once before the first step of a session."""

    def sampler(self, size: int) -> Sampler:
        """Where so many training trajectories come from."""
        return self.objective.sampler(size)

    def collect(self) -> Trajectories:
        """A scored batch from the objective's own behaviour, remembered and put into replay."""
        learner, size = self.learner, self.batch_size
        if not self.objective.samples:
            return no_trajectories(learner.environment.max_steps)
        sampler, read = self.sampler(size), self.objective.reads_behaviour
        walk = rollout(
            learner.environment, sampler, size, learner.generators, self.exploration, with_log_behaviour=read
        )
        return self.keep(walk)

    def keep(self, walk: Walk) -> Trajectories:
        """Pay for what a walk brought, as far as the budget goes, and remember it."""
        before = self.calls
        walk, made, num_free = self._affordable(walk)
        scores = self.learner.memory.pay(made, self.measure)
        self._num_free += num_free
        self.idle_steps = self.idle_steps + 1 if self.calls == before else 0
        batch = Trajectories(walk.intentions, walk.outcomes, walk.valid, scores, walk.log_behaviour)
        self.learner.replay.add(batch)
        return batch

    def prepay(self, made: Tensor) -> Tensor:
        """Scores of objects that a run begins with, [num]: remembered like its own, but no part of its budget."""
        before = self.learner.memory.num_calls
        scores = self.learner.memory.pay(made, self.measure)
        self._num_free += self.learner.memory.num_calls - before
        return scores

    def measure(self, made: Tensor) -> Tensor:
        """What the oracle answers; how a measurement comes out is the world's doing, like the outcome of a step."""
        return self.learner.environment.measure(made, self.learner.generators["channel"])

    def free(self, made: Tensor) -> Tensor:
        """Which answers cost nothing, as `Environment.free`."""
        return self.learner.environment.free(made)

    def _affordable(self, walk: Walk) -> tuple[Walk, Tensor, int]:
        """The first episodes of a walk that the budget can pay for, what they made, and how many answers are free."""
        environment, budget = self.learner.environment, self._config.budget.oracle_calls
        made = environment.made(walk.outcomes, walk.valid)
        if budget is None and not environment.has_free:
            return walk, made, 0
        asked = self.learner.memory.asks(made)
        free = torch.zeros_like(asked)
        if environment.has_free:
            free[asked] = self.free(made[asked])
        counts = (asked & ~free).cumsum(dim=0)
        # counts never fall from row to row, so what can be paid for comes first
        size = len(counts) if budget is None else int((counts <= budget - self.calls).sum())
        return walk.first(size), made[:size], int(free[:size].sum())

    def modules(self) -> dict[str, nn.Module]:
        """Everything with weights, by name."""
        return {"network": self.learner.network, "dynamics": self.learner.dynamics, "objective": self.objective.own}

    def parts(self) -> dict[str, Stateful]:
        """Everything that a checkpoint keeps, by name."""
        learner = self.learner
        return {
            "network": learner.network,
            "dynamics": learner.dynamics,
            "memory": learner.memory,
            "replay": learner.replay,
            "generators": learner.generators,
            "dynamics_optimiser": self.dynamics_fitter,
            "objective": self.objective,
            "policy_optimiser": self.optimizer,
        }

    def state_dict(self) -> State:
        """Everything needed to go on exactly here, as one flat dictionary of tensors."""
        state = {
            f"{part}.{name}": tensor
            for part, owner in self.parts().items()
            for name, tensor in owner.state_dict().items()
        }
        counters = [self.step, self.trajectories, self.seconds, self._num_free, self.idle_steps]
        return state | {"counters": torch.tensor(counters, dtype=torch.float64)}

    def load_state_dict(self, state: State) -> None:
        for part, owner in self.parts().items():
            prefix = f"{part}."
            owner.load_state_dict({k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)})
        step, trajectories, self.seconds, *others = state["counters"].tolist()
        self.step, self.trajectories, self._num_free, self.idle_steps = map(int, (step, trajectories, *others))

    def _progress_at(self, step: int, trajectories: int) -> float:
        budget = self._config.budget
        if budget.trajectories is not None:
            spent = trajectories / budget.trajectories
        elif budget.steps is not None:
            spent = step / budget.steps
        elif budget.oracle_calls is not None:
            spent = 1.0 if self.exhausted else self.calls / budget.oracle_calls
        else:
            spent = self.seconds / (60.0 * (budget.minutes or math.inf))
        return min(spent, 1.0)


def _means(records: list[Record]) -> Record:
    """What the updates of a step said, on average over those that said it."""
    if len(records) < 2:
        return records[0] if records else {}
    names = dict.fromkeys(name for record in records for name in record)
    said = {name: [record[name] for record in records if name in record] for name in names}
    return {name: sum(values) / len(values) for name, values in said.items()}

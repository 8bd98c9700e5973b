"""The only training loop: sample → fit the dynamics → objective → step → record."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from stochflow.config.schema import Config, OptimiserConfig
from stochflow.environments.channels import Channel
from stochflow.environments.sequences.task import Reward
from stochflow.models.engine.prefix_evaluation import Recorder
from stochflow.objectives.base import Learner, Objective, Terms
from stochflow.sampling.rollout import Exploration, RecordingSampler, Sampler, Walk, rollout
from stochflow.sampling.trajectories import Trajectories
from stochflow.training.dynamics_fitter import DynamicsFitter
from stochflow.training.optimizer import Descent, Record, State, learning_rate_factor, require_finite

# a budget of oracle calls ends after so many steps in a row without a new design: perhaps there are no more
MAX_IDLE_STEPS = 100


class Stateful(Protocol):
    """Anything that can be saved as tensors and restored from them."""

    def state_dict(self) -> Any: ...

    def load_state_dict(self, state: State, /) -> Any: ...


class Loop(ABC):
    """Owns the counters and the policy's optimiser of one run and takes it forward step by step.

    Attributes:
        step: training steps taken.
        trajectories: trajectories sampled.
        seconds: time spent in `train_step`, evaluation excluded.
        idle_steps: steps since the last oracle call.
        descent: the policy's optimiser.
    """

    def __init__(self, config: Config, reward: Reward, trained: list[nn.Parameter]) -> None:
        self._config, self._reward = config, reward
        self.descent = Descent([weight for weight in trained if weight.requires_grad], config.optimiser.clip)
        self.exploration = Exploration(**config.exploration.model_dump())
        self.step, self.trajectories, self.seconds = 0, 0, 0.0
        self.idle_steps, self._num_free = 0, 0

    @property
    @abstractmethod
    def calls(self) -> int:
        """Oracle calls: answers that this run paid for; a new object once, or every visit where answers are noisy."""

    @abstractmethod
    def collect(self) -> Trajectories:
        """A scored batch from the objective's own behaviour, remembered and put into replay."""

    @abstractmethod
    def fit_dynamics(self, fresh: Trajectories, progress: float) -> Record:
        """Learn P̂ from a fresh batch and say how well it did."""

    @abstractmethod
    def updates(self, fresh: Trajectories, progress: float) -> Iterator[Terms]:
        """Loss terms of the objective, one dictionary per parameter update."""

    @abstractmethod
    def modules(self) -> dict[str, nn.Module]:
        """Everything with weights, by name."""

    @abstractmethod
    def parts(self) -> dict[str, Stateful]:
        """Everything that a checkpoint keeps, by name, but for the policy's optimiser."""

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
            self.descent.step(terms["loss"], learning_rate)
            del terms  # and with it the hold on the room that the next update needs
        self.descent.require_finite()
        learned = dynamics_record | _means(logged)
        return self.advance(fresh, learning_rate, time.perf_counter() - started, learned)

    def advance(self, fresh: Trajectories, learning_rate: float, seconds: float, learned: Record) -> Record:
        """Count a step that was taken with a fresh batch, and say what happened."""
        self.step += 1
        self.trajectories += len(fresh)
        self.seconds += seconds
        return {
            "step": self.step,
            "trajectories": self.trajectories,
            "oracle_calls": self.calls,
            "seconds": round(self.seconds, 3),
            "learning_rate": learning_rate,
            "beta": self._reward.exponent(self.step - 1),
            "batch_score": float(np.add.reduce(fresh.scores.numpy()) / len(fresh)) if len(fresh) else math.nan,
            **learned,
        }

    def state_dict(self) -> State:
        """Everything needed to go on exactly here, as one flat dictionary of tensors."""
        state = {
            f"{part}.{name}": tensor
            for part, owner in self._parts().items()
            for name, tensor in owner.state_dict().items()
        }
        counters = [
            float(self.step),
            float(self.trajectories),
            self.seconds,
            float(self._num_free),
            float(self.idle_steps),
        ]
        return state | {"counters": torch.tensor(counters, dtype=torch.float64)}

    def load_state_dict(self, state: State) -> None:
        for part, owner in self._parts().items():
            prefix = f"{part}."
            owner.load_state_dict({k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)})
        step, trajectories, self.seconds, num_free, idle_steps = state["counters"].tolist()
        self.step, self.trajectories, self._num_free, self.idle_steps = map(
            int, (step, trajectories, num_free, idle_steps)
        )

    def _parts(self) -> dict[str, Stateful]:
        return {**self.parts(), "policy_optimiser": self.descent}

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
    said = {name: [record[name] for record in records if name in record] for name in records[-1]}
    return {name: sum(values) / len(values) for name, values in said.items()}


class Trainer(Loop):
    """The loop over sequences."""

    def __init__(
        self,
        learner: Learner,
        objective: Objective,
        channel: Channel,
        oracle: Callable[[Tensor], Tensor],
        free: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__(learner.config, learner.reward, [*learner.network.parameters(), *objective.own.parameters()])
        self.learner, self.objective = learner, objective
        self.channel, self.oracle, self._free = channel, oracle, free
        self.dynamics_fitter = DynamicsFitter(learner, learner.config.dynamics, idle=not objective.reads_dynamics)

    @property
    def calls(self) -> int:
        return self.learner.memory.num_calls - self._num_free

    def fit_dynamics(self, fresh: Trajectories, progress: float) -> Record:
        return self.dynamics_fitter.fit(fresh, progress)

    def updates(self, fresh: Trajectories, progress: float) -> Iterator[Terms]:
        return self.objective.updates(fresh, self.step, progress)

    def modules(self) -> dict[str, nn.Module]:
        return {"network": self.learner.network, "dynamics": self.learner.dynamics, "objective": self.objective.own}

    @property
    def batch_size(self) -> int:
        """Trajectories of the next step: as configured, or what is left of the budget."""
        size, budget = self.learner.config.optimiser.batch_size, self.learner.config.budget.trajectories
        return size if budget is None else min(size, budget - self.trajectories)

    def collect(self) -> Trajectories:
        learner, size = self.learner, self.batch_size
        sampler, shape = self.sampler(size), (size, learner.network.length)
        read = self.objective.reads_behaviour
        walk = rollout(sampler, self.channel, shape, learner.generators, self.exploration, judge_behaviour=read)
        return self.keep(walk, sampler.recorder if isinstance(sampler, RecordingSampler) else None)

    def keep(self, walk: Walk, recorder: Recorder | None = None) -> Trajectories:
        """Pay for what a walk brought, as far as the budget goes, and remember it."""
        size, before = len(walk.outcomes), self.calls
        walk, num_free = self._affordable(walk)
        scores = self.learner.memory.pay(walk.outcomes, self.oracle)
        self._num_free += num_free
        # what was left out because the budget ended stays in the recorder, so it does not fit any more
        return self.remember(walk, scores, before, recorder if len(scores) == size else None)

    def remember(self, walk: Walk, scores: Tensor, before: int, recorder: Recorder | None = None) -> Trajectories:
        """Remember a walk that was paid for, [batch]; so many calls there were before it."""
        self.idle_steps = self.idle_steps + 1 if self.calls == before else 0
        batch = Trajectories(walk.intentions, walk.outcomes, walk.valid, scores, walk.log_behaviour, recorder)
        self.learner.replay.add(batch)
        return batch

    @property
    def pays_for_all(self) -> bool:
        """True where every new design of a walk is paid for, whatever it costs."""
        return self.learner.config.budget.oracle_calls is None and self._free is None

    def begin(self) -> None:
        """Called once before the first step of a session."""

    def sampler(self, size: int) -> Sampler:
        """Where so many training trajectories come from."""
        return self.objective.sampler(size)

    def _affordable(self, walk: Walk) -> tuple[Walk, int]:
        """The first episodes of a walk that the budget can pay for, and how many answers about them cost nothing."""
        if self.pays_for_all:
            return walk, 0
        budget = self.learner.config.budget.oracle_calls
        asked = self.learner.memory.asks(walk.outcomes)
        free = torch.zeros_like(asked)
        if self._free is not None:
            free[asked] = self._free(walk.outcomes[asked])
        counts = (asked & ~free).cumsum(dim=0)
        # counts never fall from row to row, so what can be paid for comes first
        size = len(counts) if budget is None else int((counts <= budget - self.calls).sum())
        return Walk(*(column[:size] for column in vars(walk).values())), int(free[:size].sum())

    def parts(self) -> dict[str, Stateful]:
        learner = self.learner
        return {
            "network": learner.network,
            "dynamics": learner.dynamics,
            "memory": learner.memory,
            "replay": learner.replay,
            "generators": learner.generators,
            "dynamics_optimiser": self.dynamics_fitter,
            "objective": self.objective,
        }

"""The only training loop: sample → fit the dynamics → objective → step → record."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from stochflow.channels import Channel
from stochflow.config import Config, DynamicsConfig, OptimiserConfig
from stochflow.errors import NumericsError
from stochflow.models.dynamics import DynamicsModel, dynamics_cross_entropy
from stochflow.objectives.base import Learner, Objective, Terms
from stochflow.rollout import Exploration, Sampler, Walk, rollout
from stochflow.tasks.base import Reward
from stochflow.trajectory import Trajectories

Record = dict[str, float]
State = dict[str, Tensor]

_DYNAMICS_FINAL_SHARE = 0.1
# a budget of oracle calls ends after so many steps in a row without a new design: perhaps there are no more
MAX_IDLE_STEPS = 100


def learning_rate_factor(progress: float, warmup: float) -> float:
    """Share of the learning rate: linear warm-up, constant until half of the budget, then a cosine to zero."""
    if progress < warmup:
        return progress / warmup
    if progress < 0.5:
        return 1.0
    return 0.5 * (1.0 + math.cos(math.pi * min(2.0 * progress - 1.0, 1.0)))


class Stateful(Protocol):
    """Anything that can be saved as tensors and restored from them."""

    def state_dict(self) -> Any: ...

    def load_state_dict(self, state: State, /) -> Any: ...


class Descent:
    """Adam with a gradient clip and a learning rate that is set anew for every step.

    Attributes:
        reduce: what is done to the parameters' gradients before the clip, where several processes share a batch.
    """

    def __init__(self, parameters: list[nn.Parameter], clip: float) -> None:
        self._parameters, self._clip = parameters, clip
        self._adam = torch.optim.Adam(parameters, lr=0.0, fused=True)
        self.reduce: Callable[[list[nn.Parameter]], None] | None = None

    def step(self, loss: Tensor, learning_rate: float) -> None:
        self._adam.param_groups[0]["lr"] = learning_rate
        self._adam.zero_grad()
        loss.backward()
        if self.reduce is not None:
            self.reduce(self._parameters)
        nn.utils.clip_grad_norm_(self._parameters, self._clip, foreach=True)
        self._adam.step()

    def state_dict(self) -> State:
        """Moments and step counts by parameter number."""
        moments = self._adam.state_dict()["state"]
        return {f"{index}.{name}": value for index, entry in moments.items() for name, value in entry.items()}

    def load_state_dict(self, state: State) -> None:
        entries: dict[int, State] = {}
        for key, value in state.items():
            index, name = key.split(".")
            entries.setdefault(int(index), {})[name] = value
        self._adam.load_state_dict({"state": entries, "param_groups": self._adam.state_dict()["param_groups"]})


class DynamicsFitter:
    """Cross-entropy of P̂ on observed (s, a, s'), with an optimiser of its own."""

    def __init__(self, learner: Learner, config: DynamicsConfig) -> None:
        self._learner, self._config = learner, config
        self._descent = None
        if isinstance(learner.dynamics, DynamicsModel):
            self._descent = Descent(list(learner.dynamics.parameters()), config.clip)

    def fit(self, fresh: Trajectories, progress: float) -> Record:
        """One update on the fresh batch, or `rounds` on draws from the replay buffer."""
        if self._descent is None:
            return {}
        config, learner = self._config, self._learner
        learning_rate = config.learning_rate * (1.0 - (1.0 - _DYNAMICS_FINAL_SHARE) * progress)
        losses = []
        for _ in range(config.rounds if config.off_policy else 1):
            batch = (
                learner.replay.sample(config.sample_size, learner.generators["replay"]) if config.off_policy else fresh
            )
            outcomes = batch.outcomes.to(learner.device)
            log_matrices = learner.dynamics.log_matrices(outcomes)
            loss = dynamics_cross_entropy(
                log_matrices, batch.intentions.to(learner.device), outcomes, batch.valid.to(learner.device)
            )
            require_finite({"forward_dynamics_loss": loss})
            self._descent.step(loss, learning_rate)
            losses.append(loss.detach())
        return {"forward_dynamics_loss": float(torch.stack(losses).mean())}

    def state_dict(self) -> State:
        return {} if self._descent is None else self._descent.state_dict()

    def load_state_dict(self, state: State) -> None:
        if self._descent is not None:
            self._descent.load_state_dict(state)


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
        self._exploration = Exploration(**config.exploration.model_dump())
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
        # the middle of this step: a first step at learning rate zero would be a step for nothing
        progress = (before + self._progress_at(self.step + 1, self.trajectories + len(fresh))) / 2
        dynamics_record = self.fit_dynamics(fresh, progress)
        learning_rate = config.learning_rate * learning_rate_factor(progress, config.warmup)
        sums: dict[str, Tensor] = {}
        num_updates = 0
        for terms in self.updates(fresh, progress):
            require_finite(terms)
            self.descent.step(terms["loss"], learning_rate)
            num_updates += 1
            for name, term in terms.items():
                sums[name] = sums.get(name, torch.zeros(())) + term.detach().cpu()
        self.require_finite_weights()
        self.step += 1
        self.trajectories += len(fresh)
        self.seconds += time.perf_counter() - started
        return {
            "step": self.step,
            "trajectories": self.trajectories,
            "oracle_calls": self.calls,
            "seconds": round(self.seconds, 3),
            "learning_rate": learning_rate,
            "beta": self._reward.exponent(self.step - 1),
            "batch_score": float(fresh.scores.mean()),
            **dynamics_record,
            **{name: float(total) / num_updates for name, total in sums.items()},
        }

    def require_finite_weights(self) -> None:
        """Raise an error that names a weight that is not finite: a loss shows it only one update later."""
        for part, module in self.modules().items():
            for name, weight in module.named_parameters():
                require_finite({f"{part}.{name}": weight.detach().sum()})

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
        self._channel, self._oracle, self._free = channel, oracle, free
        self._dynamics_fitter = DynamicsFitter(learner, learner.config.dynamics)

    @property
    def calls(self) -> int:
        return self.learner.memory.num_calls - self._num_free

    def fit_dynamics(self, fresh: Trajectories, progress: float) -> Record:
        return self._dynamics_fitter.fit(fresh, progress)

    def updates(self, fresh: Trajectories, progress: float) -> Iterator[Terms]:
        return self.objective.updates(fresh, self.step, progress)

    def modules(self) -> dict[str, nn.Module]:
        return {"network": self.learner.network, "dynamics": self.learner.dynamics, "objective": self.objective.own}

    def collect(self) -> Trajectories:
        learner = self.learner
        budget = learner.config.budget.trajectories
        size = learner.config.optimiser.batch_size
        if budget is not None:
            size = min(size, budget - self.trajectories)
        walk = rollout(
            self.sampler(size), self._channel, (size, learner.network.length), learner.generators, self._exploration
        )
        walk, num_free = self._affordable(walk)
        before = self.calls
        scores = learner.memory.pay(walk.outcomes, self._oracle)
        self._num_free += num_free
        self.idle_steps = self.idle_steps + 1 if self.calls == before else 0
        batch = Trajectories(walk.intentions, walk.outcomes, walk.valid, scores, walk.log_behaviour)
        learner.replay.add(batch)
        return batch

    def begin(self) -> None:
        """Called once before the first step of a session."""

    def sampler(self, size: int) -> Sampler:
        """Where so many training trajectories come from."""
        return self.objective.sampler(size)

    def _affordable(self, walk: Walk) -> tuple[Walk, int]:
        """The first episodes of a walk that the budget can pay for, and how many answers about them cost nothing."""
        asked = self.learner.memory.asks(walk.outcomes)
        free = torch.zeros_like(asked)
        if self._free is not None:
            free[asked] = self._free(walk.outcomes[asked])
        counts = (asked & ~free).cumsum(dim=0)
        budget = self.learner.config.budget.oracle_calls
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
            "dynamics_optimiser": self._dynamics_fitter,
            "objective": self.objective,
        }


def require_finite(terms: Terms) -> None:
    """Raise an error that names the term that is not finite; the total only when each of its parts is."""
    for name, term in sorted(terms.items(), key=lambda item: item[0] == "loss"):
        if not bool(torch.isfinite(term).all()):
            raise NumericsError(
                f"the term '{name}' became {float(term.detach())}; the last good checkpoint is kept; "
                "train again with a lower optimiser.learning_rate or dynamics.learning_rate, or a larger reward.floor"
            )

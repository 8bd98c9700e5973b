"""From the specification of a comparison to its runs, all checked before the first one starts."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from stochflow.config.noise import parse_noise
from stochflow.config.schema import Config
from stochflow.core.errors import ConfigError
from stochflow.environments.base import Environment
from stochflow.environments.factory import same_setting
from stochflow.environments.sequences.oracles.task import PREFIX
from stochflow.environments.settings import resolve_layers
from stochflow.experiments.launch import default_path, prepare
from stochflow.experiments.sweep.config import RUNS, SweepConfig, feedback_layers
from stochflow.experiments.torch_settings import choose_device
from stochflow.runs.directory import RunDirectory

_MAX_RUNS = 20_000


@dataclass(frozen=True)
class PlannedRun:
    """One run of a comparison, its config resolved. `noise` is a number, or the name of a channel."""

    name: str
    task: str
    method: str
    noise: float | str
    seed: int
    config: Config

    @property
    def feedback(self) -> str:
        return self.config.feedback

    @property
    def num_updates(self) -> float:
        """Parameter updates that its budget allows: a first guess of how long it takes."""
        optimiser = self.config.optimiser
        return (self.config.budget.trajectories or 0) / optimiser.batch_size * optimiser.updates


def plan(spec: SweepConfig, oracles: Sequence[str] = ()) -> list[PlannedRun]:
    """All runs of a comparison by task, noise, feedback, method and seed; an error for the first that cannot be run.

    Args:
        oracles: names of those that the user has named.
    """
    num_runs = len(spec.tasks) * len(spec.noise) * len(feedback_layers(spec)) * len(spec.methods) * spec.seeds
    if num_runs > _MAX_RUNS:
        raise ConfigError(f"these would be {num_runs:,} runs, and {_MAX_RUNS:,} are the most; leave something out")
    runs = list(_runs(spec, oracles))
    names = Counter(run.name for run in runs)
    for run in runs[:: spec.seeds]:
        if names[run.name] > 1:
            raise ConfigError(
                f"two runs would be called {run.name}; leave one of the channels away, or rename its matrix file"
            )
    return runs


def check_existing(path: Path, runs: list[PlannedRun]) -> None:
    """Refuse a folder whose runs were made with other settings, say by another version of a method."""
    for run in runs:
        place = path / RUNS / run.name
        if not place.exists():
            continue
        found = RunDirectory.open(place).config()
        for name in Config.model_fields:
            if name not in ("device", "threads", "deterministic") and not same_setting(name, found, run.config):
                raise ConfigError(
                    f"{place} was made with another '{name}'; remove that run to make it again, or choose another --out"
                )


def named_oracle(task: str, oracles: Sequence[str]) -> str | None:
    """The oracle of a task, if the user has named it."""
    return next((name for name in oracles if task == PREFIX + name), None)


def _runs(spec: SweepConfig, oracles: Sequence[str]) -> Iterator[PlannedRun]:
    for task, noise, feedback, method in product(spec.tasks, spec.noise, feedback_layers(spec), spec.methods):
        layer = {
            "task": task,
            "method": method,
            "channel": parse_noise(noise),
            "budget": {"trajectories": spec.trajectories},
            **feedback,
        }
        given = resolve_layers([spec.settings, layer])
        configured = prepare([spec.settings, layer], named_oracle(task, oracles))
        if feedback.get("feedback") == "none" and "step" in spec.feedback and not configured.environment.ordered:
            continue  # without noise there is nothing to see, and the run is there already
        _check_surroundings(spec, configured.config, configured.environment)
        config = configured.config.model_copy(update={"channel": given.channel})
        label = noise if config.channel.file is None else Path(config.channel.file).stem
        inside = configured.config.channel
        for seed in range(spec.seeds):
            seeded = config.model_copy(update={"seed": seed})
            name = default_path(seeded).name
            yield PlannedRun(name, task, method, label, seed, seeded.model_copy(update={"channel": inside}))


def _check_surroundings(spec: SweepConfig, config: Config, environment: Environment) -> None:
    """What a run needs beyond its settings must be there before the first one starts."""
    if config.oracle.engine == "ray":
        raise ConfigError("a comparison spreads whole runs; leave out oracle.engine and give --engine ray")
    if config.evaluation.reference is not None:
        environment.read_designs(Path(config.evaluation.reference))
    if spec.engine == "local":  # machines of a cluster have devices and modules of their own
        choose_device(config.device)
        environment.check()

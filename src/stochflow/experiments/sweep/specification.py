"""From the specification of a comparison to its runs, all checked before the first one starts."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, ValidationError, field_validator

from stochflow.config.layers import sentence_of
from stochflow.config.methods import METHODS
from stochflow.config.schema import MOST, Config, Settings
from stochflow.config.yaml import read_yaml
from stochflow.core.errors import ConfigError
from stochflow.core.files import write_atomically
from stochflow.environments.channel_factory import parse_noise, with_matrix_inside
from stochflow.environments.factory import configured_channel, configured_task, same_setting, with_table_pinned
from stochflow.environments.graphs import is_graph
from stochflow.environments.registry import TASKS
from stochflow.environments.sequences.oracles.task import PREFIX
from stochflow.experiments.build import choose_device, reference_tokens
from stochflow.experiments.launch import default_path, resolve_config
from stochflow.runs.directory import RunDirectory, unwritable

SPECIFICATION = "sweep.yaml"
RUNS = "runs"
_MAX_RUNS = 20_000
_EXTENDED = ("tasks", "methods", "noise")
_FIXED = ("trajectories", "settings")
# what the sweep itself sets for every run, with the option that does it
_AXES = {
    "task": "--tasks",
    "method": "--methods",
    "channel": "--noise",
    "seed": "--seeds",
    "budget": "--trajectories",
}
# settings of the channel that --noise does not say, the same for every run
_EDITS = {"deletion", "duplication"}


class SweepConfig(Settings):
    """A comparison: every method on every task under every noise, once per seed, with the same budget."""

    tasks: list[str] = Field(["tfbind8"], min_length=1, description="Task names, or all.")
    methods: list[str] = Field(["sgfn-kl", "sgfn-db"], min_length=1, description="Method names, or all.")
    noise: list[float | str] = Field([0.25], min_length=1, description="Channels, each as for `train --noise`.")
    seeds: int = Field(5, ge=1, le=10_000, description="Runs per method; their seeds count from 0.")
    trajectories: int = Field(32_000, ge=1, le=MOST, description="Budget of every run.")
    settings: dict[str, Any] = Field({}, description="Settings of every run, as in `train --config`.")
    jobs: int | None = Field(None, ge=1, le=10_000, description="Runs at a time; by default one per core.")
    engine: Literal["local", "ray"] = Field("local", description="Processes on this machine, or a Ray cluster.")
    address: str | None = Field(None, description="Ray cluster to join; without one, Ray is started here.")
    retries: int = Field(2, ge=0, le=100, description="How often a run goes on after its worker was killed.")
    track: list[str] = Field([], description="Trackers of every run: tensorboard, wandb, mlflow.")

    @field_validator("noise", mode="after")
    @classmethod
    def _numbers_as_numbers(cls, noise: list[float | str]) -> list[float | str]:
        return [_plain_noise(each) for each in noise]

    @field_validator("tasks", "methods", "noise", "track", mode="after")
    @classmethod
    def _each_once(cls, values: list[Any]) -> list[Any]:
        twice = next((value for value in values if values.count(value) > 1), None)
        if twice is not None:
            raise ValueError(f"'{twice}' is listed twice")
        return values

    @field_validator("settings", mode="after")
    @classmethod
    def _no_axes(cls, settings: dict[str, Any]) -> dict[str, Any]:
        for name, value in settings.items():
            if name == "channel" and isinstance(value, dict) and set(value) <= _EDITS:
                continue
            if name in _AXES:
                raise ValueError(f"'{name}' is what the comparison varies; give it with {_AXES[name]}")
        return settings

    @property
    def num_jobs(self) -> int:
        """Runs at a time on this machine."""
        return self.jobs or os.cpu_count() or 1


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
    def num_updates(self) -> float:
        """Parameter updates that its budget allows: a first guess of how long it takes."""
        optimiser = self.config.optimiser
        return (self.config.budget.trajectories or 0) / optimiser.batch_size * optimiser.updates


def specify(path: Path, given: Mapping[str, Any], address: str | None = None) -> SweepConfig:
    """The comparison in `path`, as given now; one that is there already may grow, but not change.

    Args:
        address: of the cluster, as the user has named it: one that a file names is not joined, for whoever runs it can
            run code here.
    """
    spec = _specified(path, given)
    if spec.address not in (None, address):
        raise ConfigError(
            f"the Ray cluster '{spec.address}' is joined only when you name it yourself; if you trust it, add "
            f"--address {spec.address}"
        )
    return spec


def _specified(path: Path, given: Mapping[str, Any]) -> SweepConfig:
    given = {name: _all(name, value) for name, value in given.items()}
    if not os.path.exists(path / SPECIFICATION):
        _check_free(path)
        return _checked(given)
    # "stack" stands in specifications of version 0.1 and says nothing any more
    stored = _checked({name: value for name, value in read_yaml(path / SPECIFICATION).items() if name != "stack"})
    wanted = _checked(stored.model_dump() | given)
    for name in _FIXED:
        before, now = getattr(stored, name), getattr(wanted, name)
        if before != now:
            raise ConfigError(
                f"{path} was started with {name} {before}, not {now}; leave that as it was or choose another --out"
            )
    grown: dict[str, Any] = {
        name: getattr(stored, name) + [value for value in getattr(wanted, name) if value not in getattr(stored, name)]
        for name in _EXTENDED
    }
    return wanted.model_copy(update=grown | {"seeds": max(stored.seeds, wanted.seeds)})


def plan(spec: SweepConfig, oracles: Sequence[str] = ()) -> list[PlannedRun]:
    """All runs of a comparison by task, noise, method and seed; an error for the first that cannot be run.

    Args:
        oracles: names of those that the user has named.
    """
    num_runs = len(spec.tasks) * len(spec.noise) * len(spec.methods) * spec.seeds
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


def store(path: Path, spec: SweepConfig) -> None:
    """Write the specification down, ready for `--config`."""
    text = yaml.safe_dump(spec.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    try:
        write_atomically(path / SPECIFICATION, text)
        (path / RUNS).mkdir(exist_ok=True)
    except OSError as error:
        raise unwritable(path, error) from None


def named_oracle(task: str, oracles: Sequence[str]) -> str | None:
    """The oracle of a task, if the user has named it."""
    return next((name for name in oracles if task == PREFIX + name), None)


def _runs(spec: SweepConfig, oracles: Sequence[str]) -> Iterator[PlannedRun]:
    for task_name in spec.tasks:
        for noise in spec.noise:
            for method in spec.methods:
                layer = {
                    "task": task_name,
                    "method": method,
                    "channel": parse_noise(noise),
                    "budget": {"trajectories": spec.trajectories},
                }
                config, _ = with_table_pinned(resolve_config([spec.settings, layer]))
                _check_surroundings(spec, config, named_oracle(task_name, oracles))
                label = noise if config.channel.file is None else Path(config.channel.file).stem
                inside = with_matrix_inside(config.channel)
                for seed in range(spec.seeds):
                    seeded = config.model_copy(update={"seed": seed})
                    name = default_path(seeded).name
                    whole = seeded.model_copy(update={"channel": inside})
                    yield PlannedRun(name, task_name, method, label, seed, whole)


def _check_surroundings(spec: SweepConfig, config: Config, oracle: str | None) -> None:
    """What a run needs beyond its settings must be there before the first one starts."""
    if is_graph(config.task):  # whose settings are all that it needs
        return
    task = configured_task(config, oracle)
    configured_channel(config.channel, task)
    if config.evaluation.reference is not None:
        reference_tokens(Path(config.evaluation.reference), task)
    if spec.engine == "local":  # machines of a cluster have devices and modules of their own
        choose_device(config.device)
        task.check()


def _checked(given: Mapping[str, Any]) -> SweepConfig:
    try:
        return SweepConfig.model_validate(dict(given))
    except ValidationError as error:
        raise ConfigError(sentence_of(error, SweepConfig)) from None


def _check_free(path: Path) -> None:
    try:
        if path.is_dir() and all(inside.name.startswith(".") for inside in path.iterdir()):
            return
        path.lstat()
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise unwritable(path, error) from None
    raise ConfigError(f"{path} exists and holds no comparison; choose another --out")


def _all(name: str, value: Any) -> Any:
    known = {"tasks": list(TASKS), "methods": list(METHODS)}
    return known[name] if name in known and value == ["all"] else value


def _plain_noise(noise: float | str) -> float | str:
    """A slip as a number, a matrix file by its whole path, any other channel by its name."""
    try:
        return float(noise)
    except ValueError:
        text = str(noise).strip()
        return str(Path(text).resolve()) if text.endswith((".csv", ".yaml", ".yml")) else text

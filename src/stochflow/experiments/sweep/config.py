"""The specification of a comparison: what is asked for, and what its folder says already."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, ValidationError, field_validator

from stochflow.config.base import Settings
from stochflow.config.environment import Feedback
from stochflow.config.layers import merge, sentence_of
from stochflow.config.methods import METHODS
from stochflow.config.noise import parse_noise
from stochflow.config.options import WORLD, settings_of
from stochflow.config.schema import MOST
from stochflow.config.yaml import parse_assignment, read_yaml
from stochflow.core.errors import ConfigError
from stochflow.core.files import unwritable, write_atomically
from stochflow.environments.registry import ORACLE_PREFIX, TASKS, noise_is_asked_for
from stochflow.environments.settings import check_settings, resolve_layers

SPECIFICATION = "sweep.yaml"
RUNS = "runs"
DEFAULT_OUT = Path("runs") / "compare"
_EXTENDED = ("tasks", "methods", "noise", "feedback")
_FIXED = ("trajectories", "settings")
# what the sweep itself sets for every run, with the option that does it
_AXES = {
    "task": "--tasks",
    "method": "--methods",
    "channel": "--noise",
    "feedback": "--feedback",
    "seed": "--seeds",
    "budget": "--trajectories",
}
# settings of the channel that --noise does not say, the same for every run
_EDITS = {"deletion", "duplication"}


class SweepConfig(Settings):
    """A comparison: every method on every task under every noise, once per seed, with the same budget."""

    tasks: list[str] = Field(["tfbind8"], min_length=1, description="Task names, or all.")
    methods: list[str] = Field(["sgfn-kl", "sgfn-db"], min_length=1, description="Method names, or all.")
    noise: list[float | str] = Field(
        [0.25],
        min_length=1,
        description="Channels, each as for `train --noise`; of tables and oracles none by default.",
    )
    feedback: list[Feedback] = Field([], description="step, none or both, as for `train`; []: as each task has it.")
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

    @field_validator("tasks", "methods", "noise", "feedback", "track", mode="after")
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


def requested(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What arguments of `stochflow.compare` ask for, without defaults: the file, then the arguments."""
    config, settings = arguments["config"], list(arguments["settings"])
    layer = config if isinstance(config, Mapping) else read_yaml(Path(config)) if config is not None else {}
    given = dict(layer)
    flags = {name: arguments[name] for name in SweepConfig.model_fields if name in arguments and name != "settings"}
    for name, value in (flags | {"track": flags["track"] or None}).items():
        if value is not None:
            given[name] = list(value) if isinstance(value, list | tuple) else value
    for text in [*settings, "deterministic=true"] if arguments["deterministic"] else settings:
        inside = given.get("settings", {})
        if isinstance(inside, dict):  # anything else is refused by its own name
            given["settings"] = merge(inside, parse_assignment(text))
    of_table = settings_of(WORLD, arguments)
    if of_table and isinstance(given.get("settings", {}), dict):
        given["settings"] = merge(given.get("settings", {}), of_table)
    tasks = given.get("tasks", [])
    oracles = [ORACLE_PREFIX + name for name in arguments["oracle"]]
    if oracles and isinstance(tasks, list):
        given["tasks"] = tasks + [name for name in oracles if name not in tasks]
    return given


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
    if spec.address is not None and spec.engine != "ray":
        raise ConfigError("--address names a Ray cluster; add --engine ray, or leave it away")
    return spec


def check_specification(spec: SweepConfig) -> None:
    """Refuse a comparison that cannot be run, as far as that is known before anything is built."""
    for task in spec.tasks:
        for method in spec.methods:
            for layer in feedback_layers(spec):
                check_settings(resolve_layers([spec.settings, {"task": task, "method": method, **layer}]))
    for noise in spec.noise:
        parse_noise(noise)


def feedback_layers(spec: SweepConfig) -> list[dict[str, Any]]:
    """Settings of the kinds of feedback: an empty layer where each task has its own."""
    return [{"feedback": feedback} for feedback in spec.feedback] or [{}]


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


def store(path: Path, spec: SweepConfig) -> None:
    """Write the specification down, ready for `--config`."""
    text = yaml.safe_dump(spec.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    try:
        write_atomically(path / SPECIFICATION, text)
        (path / RUNS).mkdir(exist_ok=True)
    except OSError as error:
        raise unwritable(path, error) from None


def _checked(given: Mapping[str, Any]) -> SweepConfig:
    try:
        return SweepConfig.model_validate(_default_methods(given) | _default_noise(given) | dict(given))
    except ValidationError as error:
        raise ConfigError(sentence_of(error, SweepConfig)) from None


def _default_methods(given: Mapping[str, Any]) -> dict[str, Any]:
    """The methods of a comparison that names none: those that order whole strings where noise may meet orders."""
    tasks, feedback = given.get("tasks"), given.get("feedback")
    ordered = isinstance(tasks, list) and any(noise_is_asked_for(str(task)) for task in tasks)
    if isinstance(feedback, list):
        ordered = "none" in feedback
    return {"methods": ["sgfn-kl", "gfn-tb"]} if ordered else {}


def _default_noise(given: Mapping[str, Any]) -> dict[str, Any]:
    """The noise of a comparison that names none: that of its tasks."""
    tasks = given.get("tasks")
    quiet = [noise_is_asked_for(str(task)) for task in tasks] if isinstance(tasks, list) else []
    if "noise" in given or not any(quiet):
        return {}
    if not all(quiet):
        raise ConfigError("some of these tasks have noise 0.25 by default and some none; choose one with --noise")
    return {"noise": ["none"]}


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

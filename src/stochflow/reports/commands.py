"""Commands that reproduce a run or a sweep, from the stored configs."""

import shlex
from collections.abc import Sequence
from typing import Any

from stochflow.config.environment import ChannelConfig
from stochflow.config.layers import leaves
from stochflow.config.noise import PRESETS, SERIES, parse_noise
from stochflow.config.schema import Config
from stochflow.config.yaml import parse_assignment, yaml_line
from stochflow.core.errors import ConfigError, StochflowError
from stochflow.environments.registry import PRETRAINING_TASK, TASK_SETTINGS
from stochflow.environments.sequences.oracles.task import PREFIX
from stochflow.environments.settings import resolve_layers
from stochflow.experiments.world import MEASURED

_AXES = {"task", "method", "seed", "channel", "feedback", "budget"}
_NOT_ABOUT_LEARNING = ("device", "threads", "evaluation", "checkpoint_every")


def train_command(config: Config, out: str) -> str:
    """A `stochflow train …`, or `pretrain`, that resolves to this config; defaults of task and method are not repeated.

    The settings of an unknown method cannot be resolved; the command then refers to the config file.
    """
    try:
        words = _what_words(config)
        noise, budget = noise_flag(config.channel), config.budget.model_dump(exclude_none=True)
        words += [] if noise is None else ["--noise", noise]
        words += [] if _usual_feedback(config) else ["--feedback", config.feedback]
        words += ["--seed", str(config.seed)]
        words += [word for name, value in budget.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        words += ["--address", config.oracle.address] if config.oracle.address is not None else []
        words += ["--device", config.device] if config.device != "auto" else []
        words += [word for assignment in assignments(config) for word in ("--set", assignment)]
    except StochflowError:
        words = ["--config", f"{out}/config.yaml"]
    command = "pretrain" if config.task == PRETRAINING_TASK else "train"
    return shlex.join(["stochflow", command, *words, "--out", f"{out}-again"])


def compare_command(configs: Sequence[Config], out: str) -> str | None:
    """A `stochflow compare …` whose runs include these; None where no single command does.

    It spans tasks × methods × noises × seeds from 0, so for an unfinished sweep it may have more runs.
    """
    try:
        axes = _axes(configs)
        changed = _common_changes(configs)
    except StochflowError:
        return None
    if axes is None or changed is None:
        return None
    tasks = axes.pop("tasks")
    oracles = [task for task in tasks if task.startswith(PREFIX)]
    others = [task for task in tasks if task not in oracles]
    words = ["--tasks", ",".join(others)] if others else []
    words += [word for task in oracles for word in _task_words(task)]
    words += [word for name, values in axes.items() for word in (f"--{name}", ",".join(values))]
    words += [word for assignment in changed for word in ("--set", assignment)]
    return shlex.join(["stochflow", "compare", *words, "--out", f"{out}-again"])


def _axes(configs: Sequence[Config]) -> dict[str, list[str]] | None:
    """Values of the options of a comparison; None when a noise or a budget cannot be an option."""
    noises = [noise_flag(config.channel) for config in configs]
    budgets = {config.budget.trajectories for config in configs}
    distinct = {(c.task, c.method, noise, c.feedback, c.seed) for c, noise in zip(configs, noises, strict=True)}
    # commas separate the noises of a comparison, so one with a slip per position cannot be among them
    if (
        len(budgets) > 1
        or None in budgets
        or len(distinct) < len(configs)
        or not all(n and "," not in n for n in noises)
    ):
        return None
    feedback: list[str] = list(dict.fromkeys(config.feedback for config in configs))
    return {
        "tasks": list(dict.fromkeys(config.task for config in configs)),
        "methods": list(dict.fromkeys(config.method for config in configs)),
        "noise": list(dict.fromkeys(str(noise) for noise in noises)),
        **({} if all(map(_usual_feedback, configs)) else {"feedback": feedback}),
        "seeds": [str(max(config.seed for config in configs) + 1)],
        "trajectories": [str(budget) for budget in budgets],
    }


def _common_changes(configs: Sequence[Config]) -> list[str] | None:
    """`--set` assignments that turn the settings of each method into its config; None when they differ."""
    changed = list(dict.fromkeys(text for config in configs for text in assignments(config)))
    changed += [f"device={yaml_line(device)}" for device in {config.device for config in configs} - {"auto"}]
    layers = [parse_assignment(text) for text in changed]
    for config in configs:
        flags = config.model_dump(include=_AXES, exclude_none=True)
        if resolve_layers([*_of_world(config), *layers, flags]) != config:
            return None
    return changed


def assignments(config: Config) -> list[str]:
    """`a.b=v` for every setting that task, method, noise, feedback, seed, budget and device do not determine."""
    flags: dict[str, Any] = {
        **{name: getattr(config, name) for name in ("task", "method", "seed", "feedback", "device")},
        "budget": config.budget.model_dump(exclude_none=True),
    }
    if config.task == PRETRAINING_TASK:
        flags["pretraining"] = {"tasks": config.pretraining.tasks}
    elif config.pretraining.source is not None:  # these come with the sampler
        flags["pretraining"] = config.pretraining.model_dump()
        flags["model"] = config.model.model_dump()
        flags["context"] = {"reads": "support"}
    if config.oracle.address is not None:  # is named, not set
        flags["oracle"] = {"address": config.oracle.address}
    noise = noise_flag(config.channel)
    if noise is not None:
        flags["channel"] = parse_noise(noise)
    given = dict(leaves(resolve_layers([*_of_world(config), flags]).model_dump(mode="json")))
    wanted = dict(leaves(config.model_dump(mode="json")))
    said = () if noise is not None else ("channel.kind",)  # a slip alone would choose another than the task's own
    return [f"{name}={yaml_line(value)}" for name, value in wanted.items() if given[name] != value or name in said]


def _of_world(config: Config) -> list[dict[str, Any]]:
    """Settings that a run has without being told because its table is evidence."""
    return [MEASURED] if config.table.world == "measured" else []


def peculiarities(config: Config) -> tuple[str, ...]:
    """Budget and changed settings of a run that affect learning, beyond task, method, noise and seed."""
    budget = [f"{value:g} {name}" for name, value in config.budget.model_dump(exclude_none=True).items()]
    try:
        changed = [text for text in assignments(config) if text.split(".")[0].split("=")[0] not in _NOT_ABOUT_LEARNING]
    except StochflowError:
        changed = []
    return (*budget, *changed)


def _usual_feedback(config: Config) -> bool:
    """True where the task has this feedback unless told otherwise."""
    return config.feedback == TASK_SETTINGS.get(config.task.partition(":")[0], {}).get("feedback", "step")


def noise_flag(channel: ChannelConfig) -> str | None:
    """Value of `--noise` for this channel; None where only settings can express it."""
    noise = channel.noise
    if isinstance(noise, list):
        text = ",".join(str(alpha) for alpha in noise) + ("," if len(noise) == 1 else "")
        text = f"{channel.kind}:{text}" if channel.kind in SERIES else text
    elif channel.kind == "none":
        text = "none"
    else:
        text = f"{channel.kind}:{noise}" if channel.kind in PRESETS else str(noise)
    try:
        same = ChannelConfig.model_validate(parse_noise(text)) == channel
    except StochflowError:
        return None
    return text if same else None


def _what_words(config: Config) -> list[str]:
    """Arguments that name task and method, and the sampler that a run begins with."""
    settings = config.pretraining
    if config.task == PRETRAINING_TASK:
        return ["--tasks", ",".join(settings.tasks)]
    words = [*_task_words(config.task), "--method", config.method]
    return words if settings.source is None else [*words, "--from", settings.source, "--support", str(settings.support)]


def _task_words(task: str) -> list[str]:
    """Arguments that name a task; a ConfigError for a name that would be parsed as an option."""
    if task.startswith("-"):
        raise ConfigError(f"'{task}' is no name of a task")
    return ["--oracle", task.removeprefix(PREFIX)] if task.startswith(PREFIX) else [task]

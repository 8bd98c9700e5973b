"""Settings of a run, as far as they can be told and checked without building anything.

Nothing heavy is imported here: a mistake in a command is answered at once.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stochflow.config.environment import ConstraintConfig, MotifConfig, TableConfig
from stochflow.config.layers import merge, resolve
from stochflow.config.methods import PRETRAINING, method_settings
from stochflow.config.options import EXACT, PRETRAIN, TRAIN, settings_of
from stochflow.config.oracle import OracleConfig
from stochflow.config.schema import Config
from stochflow.config.yaml import parse_assignment, read_yaml
from stochflow.core.errors import ConfigError
from stochflow.environments.registry import (
    MOTIF_TASK,
    ORACLE_PREFIX,
    PRETRAINING_TASK,
    TABLE_TASK,
    TASK_SETTINGS,
    check_task_name,
    names_graph,
)

Layers = list[dict[str, Any]]


def training_layers(arguments: Mapping[str, Any], stored: Mapping[str, Any] | None = None) -> Layers:
    """Layers of settings that arguments of `stochflow.train` describe, later ones over earlier ones.

    Args:
        arguments: by name; `oracle` is the name of the function.
        stored: settings of the run that is continued.
    """
    task, oracle = arguments["task"], arguments["oracle"]
    if (arguments["pretrained"] is None) != (arguments["support"] is None):
        raise ConfigError(
            "--from names a pre-trained sampler and --support how many sequences to measure for it; give both or none"
        )
    if oracle is not None and task is not None:
        raise ConfigError(f"--oracle takes the place of a task; leave out '{task}'")
    layers, flags = written_layers(arguments), _flags(settings_of(TRAIN, arguments), arguments)
    known = [stored or {}, *layers, flags]
    if any(_names(layer, "table", "file") for layer in known):
        flags = _moved(flags, "alphabet", "table")
    if any(_names(layer, "motifs", "file") or _names(layer, "motifs", "factors") for layer in known):
        flags = _moved(flags, "length", "motifs")
    if oracle is not None:
        flags["task"] = ORACLE_PREFIX + oracle
    return [*layers, flags]


def pretraining_layers(arguments: Mapping[str, Any]) -> Layers:
    """The same for arguments of `stochflow.pretrain`."""
    flags = settings_of(PRETRAIN, arguments) | {"task": PRETRAINING_TASK, "method": PRETRAINING}
    return [*written_layers(arguments), flags]


def exact_layers(arguments: Mapping[str, Any]) -> Layers:
    """The same for arguments of `stochflow.exact`."""
    if (arguments["task"] or "").startswith(ORACLE_PREFIX):
        raise ConfigError(
            "every score of an oracle costs something, so its optimum cannot be computed; train it instead"
        )
    return [*written_layers(arguments), _flags(settings_of(EXACT, arguments), arguments)]


def written_layers(arguments: Mapping[str, Any]) -> Layers:
    """The layers of the argument `config`, a file or a dictionary, and of `settings`, assignments."""
    if arguments.get("resume") and arguments.get("overwrite"):
        raise ConfigError("--resume continues a run and --overwrite replaces it; give one of them")
    config = {} if arguments.get("config") is None else arguments["config"]
    layer = dict(config) if isinstance(config, Mapping) else read_yaml(Path(config))
    return [layer, *map(parse_assignment, arguments["settings"])]


def resolve_layers(layers: Layers) -> Config:
    """One checked config: defaults, those of the task and the method, then the layers in order."""
    method = next((layer["method"] for layer in reversed(layers) if "method" in layer), "sgfn-kl")
    task = next((str(layer["task"]) for layer in reversed(layers) if "task" in layer), "")
    of_task = TASK_SETTINGS.get(task.partition(":")[0], {})
    if any(_names(layer, "channel", "noise") for layer in layers):  # a number alone means slip, also here
        of_task = {name: value for name, value in of_task.items() if name != "channel"}
    config = resolve([of_task, method_settings(str(method)), *layers])
    # what can be ordered is ordered; constraints and lengths need somebody who looks at what comes
    needs_looking = config.lengths.variable or config.constraints != ConstraintConfig()
    if needs_looking and not any("feedback" in layer for layer in layers):
        return config.model_copy(update={"feedback": "step"})
    return config


def check_settings(config: Config) -> None:
    """Refuse settings that cannot be built, as far as that is known before anything is."""
    _check_pretraining(config)
    if config.feedback == "none" and (config.task == PRETRAINING_TASK or names_graph(config.task)):
        raise ConfigError(
            f"only strings of a sequence task can be ordered, and '{config.task}' is none; leave out --feedback none"
        )
    if config.task == PRETRAINING_TASK:
        return
    if names_graph(config.task):
        _check_graph(config)
        return
    _check_belongings(config)
    by_oracle = config.task.startswith(ORACLE_PREFIX)
    if config.lengths.variable:
        _check_variable(config)
    elif config.channel.deletion or config.channel.duplication:
        raise ConfigError(
            "a channel that deletes or duplicates letters changes the length of designs; add --variable-length, or "
            "leave out deletion and duplication"
        )
    if config.table.file is not None and config.task != TABLE_TASK:
        raise ConfigError(f"there is a table, but the task is '{config.task}'; leave the task out or the table")
    _check_motifs(config)
    if by_oracle and config.reward_noise != "none":
        raise ConfigError(
            "an oracle is asked once for each design, so its measurements cannot differ; leave out the reward noise"
        )
    if not by_oracle and config.table.file is None and config.task != MOTIF_TASK:
        check_task_name(config.task)


def _check_pretraining(config: Config) -> None:
    """Refuse what only one of pre-training, runs that begin with its sampler, and other runs can have."""
    settings = config.pretraining
    if config.task != PRETRAINING_TASK:
        if config.objective.record.pretrains:
            raise ConfigError(f"'{config.method}' trains on several tasks; use `stochflow pretrain --tasks A,B`")
        if settings.tasks and settings.support is None:
            raise ConfigError("pretraining.tasks belongs to `stochflow pretrain`; leave it out, or give --from")
        return
    if not config.objective.record.pretrains:
        raise ConfigError(
            "the task 'pretraining' stands for several, with a method of its own; use `stochflow pretrain --tasks A,B`"
        )
    if not settings.tasks:
        raise ConfigError("there is no task to pre-train on; name some with --tasks, as in --tasks tfbind8,tfbind8:ARX")
    for name in settings.tasks:
        check_task_name(name)
    if config.budget.steps is None and config.budget.minutes is None:
        raise ConfigError("pre-training samples nothing, so its budget is one of steps or minutes; give --steps")
    own = {
        "dynamics that are learned": config.dynamics.kind != "known",
        "a support of its own": settings.support is not None,
    }
    _refuse(own | _of_one_task(config), "in pre-training, which reads whole tables of tasks")


def _check_belongings(config: Config) -> None:
    """Refuse what describes a table or an oracle that is not there: it would change nothing."""
    if config.table.file is None and config.table != TableConfig():
        raise ConfigError("columns or letters of a table are given, but no table; name its file with --table")
    if not config.task.startswith(ORACLE_PREFIX) and (config.oracle.length, config.oracle.alphabet) != (None, None):
        raise ConfigError(
            f"--length and --alphabet say what designs of an oracle are, and the task is '{config.task}'; leave them "
            "out"
        )
    if config.oracle.engine == "ray" and not config.task.startswith(ORACLE_PREFIX):
        raise ConfigError(f"--oracle-engine says who calls an oracle, and the task is '{config.task}'; leave it out")
    if config.oracle.address is not None and config.oracle.engine != "ray":
        raise ConfigError("--address names a Ray cluster; add --oracle-engine ray, or leave it away")


def _check_motifs(config: Config) -> None:
    """Refuse motif matrices without a length, and what describes matrices that are not there."""
    given = config.motifs.file is not None or bool(config.motifs.matrices)
    if config.task == MOTIF_TASK:
        if not given:
            check_task_name(config.task)
        if config.motifs.length is None:
            raise ConfigError("motif matrices do not say how long designs are; give a --length, as in --length 50")
    elif given:
        raise ConfigError(f"there are motif matrices, but the task is '{config.task}'; leave the task out or them")
    elif config.motifs != MotifConfig():
        raise ConfigError("a name or a length of motif matrices is given, but no file; give one with --motif-matrix")


def _check_variable(config: Config) -> None:
    """Refuse what has no place where lengths vary."""
    if config.table.file is None and not config.task.startswith(ORACLE_PREFIX):
        raise ConfigError(
            f"'{config.task}' has designs of one length; variable length is for a --table or an --oracle of your own"
        )
    if config.constraints != ConstraintConfig():
        raise ConfigError(
            "constraints are about designs of one length; leave them out, or fix the length and leave out the bounds"
        )
    if config.objective.record.edits_designs:
        raise ConfigError(
            f"{config.method} changes letters of designs of one length; choose another method for variable "
            "length, or fix the length"
        )
    if config.objective.record.one_length:
        raise ConfigError(
            f"{config.method} plans on designs of one length; choose another method for variable length, or fix the "
            "length"
        )
    if config.exploration.restarts:
        raise ConfigError("random prefixes may break the rules of stopping; set exploration.restarts to 0")


def _check_graph(config: Config) -> None:
    """Refuse what only sequences have."""
    of_sequences = {
        "a transformer": config.model.body != "kmer",
        "a lower precision": config.model.precision != "float32",
        "restarts": config.exploration.restarts > 0,
    }
    _refuse(_of_one_task(config) | of_sequences, f"with {config.task}, whose states are no sequences")


def _of_one_task(config: Config) -> dict[str, bool]:
    """What belongs to one task of sequences, and whether it is given."""
    return {
        "constraints": config.constraints != ConstraintConfig(),
        "a table": config.table != TableConfig(),
        "motif matrices": config.motifs != MotifConfig(),
        "an oracle": config.oracle != OracleConfig(),
        "variable length": config.lengths.variable,
        "deletion and duplication": config.channel.deletion > 0 or config.channel.duplication > 0,
        "noise in the reward": config.reward_noise != "none",
        "a file of known sequences": config.evaluation.reference is not None,
    }


def _refuse(given: Mapping[str, bool], where: str) -> None:
    for what, is_given in given.items():
        if is_given:
            raise ConfigError(f"{what} cannot be had {where}; leave it out")


def _flags(layer: dict[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of arguments, with rules that are given as a whole and the task that a file stands for."""
    for argument, task in (("motif_matrix", MOTIF_TASK), ("table", TABLE_TASK)):
        if arguments["task"] is None and arguments[argument] is not None:
            layer = {**layer, "task": task}
    return merge(layer, {"constraints": dict(arguments["constraints"] or {})})


def _names(layer: Mapping[str, Any], section: str, setting: str) -> bool:
    """True when settings say something there; whether they are valid is found out later."""
    return isinstance(layer.get(section), Mapping) and layer[section].get(setting) not in (None, [])


def _moved(flags: dict[str, Any], setting: str, section: str) -> dict[str, Any]:
    """Flags whose setting of an oracle is one of another section."""
    value = flags.get("oracle", {}).pop(setting, None)
    return flags if value is None else merge(flags, {section: {setting: value}})

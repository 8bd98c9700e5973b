"""From settings to a task: by name, from a table or a function, with noise in the reward and under constraints."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from stochflow.config import Config, ConstraintConfig, TableConfig
from stochflow.constraints import ConstrainedTask
from stochflow.errors import ConfigError, DataError
from stochflow.oracles.task import PREFIX, OracleTask
from stochflow.tasks import TABLE_TASK, Reward, Task, make_task
from stochflow.tasks.measured import MeasuredTask
from stochflow.tasks.noise import with_noise
from stochflow.tasks.tables import Columns, Table, read_table

# what a table or an oracle is, apart from where it lies and how it is asked
_SAME = {"table": ("name", "alphabet", "scale", "sha256"), "oracle": ("length", "alphabet")}


def configured_task(config: Config, function: Callable[..., Any] | None = None) -> Task:
    """The task that the settings describe; nothing of a user's own code is imported here.

    Args:
        function: the oracle itself, where it cannot be imported by its name.
    """
    # constraints come last: a design that breaks one scores zero, however noisy measurements are
    task = with_noise(_plain_task(config, function), config.reward_noise)
    unconstrained = config.constraints == ConstraintConfig()
    return task if unconstrained else ConstrainedTask(task, config.constraints)


def _plain_task(config: Config, function: Callable[..., Any] | None) -> Task:
    """The task without noise and constraints."""
    if config.table.file is not None:
        return _table_task(config)
    if not config.task.startswith(PREFIX):
        return make_task(config.task)
    if config.reward_noise != "none":
        raise ConfigError(
            "an oracle is asked once for each design, so its measurements cannot differ; leave out the reward noise"
        )
    return OracleTask(config.task.removeprefix(PREFIX), config.oracle, function)


def _table_task(config: Config) -> MeasuredTask:
    if config.task != TABLE_TASK:
        raise ConfigError(f"there is a table, but the task is '{config.task}'; leave the task out or the table")
    task = verified_table(config.table).task(table_name(config.table), config.table.scale, "your table")
    _check_reward(task, Reward(**config.reward.model_dump()))
    return task


def table_name(table: TableConfig) -> str:
    """What a table's task is called: as the settings say, or after the file."""
    return table.name or Path(str(table.file)).stem


def verified_table(config: TableConfig) -> Table:
    """The table of a file, or an error when it does not say what it said before."""
    scores = tuple(name.strip() for name in config.score_column.split(",") if name.strip())
    if not scores:
        raise ConfigError("table.score_column is empty; name the column of the scores with --score-column")
    columns = Columns(config.sequence_column, scores, config.variance_column)
    table = read_table(Path(str(config.file)), columns, config.alphabet)
    if config.sha256 is not None and table.sha256 != config.sha256:
        raise DataError(
            f"the table {config.file} has changed since training began (SHA-256 {table.sha256[:12]}…, expected "
            f"{config.sha256[:12]}…); restore it, or train anew with another --out"
        )
    return table


def with_table_pinned(config: Config) -> tuple[Config, Table | None]:
    """The config with the table's whole path, name, letters and hash; and the table itself."""
    if config.table.file is None:
        return config, None
    table = verified_table(config.table)
    pinned = {
        "file": str(Path(config.table.file).resolve()),
        "name": table_name(config.table),
        "alphabet": table.letters,
        "sha256": table.sha256,
    }
    return config.model_copy(update={"table": config.table.model_copy(update=pinned)}), table


def copied_table(config: TableConfig, table: Table, file: str) -> TableConfig:
    """Settings that read the copy `table.text` under the name `file`."""
    columns = {
        "sequence_column": table.columns.sequence,
        "score_column": ",".join(table.columns.scores),
        "variance_column": table.columns.variance,
    }
    return config.model_copy(update={"file": file, **columns})


def same_setting(name: str, one: Config, other: Config) -> bool:
    """True when two configs agree in a setting: where a table lies and how an oracle is asked does not matter."""
    mine, others = getattr(one, name), getattr(other, name)
    if name not in _SAME:
        return bool(mine == others)
    return all(getattr(mine, field) == getattr(others, field) for field in _SAME[name])


def _check_reward(task: MeasuredTask, reward: Reward) -> None:
    """Refuse scores that all end at the floor, or beyond what a number can hold."""
    power = task.best_score**reward.beta if task.best_score < 1e300 else float("inf")
    if not reward.floor < power < 1e300:
        raise ConfigError(
            f"the best score of {task.name}, {task.best_score:g}, gives the reward {power:g}, which must lie above "
            f"reward.floor ({reward.floor:g}) and below 1e300; scale the scores with --set table.scale=unit"
        )

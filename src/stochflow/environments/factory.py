"""From settings to an environment: by name, from a table or a function, with noise, rules and constraints."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stochflow.config.environment import ConstraintConfig, MotifConfig, TableConfig
from stochflow.config.schema import Config
from stochflow.core.errors import ConfigError, DataError
from stochflow.environments.base import Environment
from stochflow.environments.channel_factory import with_edits
from stochflow.environments.graphs.environment import GraphEnvironment
from stochflow.environments.graphs.factory import configured_graph
from stochflow.environments.registry import MOTIF_TASK, PRETRAINING_TASK, make_task, names_graph
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.alphabets import named_alphabet
from stochflow.environments.sequences.constraints import ConstrainedTask
from stochflow.environments.sequences.environment import SequenceEnvironment, configured_channel
from stochflow.environments.sequences.lookup_task import MeasuredTask, Measurements
from stochflow.environments.sequences.motifs import MotifTask, motifs_of, read_motifs
from stochflow.environments.sequences.multi_task import MultiTaskEnvironment
from stochflow.environments.sequences.oracles.task import PREFIX, OracleFunction, OracleTask
from stochflow.environments.sequences.reward_noise import with_noise
from stochflow.environments.sequences.task import MAX_SCORE, Alphabet, Task
from stochflow.environments.sequences.user_table import Table, TableColumns, read_user_table
from stochflow.environments.sequences.variable_length import LengthRules, StopAlphabet, VariableTask
from stochflow.environments.settings import check_settings
from stochflow.environments.table_world import decided

TABLE_COPY = "table.csv"  # a run's own copy of its table
# name, alphabet, measurements and reward of a table to the task whose scores are predicted from it
Predict = Callable[[str, Alphabet, Measurements, Reward], Task]
# what a table or an oracle is, apart from where it lies and how it is asked
_SAME = {
    "table": ("name", "alphabet", "scale", "sha256", "world", "gap_score"),
    "oracle": ("length", "alphabet"),
    "motifs": ("length", "factors", "matrices"),
}


@dataclass(frozen=True)
class Configured:
    """What settings describe, built once.

    Attributes:
        config: the settings, with the whole path, name, letters, hash and bounds of length of their table.
        environment: task, channel and rules in one.
        table: the table of the user's own, as it was read; None without one.
    """

    config: Config
    environment: Environment
    table: Table | None = None

    @property
    def stored(self) -> Config:
        """The settings as a run keeps them, beside its own copy of the table."""
        if self.table is None:
            return self.config
        columns = self.table.columns
        copied = {
            "file": TABLE_COPY,
            "sequence_column": columns.sequence,
            "score_column": ",".join(columns.scores),
            "variance_column": columns.variance,
        }
        return self.config.model_copy(update={"table": self.config.table.model_copy(update=copied)})


def configure(
    config: Config, function: OracleFunction = None, predict: Predict | None = None, table: Table | None = None
) -> Configured:
    """The environment that the settings describe; nothing of a user's own code is imported here.

    Args:
        function: the oracle as the user has named it, without which it is never imported; or the oracle itself.
        predict: makes the task of a table that is evidence; models of the score are no part of an environment.
        table: that of the settings, if it was read already.
    """
    check_settings(config)
    if names_graph(config.task):
        return Configured(config, GraphEnvironment(configured_graph(config)))
    if config.task == PRETRAINING_TASK:
        tasks = [make_task(name) for name in config.pretraining.tasks]
        return Configured(config, MultiTaskEnvironment(tasks, configured_channel(config.channel, tasks[0])))
    channel = with_edits(config.channel, config.lengths.variable)
    config, table = with_table_pinned(with_motifs_pinned(config.model_copy(update={"channel": channel})), table)
    task = _configured_task(config, function, None if table is None else _TableSource(table, predict))
    environment = SequenceEnvironment(task, configured_channel(config.channel, task), config.feedback)
    return Configured(config, environment, table)


@dataclass(frozen=True)
class _TableSource:
    """A table and who predicts from it."""

    table: Table
    predict: Predict | None

    def task(self, config: Config, alphabet: Alphabet) -> Task:
        """The task of the world that the settings name."""
        name, reward = table_name(config.table), Reward(**config.reward.model_dump())
        if config.table.world == "measured":
            if self.predict is None:
                raise ConfigError("scores of a measured table need a model; train it, or say --world complete")
            return self.predict(name, alphabet, self.table.measurements(alphabet), reward)
        gap_score = config.table.gap_score or 0.0
        task = self.table.task(name, config.table.scale, "your table", alphabet, gap_score)
        _check_reward(task, reward)
        return task


def _configured_task(config: Config, function: OracleFunction, source: _TableSource | None) -> Task:
    if config.lengths.variable:
        task, rules = _variable_task(config, function, source)
        return VariableTask(with_noise(task, config.reward_noise), rules)
    # constraints come last: a design that breaks one scores zero, however noisy measurements are
    task = with_noise(_plain_task(config, function, source), config.reward_noise)
    return task if config.constraints == ConstraintConfig() else ConstrainedTask(task, config.constraints)


def _plain_task(config: Config, function: OracleFunction, source: _TableSource | None) -> Task:
    """The task without noise and constraints."""
    if source is not None:
        return source.task(config, Alphabet(source.table.letters))
    if config.task == MOTIF_TASK:
        return _motif_task(config.motifs)
    if not config.task.startswith(PREFIX):
        return make_task(config.task)
    return _oracle_task(config, function)


def _variable_task(config: Config, function: OracleFunction, source: _TableSource | None) -> tuple[Task, LengthRules]:
    """The task of designs that were written as intended, and the rules by which they are written."""
    if source is not None:
        table = source.table
        rules = _rules(config, len(table.letters), *table_bounds(config, table))
        return source.task(config, StopAlphabet(table.letters, rules)), rules
    lengths, oracle = config.lengths, config.oracle
    if lengths.max_length is None or oracle.length is not None or oracle.alphabet is None:
        raise ConfigError(
            "an oracle of variable length needs --max-length and --alphabet, and no --length; give the largest number "
            "of letters and what they are"
        )
    letters = named_alphabet(oracle.alphabet).letters
    rules = _rules(config, len(letters), lengths.min_length or 1, lengths.max_length)
    bounded = config.model_copy(update={"oracle": oracle.model_copy(update={"length": lengths.max_length})})
    return _oracle_task(bounded, function, StopAlphabet(letters, rules)), rules


def _rules(config: Config, num_letters: int, min_length: int, max_length: int) -> LengthRules:
    return LengthRules(num_letters, min_length, max_length, config.channel.deletion, config.channel.duplication)


def _oracle_task(config: Config, function: OracleFunction, alphabet: StopAlphabet | None = None) -> OracleTask:
    return OracleTask(config.task.removeprefix(PREFIX), config.oracle, function, alphabet)


def _motif_task(config: MotifConfig) -> MotifTask:
    """Promoters for matrices of the user's own, once they are pinned."""
    assert config.length is not None, "settings were checked"
    name = f"motifs:{config.name or '+'.join(config.factors)},{config.length}"
    return MotifTask(name, motifs_of(config.factors, config.matrices), config.length, "your matrices")


def table_bounds(config: Config, table: Table) -> tuple[int, int]:
    """Fewest and most letters of a design: as the settings say, or as in the table."""
    shortest, longest = table.lengths
    least, most = config.lengths.min_length or shortest, config.lengths.max_length or longest
    if not least <= shortest <= longest <= most:
        raise DataError(
            f"{config.table.file} has sequences of {shortest} to {longest} letters, and designs shall have {least} to "
            f"{most}; widen --min-length and --max-length, or remove those sequences"
        )
    return least, most


def title_of(config: Config) -> str:
    """What the task of a config is called, as far as it is known before anything is read."""
    if config.task == MOTIF_TASK:
        motifs = config.motifs
        return motifs.name or (MOTIF_TASK if motifs.file is None else Path(motifs.file).stem)
    return config.task if config.table.file is None else table_name(config.table)


def table_name(table: TableConfig) -> str:
    """What a table's task is called: as the settings say, or after the file."""
    return table.name or Path(str(table.file)).stem


def verified_table(settings: Config) -> Table:
    """The table of a file, or an error when it does not say what it said before."""
    config = settings.table
    scores = tuple(name.strip() for name in config.score_column.split(",") if name.strip())
    if not scores:
        raise ConfigError("table.score_column is empty; name the column of the scores with --score-column")
    columns = TableColumns(config.sequence_column, scores, config.variance_column)
    table = read_user_table(Path(str(config.file)), columns, config.alphabet, settings.lengths.variable)
    if config.sha256 is not None and table.sha256 != config.sha256:
        raise DataError(
            f"the table {config.file} has changed since training began (SHA-256 {table.sha256[:12]}…, expected "
            f"{config.sha256[:12]}…); restore it, or train anew with another --out"
        )
    return table


def with_motifs_pinned(config: Config) -> Config:
    """The config with the matrices of a file in the place of the file, so that a run needs it no more."""
    motifs = config.motifs
    if motifs.file is None:
        return config
    path = Path(motifs.file)
    found = read_motifs(path)
    pinned = {
        "file": None,
        "name": motifs.name or path.stem,
        "factors": [motif.name for motif in found],
        "matrices": [motif.probabilities.tolist() for motif in found],
    }
    return config.model_copy(update={"motifs": motifs.model_copy(update=pinned)})


def with_table_pinned(config: Config, table: Table | None = None) -> tuple[Config, Table | None]:
    """The config with the table's whole path, name, letters, hash, bounds of length and world; and the table itself."""
    if config.table.file is None:
        return config, None
    table = verified_table(config) if table is None else table
    pinned = {
        "file": str(Path(config.table.file).resolve()),
        "name": table_name(config.table),
        "alphabet": table.letters,
        "sha256": table.sha256,
    }
    config = config.model_copy(update={"table": config.table.model_copy(update=pinned)})
    if config.lengths.variable:
        least, most = table_bounds(config, table)
        lengths = config.lengths.model_copy(update={"min_length": least, "max_length": most})
        config = config.model_copy(update={"lengths": lengths})
    return decided(config, table), table


def same_setting(name: str, one: Config, other: Config) -> bool:
    """True when two configs agree in a setting: where a table lies and how an oracle is asked does not matter."""
    mine, others = getattr(one, name), getattr(other, name)
    if name == "evaluation" and mine.reference and others.reference:  # a run has its own copy
        others = others.model_copy(update={"reference": mine.reference})
    if name not in _SAME:
        return bool(mine == others)
    return all(getattr(mine, field) == getattr(others, field) for field in _SAME[name])


def _check_reward(task: MeasuredTask, reward: Reward) -> None:
    """Refuse scores that all end at the floor, or whose sums no number can hold."""
    if task.best_score > MAX_SCORE:
        raise ConfigError(
            f"the best score of {task.name} is {task.best_score:g} and may be {MAX_SCORE:g} at most; scale the scores "
            "with --set table.scale=unit"
        )
    if reward.beta * math.log(task.best_score) <= math.log(reward.floor):
        raise ConfigError(
            f"the best score of {task.name}, {task.best_score:g}, gives a reward that is not above reward.floor "
            f"({reward.floor:g}); scale the scores with --set table.scale=unit, or lower the floor"
        )

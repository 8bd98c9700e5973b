"""Whether a table is the whole world or evidence about it."""

from stochflow.config.environment import ConstraintConfig
from stochflow.config.schema import Config
from stochflow.core.errors import ConfigError, DataError
from stochflow.environments.sequences.constraints.task import Prefixes
from stochflow.environments.sequences.lookup_task import MeasuredTask
from stochflow.environments.sequences.task import Alphabet
from stochflow.environments.sequences.user_table import Table

_COUNTABLE = 1e300


def num_possible(config: Config, table: Table) -> int:
    """Number of sequences between the bounds of length that a table's letters allow."""
    shortest, longest = table.lengths
    least, most = config.lengths.min_length or shortest, config.lengths.max_length or longest
    return sum(len(table.letters) ** length for length in range(least, most + 1))


def num_missing(config: Config, table: Table) -> int:
    """Number of possible designs that a table does not have; where they can be listed, of feasible ones alone."""
    missing = num_possible(config, table) - len(table.sequences)
    if missing == 0 or config.constraints == ConstraintConfig() or config.lengths.variable:
        return missing
    alphabet = Alphabet(table.letters)
    task = MeasuredTask("table", alphabet, table.measurements(alphabet), "", "")
    return _num_missing_feasible(task, config.constraints) if task.enumerable else missing


def _num_missing_feasible(task: MeasuredTask, constraints: ConstraintConfig) -> int:
    feasible = Prefixes(constraints, task).alive(task.all_sequences)
    return int((feasible & ~task.is_measured(task.all_sequences)).sum())


def decided(config: Config, table: Table) -> Config:
    """The config with the world of its table: as it says, or measured where the table has gaps.

    Raises:
        ConfigError: a complete table has gaps, and nothing says what they are worth; or the settings of a measured
            table contradict each other.
    """
    settings = config.table
    missing = num_missing(config, table)
    world = settings.world or ("complete" if settings.gap_score is not None or missing == 0 else "measured")
    if world == "complete" and missing and settings.gap_score is None:
        raise DataError(
            f"{settings.file} lacks {counted(missing)} of {counted(num_possible(config, table))} possible sequences; "
            "say what they score, as in --gap-score 0, or take the table as evidence with --world measured"
        )
    if world == "measured":
        _check_measured(config)
    return config.model_copy(update={"table": settings.model_copy(update={"world": world})})


def _check_measured(config: Config) -> None:
    """Refuse what a table that is taken as evidence cannot have."""
    if config.table.gap_score is not None:
        raise ConfigError("--gap-score is for a table that is the whole world; leave it out, or say --world complete")
    if config.reward_noise != "none":
        raise ConfigError(
            "replicates and variances of a measured table are known to the prediction, whose scores do not differ from "
            "one time to the next; leave out --reward-noise, or say --world complete"
        )
    if config.budget.oracle_calls is not None:
        raise ConfigError(
            "predictions from a measured table are not paid for; give a budget of --trajectories, --steps or --minutes"
        )


def sentence(config: Config, table: Table) -> str:
    """One line that says how a table with gaps was understood."""
    rows, possible = f"{len(table.sequences):,}", counted(num_possible(config, table))
    return (
        f"{rows} of {possible} sequences are measured: the table is taken as evidence, and scores of other sequences "
        "are predicted (--world complete takes it as the whole world)"
    )


def counted(num: int) -> str:
    """A number in full, or with two digits where it is large.

    >>> counted(65_536), counted(4**20), counted(4**600)
    ('65,536', '1.1e+12', 'more than 1e+300')
    """
    if num < 10_000_000:
        return f"{num:,}"
    return f"{num:.2g}" if num < _COUNTABLE else f"more than {_COUNTABLE:g}"

"""Errors that a user can cause or correct. A message says what was given, what is allowed and what to do."""


class StochflowError(Exception):
    """Base of all errors that the command line reports as one sentence."""

    exit_code = 2


class ConfigError(StochflowError):
    """A setting is unknown, has the wrong type or lies outside its range."""


class DataError(StochflowError):
    """A data table, matrix file, run directory or checkpoint cannot be used as it is."""


class Note(UserWarning):
    """How something was understood that could be meant in two ways; the command line prints it as it is."""


class OracleError(StochflowError):
    """A score function failed or returned NaN, a negative score or the wrong number of scores."""


class DistributedError(StochflowError):
    """A process of a distributed run has ended."""

    exit_code = 1


class NumericsError(StochflowError):
    """A loss, gradient or weight is not finite; the last checkpoint is kept."""

    exit_code = 1

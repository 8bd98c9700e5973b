"""Errors a user can cause or mend. Each message says what was given, what is allowed and what to do."""


class StochflowError(Exception):
    """Base of all errors that the command line reports as one sentence."""

    exit_code = 2


class ConfigError(StochflowError):
    """A setting is unknown, has the wrong type or lies outside its range."""


class DataError(StochflowError):
    """A data table, matrix file, run directory or checkpoint cannot be used as it is."""


class OracleError(StochflowError):
    """A score function answered with NaN, a negative score or the wrong number of scores."""


class TeamError(StochflowError):
    """A process of a run that several processes share is gone."""

    exit_code = 1


class NumericsError(StochflowError):
    """A loss term stopped being finite during training; the last good checkpoint is kept."""

    exit_code = 1

"""Stochastic generative flow networks: samplers that build objects in a world that does not obey."""

from importlib.metadata import version

from stochflow.api import Run, doctor, evaluate, exact, load, report, sample, train
from stochflow.errors import ConfigError, DataError, NumericsError, OracleError, StochflowError
from stochflow.evaluation import Summary
from stochflow.sweeps.compare import Comparison, compare

__version__ = version("stochflow")
__all__ = [
    "Comparison",
    "ConfigError",
    "DataError",
    "NumericsError",
    "OracleError",
    "Run",
    "StochflowError",
    "Summary",
    "__version__",
    "compare",
    "doctor",
    "evaluate",
    "exact",
    "load",
    "report",
    "sample",
    "train",
]

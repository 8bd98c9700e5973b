"""Stochastic generative flow networks: samplers that build objects in a world that does not obey."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stochflow.api import Run, doctor, evaluate, exact, load, pretrain, report, sample, train
    from stochflow.core.errors import ConfigError, DataError, NumericsError, OracleError, StochflowError
    from stochflow.evaluation.summary import Summary
    from stochflow.experiments.sweep.compare import Comparison, compare

    __version__: str

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
    "pretrain",
    "report",
    "sample",
    "train",
]
_ERRORS = ("ConfigError", "DataError", "NumericsError", "OracleError", "StochflowError")
_PLACES = dict.fromkeys(_ERRORS, "core.errors") | {
    "Summary": "evaluation.summary",
    "Comparison": "experiments.sweep.compare",
    "compare": "experiments.sweep.compare",
}


def __getattr__(name: str) -> Any:
    """Imported when it is asked for: the command line must be able to start, and be stopped, before torch is there."""
    if name not in __all__:
        if name.startswith("_") or find_spec(f"stochflow.{name}") is None:
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        return import_module(f"stochflow.{name}")
    if name == "__version__":
        return import_module("importlib.metadata").version("stochflow")
    globals()[name] = found = getattr(import_module(f"stochflow.{_PLACES.get(name, 'api')}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

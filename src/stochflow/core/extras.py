"""Lazy imports of optional dependencies."""

from importlib import import_module
from types import ModuleType

from stochflow.core.errors import ConfigError


def extra(name: str, group: str = "forecast") -> ModuleType:
    """Import the module `name` of an optional dependency; a ConfigError names the extra that installs it.

    >>> extra("json").__name__
    'json'
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        package = name.split(".")[0]
        if (error.name or "").split(".")[0] != package:
            raise
        raise ConfigError(f"{package} is not installed; run `pip install 'stochflow[{group}]'`") from None

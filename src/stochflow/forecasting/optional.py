"""Packages of the optional extra `forecast`, imported when they are first needed."""

from importlib import import_module
from types import ModuleType

from stochflow.errors import ConfigError


def extra(name: str) -> ModuleType:
    """Module `name` of a package that only the extra brings."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        package = name.split(".")[0]
        if (error.name or "").split(".")[0] != package:
            raise
        raise ConfigError(f"{package} is not installed; run `pip install 'stochflow[forecast]'`") from None

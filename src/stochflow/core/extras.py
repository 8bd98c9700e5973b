"""Packages of optional extras, imported when they are first needed."""

from importlib import import_module
from types import ModuleType

from stochflow.core.errors import ConfigError


def extra(name: str, group: str = "forecast") -> ModuleType:
    """Module `name` of a package that only the extra `group` brings."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        package = name.split(".")[0]
        if (error.name or "").split(".")[0] != package:
            raise
        raise ConfigError(f"{package} is not installed; run `pip install 'stochflow[{group}]'`") from None

"""Settings in layers: merged in order, checked as a whole, and said in one sentence where they are wrong."""

import reprlib
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from stochflow.config.schema import Config
from stochflow.core.errors import ConfigError


def resolve(layers: list[dict[str, Any]]) -> Config:
    """One checked config from dictionaries, later ones over earlier ones; a new budget replaces the old one."""
    merged: dict[str, Any] = {}
    for layer in layers:
        if "budget" in layer:
            merged.pop("budget", None)
        merged = merge(merged, layer)
    try:
        return Config.model_validate(merged)
    except ValidationError as error:
        raise ConfigError(sentence_of(error, Config)) from None


def merge(base: dict[str, Any], top: dict[str, Any]) -> dict[str, Any]:
    """Nested settings, those of `top` over those of `base`."""
    merged = dict(base)
    for key, value in top.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def leaves(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested settings as `a.b` and value."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def sentence_of(error: ValidationError, settings: type[BaseModel]) -> str:
    """The first problem of a validation of `settings`, with what is allowed."""
    first = error.errors()[0]
    where = _name(first["loc"])
    if first["type"] == "extra_forbidden":
        return f"unknown setting '{where}'; known are: {', '.join(_known_fields(settings, first['loc'][:-1]))}"
    reason = first["msg"].removeprefix("Value error, ")
    given = first.get("input")
    shown = "" if isinstance(given, dict | BaseModel) else f" (given: {reprlib.repr(given)})"
    more = len({_name(problem["loc"]) for problem in error.errors()}) - 1
    tail = f", and {more} more problem{'s' if more > 1 else ''}" if more else ""
    return f"setting '{where}': {reason[:1].lower() + reason[1:]}{shown}{tail}; correct it or remove it"


def _name(location: tuple[int | str, ...]) -> str:
    """Dotted name of a setting, without the type names that pydantic adds for alternatives."""
    types = ("float", "list[float]", "str")
    return ".".join(str(part) for part in location if part not in types) or "config"


def _known_fields(settings: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    model: Any = settings
    for part in location:
        model = model.model_fields[str(part)].annotation
    return list(model.model_fields)

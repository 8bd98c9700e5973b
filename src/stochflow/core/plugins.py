"""What other packages register under a name: entry points of a group of ours."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from stochflow.core.errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def plugins(group: str, taken: Iterable[str] = ()) -> dict[str, EntryPoint]:
    """Entry points of a group by name, in alphabetical order; names that are `taken` stay with their owners."""
    from importlib.metadata import entry_points  # slow to import, and most commands ask for no plugin

    found = sorted(entry_points(group=group), key=lambda point: (point.name, package_of(point)))
    return {point.name: point for point in found if point.name not in set(taken)}


def package_of(point: EntryPoint) -> str:
    """The distribution that registers an entry point."""
    return "unknown" if point.dist is None else point.dist.name


def unusable(what: str, point: EntryPoint, reason: str) -> ConfigError:
    """The error for a plugin that does not work, with the package that it comes from.

    Args:
        what: it should be, "task" or "method".
        reason: "(why)" or ": why".
    """
    return ConfigError(
        f"the {what} '{point.name}' of the package {package_of(point)} cannot be used{reason}; "
        "update or uninstall that package"
    )


def reason_of(error: Exception) -> str:
    """An error of another package's code, on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())

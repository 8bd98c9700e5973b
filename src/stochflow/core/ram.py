"""Available memory, and an error for runs that need more."""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from stochflow.core.errors import ConfigError

try:  # not on every system
    import resource
except ImportError:
    resource = None  # type: ignore[assignment]  # a module, where there is one

_GIGABYTE = 2**30
_CGROUP = Path("/sys/fs/cgroup/memory.max")
_FALLBACK = 8 * _GIGABYTE


def available() -> int:
    """Bytes that this process may use: physical memory, or the limit of a container or of `ulimit`."""
    try:
        limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    except (AttributeError, ValueError, OSError):
        limits = [_FALLBACK]
    with contextlib.suppress(OSError, ValueError):  # no cgroup limit
        limits.append(int(_CGROUP.read_text(encoding="ascii")))
    if resource is not None:
        for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
            soft = resource.getrlimit(kind)[0]
            if soft != resource.RLIM_INFINITY:
                limits.append(max(soft - _in_use(), 0))
    return min(limits)


def require(needs: Mapping[str, float], remedy: str = "") -> None:
    """Raise a ConfigError if the parts of a run need more memory than is available.

    Args:
        needs: lower bound in bytes by the setting that determines it.
        remedy: what to do; by default to lower the setting with the largest need.
    """
    total, there = sum(needs.values()), available()
    if total <= there:
        return
    largest = max(needs, key=lambda name: needs[name])
    raise ConfigError(
        f"this needs {_shown(total)} of memory at least, most of it for {largest}, and there are {_shown(there)}; "
        f"{remedy or 'lower that'}"
    )


def _shown(num_bytes: float) -> str:
    return f"{num_bytes / _GIGABYTE:,.1f} GB" if num_bytes < 1e15 else "more than 900,000 GB"


def _in_use() -> int:
    """Address space of this process in bytes; 0 where it is unknown."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return 0

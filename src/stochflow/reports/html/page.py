"""Self-contained HTML file from title, style, body, data and script, with plotly.js inline."""

import html
import importlib
import json
import platform
from importlib import metadata
from pathlib import Path
from string import Template
from typing import Any

from stochflow.core.errors import ConfigError, DataError
from stochflow.core.files import write_atomically
from stochflow.reports.html.shell import SHELL

_VERSIONS = ("stochflow", "torch", "numpy", "pandas", "plotly")


def assemble(title: str, *, style: str, body: str, data: Any, script: str, plotly: str) -> str:
    """The page as text. `title` is escaped; `style`, `body` and `script` are trusted; `data` becomes JSON."""
    return Template(SHELL).substitute(
        title=html.escape(title), style=style, body=body, data=script_json(data), script=script, plotly=plotly
    )


def script_json(value: Any) -> str:
    """JSON that is safe inside a script element, with "<" escaped."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def plotly_js(what: str) -> str:
    """Source of plotly.js from the installed package; `what` names the page in the error message."""
    try:
        return str(importlib.import_module("plotly.offline").get_plotlyjs())
    except ImportError:
        raise ConfigError(f"{what} needs plotly; run pip install 'stochflow[report]'") from None


def write_page(path: Path, page: str) -> None:
    """Write the page atomically; a DataError if that fails."""
    try:
        write_atomically(path, page)
    except OSError as error:
        raise DataError(
            f"{path}: cannot be written ({error.strerror}); choose a folder that exists and has room"
        ) from None


def versions() -> str:
    """Versions of Python and of the main packages as text."""
    found = [f"Python {platform.python_version()}"]
    for name in _VERSIONS:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(found)

"""Self-contained HTML file from title, body and figures, with plotly.js inline."""

import html
import json
import os
from pathlib import Path
from string import Template
from typing import Any

from stochflow.core.errors import ConfigError
from stochflow.core.extras import extra
from stochflow.core.files import unwritable, write_atomically
from stochflow.reports.html.template import PAGE
from stochflow.runs.directory import versions


def check_target(path: Path) -> None:
    """Refuse a name that is not that of an HTML file."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"the report is an HTML page, but --out is {path}; give a name that ends in .html")
    if os.path.isdir(path):
        raise ConfigError(f"{path} is a folder; choose a file for --out")


def plotly_js() -> str:
    """Source of plotly.js from the installed package."""
    return str(extra("plotly.offline", "report").get_plotlyjs())


def assemble(title: str, body: str, figures: Any, plotly: str) -> str:
    """The page as text. `title` is escaped, `body` and the source of plotly.js are trusted; `figures` become JSON."""
    return Template(PAGE).substitute(title=html.escape(title), body=body, data=script_json(figures), plotly=plotly)


def script_json(value: Any) -> str:
    """JSON that is safe inside a script element, with "<" escaped."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def write_page(path: Path, page: str) -> None:
    """Write the page atomically; a ConfigError if that fails."""
    try:
        write_atomically(path, page)
    except OSError as error:
        raise unwritable(path, error) from None


def made_with() -> str:
    """Versions of Python and of the packages that determine the numbers, as a sentence."""
    return f"Page made with: {', '.join(f'{name} {version}' for name, version in versions().items())}."

"""Hooks of the documentation site: pages that are generated when it is built.

`reference/cli.md` comes from the commands themselves, and every notebook below `docs/` becomes a page with the outputs
that are stored in it.
"""

from __future__ import annotations

import base64
import inspect
import json
from pathlib import Path
from typing import Any

import typer.main
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

from stochflow.cli.app import app

OUTPUT = 'text title="Output"'


def cell(text: str) -> str:
    """Text as one cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def meaning_of(given: Any) -> tuple[str, str]:
    """Help and default of a parameter; the help of many ends with its default."""
    text, _, said = (given.help or "").partition("[default:")
    if said:
        return text.strip(), said.strip().removesuffix("]")
    if given.required:
        return text, "required"
    shown = given.default not in (None, False, (), []) and not callable(given.default)
    return text, str(given.default) if shown else ""


def rows(command: Any) -> list[str]:
    """Arguments, then options: names, meaning, default."""
    found = []
    for given in command.params:
        if given.name == "help" or given.hidden:
            continue
        option = given.opts[0].startswith("-")
        names = [*given.opts, *given.secondary_opts] if option else [given.metavar or given.name.upper()]
        text, default = map(cell, meaning_of(given))
        found.append(f"| {', '.join(f'`{name}`' for name in names)} | {text} | {default} |")
    return found


def section(command: Any, path: str, level: int) -> list[str]:
    """A command with its options, and below it its own commands."""
    lines = [f"{'#' * level} `{path}`", ""]
    if command.help:
        lines += [inspect.cleandoc(command.help).replace("\b", "").replace("<", "&lt;"), ""]
    if found := rows(command):
        lines += ["| argument or option | meaning | default |", "|---|---|---|", *found, ""]
    for name, each in getattr(command, "commands", {}).items():
        lines += section(each, f"{path} {name}", level + 1)
    return lines


def command_line() -> str:
    """The reference of all commands as Markdown."""
    command = typer.main.get_command(app)
    intro = "Every command and every option, as the commands declare them; `stochflow COMMAND --help` says the same."
    lines = ["# Command line", "", intro, ""]
    for name, each in command.commands.items():
        lines += section(each, f"stochflow {name}", 2)
    return "\n".join(lines)


def output_of(output: dict[str, Any]) -> str:
    """A stored output of a cell as Markdown: a picture, a table, or text."""
    data = output.get("data", {})
    if "image/png" in data:
        picture = "".join(data["image/png"]).replace("\n", "")
        base64.b64decode(picture, validate=True)
        words = "".join(data.get("text/plain", "figure"))
        alt = words if not words.startswith("<") else "figure"
        return f'<img alt="{alt}" src="data:image/png;base64,{picture}">\n'
    text = "".join(output.get("text", data.get("text/plain", "")))
    return f"```{OUTPUT}\n{text.rstrip()}\n```\n" if text.strip() else ""


def notebook(path: Path) -> str:
    """A notebook as Markdown, cell by cell."""
    parts = []
    for each in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(each["source"])
        if each["cell_type"] == "markdown":
            parts.append(source + "\n")
        elif each["cell_type"] == "code":
            parts.append(f"```python\n{source}\n```\n")
            parts += [output_of(output) for output in each["outputs"]]
    return "\n".join(parts)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """No page asks another machine for anything: the search of files has its own worker."""
    own = get_relative_url("javascripts/file-worker.js", page.url)
    return output.replace("https://unpkg.com/iframe-worker/shim", own)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages; a notebook can also be downloaded as it is."""
    files.append(File.generated(config, "reference/cli.md", content=command_line()))
    for path in sorted(Path(config.docs_dir).rglob("*.ipynb")):
        name = path.relative_to(config.docs_dir)
        download = f"\n[Download this notebook]({name.name})\n"
        files.append(File.generated(config, str(name.with_suffix(".md")), content=notebook(path) + download))
    return files

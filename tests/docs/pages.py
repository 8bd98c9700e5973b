"""The pages of the project as the tests read them: text, code blocks, links and anchors."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TOP = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY", "RELEASING", "CHANGELOG")]
PAGES = [*TOP, *sorted((ROOT / "benchmarks").glob("*.md")), *sorted(DOCS.rglob("*.md"))]
RUN = {"sh", "python"}
# what a program printed, and the content of files
SHOWN = {"text", "csv", "yaml", "toml", "bibtex"}
_BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text and the line where it begins."""

    language: str
    text: str
    line: int


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def blocks_of(path: Path) -> list[Block]:
    text = text_of(path)
    return [Block(m[1].strip(), m[2], text[: m.start()].count("\n") + 1) for m in _BLOCK.finditer(text)]


def prose_of(path: Path) -> str:
    """A page without its blocks."""
    return _BLOCK.sub("", text_of(path))


def links_of(path: Path) -> Iterator[tuple[Path, str]]:
    """Files and anchors that a page points to inside the project."""
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", prose_of(path))):
        if not re.match(r"[a-z]+:", target):
            file, _, anchor = target.partition("#")
            yield (path.parent / file).resolve() if file else path, anchor


def anchors_of(path: Path) -> set[str]:
    """Anchors of the headings, as both the site and forges that show Markdown make them."""
    headings = re.findall(r"^#+ (.*)$", prose_of(path), flags=re.MULTILINE)
    words = [re.sub(r"[^\w\s-]", "", heading.replace("`", "")).strip().lower() for heading in headings]
    return {re.sub(r"[\s-]+", "-", each) for each in words}


def source_of(path: Path) -> Path:
    """What a page of the site is made from: a notebook has a page of its name."""
    notebook = path.with_suffix(".ipynb")
    return notebook if notebook.exists() else path

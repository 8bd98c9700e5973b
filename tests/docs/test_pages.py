"""Pages name nothing that does not exist: links, files, functions, settings, options, and figures that are repeated."""

import ast
import csv
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import median

import pytest
import typer.main
import yaml
from pydantic import BaseModel

import stochflow
from stochflow.cli.app import app
from stochflow.config.methods import METHODS
from stochflow.config.schema import Config
from tests.docs.pages import (
    DOCS,
    PAGES,
    ROOT,
    RUN,
    SHOWN,
    anchors_of,
    blocks_of,
    links_of,
    name_of,
    prose_of,
    source_of,
)

SOURCE = ROOT / "src/stochflow"
GENERATED = {DOCS / "reference/cli.md"}
PYTHON = sorted(path for part in ("src", "benchmarks", "examples", "scripts") for path in (ROOT / part).rglob("*.py"))


@cache
def definitions(path: Path) -> set[str]:
    """Classes, functions, methods, attributes and parameters of a file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.arg(arg=name) | ast.Attribute(attr=name, ctx=ast.Store()):
                found.add(name)
    return found


@cache
def all_definitions() -> set[str]:
    return set().union(*map(definitions, PYTHON))


@cache
def all_words() -> set[str]:
    """Whatever stands in the code as a word, in strings too: columns, keys, names of tasks."""
    return set(re.findall(r"\w+", all_text()))


@cache
def all_text() -> str:
    files = [*PYTHON, *(ROOT / "tests/fuzz").glob("*.py"), ROOT / "pyproject.toml", ROOT / "Makefile"]
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


def composed(name: str) -> bool:
    """Whether the code puts a name together, as in f"surrogate_{kind}"."""
    cuts = [match.start() for match in re.finditer("_", name)]
    return any(f'f"{name[:cut]}_{{' in all_text() or f'}}{name[cut:]}"' in all_text() for cut in cuts)


@cache
def options() -> set[str]:
    """Options of all commands, and of the programs of the project."""
    found, commands = {"--help", "--version"}, [typer.main.get_command(app)]
    while commands:
        command = commands.pop()
        commands += getattr(command, "commands", {}).values()
        found |= {name for given in command.params for name in (*given.opts, *given.secondary_opts)}
    for path in PYTHON:
        found |= set(re.findall(r'"(--[a-z-]+)"', path.read_text(encoding="utf-8")))
    return found


def settings(model: type[BaseModel] = Config, prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield prefix + name
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from settings(field.annotation, f"{prefix}{name}.")


def exists(path: str) -> bool:
    places = (ROOT, SOURCE, ROOT / "benchmarks", ROOT / "tests")
    return any(any(place.glob(path)) for place in places)


SETTINGS = set(settings())
SECTIONS = {name.split(".")[0] for name in SETTINGS if "." in name}
# of other packages: they are named to say what is done with them
FOREIGN = {
    *("DistributedDataParallel", "DataFrame", "GridWorld", "SqlAlchemy", "SQLAlchemy", "MLflow", "WandB", "PyTorch"),
    *(
        "use_deterministic_algorithms",
        "all_reduce",
        "blahut_arimoto",
        "stack_module_state",
        "avx512_bf16",
        "my_package",
    ),
}


def spans(path: Path) -> Iterator[str]:
    yield from re.findall(r"`([^`\n]+)`", prose_of(path))


def missing(name: str) -> bool:
    """Whether a piece of code in the prose of a page looks like a name of ours and is none."""
    if re.fullmatch(r"[a-z_]+/[a-z_/]+\.py|(src|docs|tests|benchmarks|examples|scripts)/[\w*./-]+", name):
        return not exists(name)
    if re.search(r"\.(csv|txt|yaml|html|jsonl?|sqlite)$", name):
        return False
    if re.fullmatch(r"--[a-z][a-z-]*", name):
        return name not in options()
    if re.fullmatch(r"[a-z]+\.[a-z_]+", name) and name.split(".")[0] in SECTIONS:
        return name not in SETTINGS
    if re.fullmatch(r"[A-Z][a-z]+[A-Z]\w*", name):
        return name not in all_definitions()
    if re.fullmatch(r"[a-z]+(_[a-z]+)+", name):
        return name not in all_words() and not composed(name)
    return False


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_links_lead_somewhere(path: Path) -> None:
    for file, anchor in links_of(path):
        assert file in GENERATED or source_of(file).exists(), f"{name_of(path)} links to {file}"
        if anchor and file.suffix == ".md" and file not in GENERATED and file.exists():
            assert anchor in anchors_of(file), f"{name_of(path)} links to {file}#{anchor}"


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_every_block_is_run_or_marked_as_shown(path: Path) -> None:
    assert {block.language.split()[0] if block.language else "" for block in blocks_of(path)} <= RUN | SHOWN


@pytest.mark.parametrize(
    "path", [path for path in PAGES if path.stem not in ("CHANGELOG", "seed-documents")], ids=name_of
)
def test_pages_name_nothing_that_does_not_exist(path: Path) -> None:
    theirs = set(spans(DOCS / "explanation/seed-documents.md"))
    assert sorted({name for name in spans(path) if missing(name)} - FOREIGN - theirs) == []


def test_a_name_that_does_not_exist_is_found() -> None:
    wrong = ["objectives/no_such.py", "--no-such-option", "plan.nothing", "NoSuchClass", "no_such_function"]
    right = ["objectives/base.py", "--noise", "plan.rounds", "PlannedKL", "db_residual", "gfn-tb", "a|s", "μ"]
    assert [name for name in [*wrong, *right] if missing(name)] == wrong


def method_table() -> list[tuple[str, str]]:
    """(names, files) of every row of the last table of the method."""
    text = prose_of(DOCS / "explanation/method.md").split("## Where to find it in the code")[1]
    rows = [line.strip("| ").replace("\\|", "¦").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [(names, files) for _, names, files in rows[1:]]


@pytest.mark.parametrize(("names", "files"), method_table())
def test_the_method_says_where_each_quantity_is(names: str, files: str) -> None:
    paths = [SOURCE / name for name in re.findall(r"`([^`]+)`", files)]
    assert paths
    known = set().union(*map(definitions, paths)) | SETTINGS
    for name in re.findall(r"`([^`]+)`", names):
        parts = [name] if name in known else name.split(".")
        assert set(parts) <= known, f"{name} is not in {files}"


def seed_rows() -> list[list[str]]:
    text = prose_of(DOCS / "explanation/seed-documents.md").split("## Name by name")[1].split("\n## ")[0]
    return [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `") or "| the " in line]


def test_the_seed_documents_meet_names_that_exist() -> None:
    known = all_definitions() | SETTINGS | set(METHODS) | options() | {"dynamics.depends_on=state"}
    known |= {"model.body=transformer"}
    rows = seed_rows()
    assert len(rows) > 25
    for _, ours, _ in rows:
        for name in re.findall(r"`([^`]+)`", ours):
            assert name in known or set(name.split(".")) <= known, name


def test_every_public_name_is_in_the_reference() -> None:
    text = " ".join(path.read_text(encoding="utf-8") for path in (DOCS / "reference/api").glob("*.md"))
    told = re.findall(r"^::: stochflow\.(\w+)$", text.replace(" :::", "\n:::"), flags=re.MULTILINE)
    assert sorted(told) == sorted(set(stochflow.__all__) - {"__version__"})


def test_every_page_of_the_documentation_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:")[1]
    told = set(re.findall(r"[\w/-]+\.md", text))
    pages = {
        str(path.relative_to(DOCS).with_suffix(".md")) for end in ("md", "ipynb") for path in DOCS.rglob(f"*.{end}")
    }
    assert told == pages | {"reference/cli.md"}


def test_the_version_is_the_same_everywhere() -> None:
    (project,) = re.findall(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), flags=re.MULTILINE)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == project
    assert f"version = {{{project}}}" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_table_of_the_readme_has_the_medians_of_its_runs() -> None:
    with (ROOT / "benchmarks/results/rivals.csv").open(encoding="utf-8") as file:
        runs = list(csv.DictReader(file))
    text = (ROOT / "README.md").read_text(encoding="utf-8").split("| slip 0.5 |")[1]
    rows = re.findall(r"^\| `([\w-]+)`[^|]*\| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", text, flags=re.MULTILINE)
    assert len(rows) == 8
    for method, *shown in rows:
        for noise, figure in zip(("0.1", "0.25", "0.5"), shown, strict=True):
            regrets = [float(run["regret"]) for run in runs if (run["method"], run["noise"]) == (method, noise)]
            assert len(regrets) == 5
            assert f"{median(regrets):.3f}" == figure


def test_source_and_tests_name_pages_that_exist() -> None:
    for path in [*PYTHON, *(ROOT / "tests").rglob("*.py")]:
        for page in re.findall(r"\bdocs/[\w/-]+\.md\b", path.read_text(encoding="utf-8")):
            assert (ROOT / page).exists(), f"{path} names {page}"

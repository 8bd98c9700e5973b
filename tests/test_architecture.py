"""One direction: a module imports only from what stands before it. And what no module may do."""

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import stochflow

SOURCE = Path(stochflow.__file__).parent
# From first to last: a module may import from earlier packages and from its own.
ORDER = [
    *("core", "config", "environments", "truth", "models", "surrogates", "sampling", "objectives", "evaluation"),
    *("runs", "training", "experiments", "reports", "forecasting", "campaigns"),
    *("overview", "api", "__init__", "studio", "cli", "__main__"),
]
RANK = {part: rank for rank, part in enumerate(ORDER)}
MODULES = sorted(SOURCE.rglob("*.py"))
# drawing functions of torch: with a generator they are fine, without one they read the global state
DRAWS = {
    *("rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "poisson", "dropout"),
    *("normal_", "uniform_", "random_", "bernoulli_", "exponential_", "geometric_", "log_normal_", "cauchy_"),
    *("xavier_uniform_", "xavier_normal_", "kaiming_uniform_", "kaiming_normal_", "orthogonal_", "trunc_normal_"),
    *("rand_like", "randn_like", "randint_like"),
}
MAX_LINES = 400
MAX_PARAMETERS = 8
# what users call may have one parameter per option
PUBLIC_MODULES = {"api", "__init__", "forecasting.forecaster", "forecasting.sktime"}
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "random"}
FORBIDDEN_CALLS = {
    *("eval", "exec", "compile", "__import__", "torch.load", "torch.save", "yaml.load", "yaml.unsafe_load"),
    *("yaml.full_load", "yaml.load_all", "torch.manual_seed", "torch.seed", "np.random.seed", "numpy.random.seed"),
    *("pd.read_pickle", "np.load", "os.system"),
}


def name_of(path: Path) -> str:
    """`truth.dag` for src/stochflow/truth/dag.py; a folder's own `__init__` has the folder's name."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


NAMES = {name_of(path) for path in MODULES}


def part_of(name: str) -> str:
    return name.split(".")[0]


@cache
def parsed(text: str) -> tuple[ast.Module, list[ast.AST]]:
    """The tree of a module and all of its nodes; many tests ask for the same."""
    tree = ast.parse(text)
    return tree, list(ast.walk(tree))


def nodes_of(path: Path) -> list[ast.AST]:
    return parsed(path.read_text(encoding="utf-8"))[1]


def imported(path: Path) -> Iterator[str]:
    """Names of the package's own modules that a file imports, wherever in the file."""
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if part_of(alias.name) == "stochflow":
                    yield alias.name.removeprefix("stochflow").removeprefix(".") or "__init__"
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively; write the whole name"
            module = node.module or ""
            if part_of(module) != "stochflow":
                continue
            base = module.removeprefix("stochflow").removeprefix(".")
            for alias in node.names:
                submodule = f"{base}.{alias.name}".removeprefix(".")
                yield submodule if submodule in NAMES else base or "__init__"


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    """Every call with the dotted name of what is called, as far as it can be read off."""
    for node in nodes_of(path):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def test_every_module_has_a_place_in_the_order() -> None:
    assert len(ORDER) == len(set(ORDER))
    assert {part_of(name) for name in NAMES} == set(ORDER)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_imports_only_from_what_stands_before_it(path: Path) -> None:
    here = part_of(name_of(path))
    for name in imported(path):
        there = part_of(name)
        assert there == here or RANK[there] < RANK[here], f"{name_of(path)} must not import {name}"


def test_only_models_import_the_engine() -> None:
    others = [path for path in MODULES if part_of(name_of(path)) != "models"]
    assert not [path for path in others if any(f"{name}.".startswith("models.engine.") for name in imported(path))]


def test_the_studio_stands_on_the_public_functions_alone() -> None:
    studio = [path for path in MODULES if part_of(name_of(path)) == "studio"]
    assert studio
    assert {part_of(name) for path in studio for name in imported(path)} == {"__init__", "core", "studio"}


def test_no_imports_go_in_a_circle() -> None:
    graph = {name_of(path): set(imported(path)) - {name_of(path)} for path in MODULES}
    assert len(list(TopologicalSorter(graph).static_order())) == len(NAMES)


def test_the_reader_of_imports_sees_every_form(tmp_path: Path) -> None:
    path = tmp_path / "example.py"
    path.write_text(
        "import stochflow\nimport stochflow.api as a, os\nfrom stochflow import core as c, __version__\n"
        "from stochflow.truth.dag import solve\nfrom stochflow.sampling import rollout\nfrom pathlib import Path\n"
        "def late():\n    from stochflow.cli import main\n",
        encoding="utf-8",
    )
    assert list(imported(path)) == ["__init__", "api", "core", "__init__", "truth.dag", "sampling.rollout", "cli"]


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_only_the_command_line_prints(path: Path) -> None:
    if part_of(name_of(path)) != "cli":
        assert not [name for name, _ in calls(path) if name in ("print", "sys.stdout.write", "sys.stderr.write")]


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_nothing_that_was_stored_can_run_code(path: Path) -> None:
    assert not {name for name, _ in calls(path)} & FORBIDDEN_CALLS
    for node in nodes_of(path):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not {part_of(name) for name in names} & FORBIDDEN_MODULES


def draws_from_global_state(path: Path) -> list[str]:
    return [
        name
        for name, call in calls(path)
        if (name.split(".")[-1] in DRAWS and not any(keyword.arg == "generator" for keyword in call.keywords))
        or name.startswith(("np.random.", "numpy.random."))
    ]


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_randomness_comes_from_a_generator_that_was_passed(path: Path) -> None:
    assert draws_from_global_state(path) == []


@pytest.mark.parametrize(
    "line",
    [
        "x = torch.rand(3)",
        "x = torch.multinomial(p, 1, True)",
        "weight.normal_(std=0.1)",
        "nn.init.kaiming_uniform_(weight)",
        "x = np.random.default_rng().normal()",
    ],
)
def test_a_draw_without_a_generator_is_found(line: str, tmp_path: Path) -> None:
    path = tmp_path / "example.py"
    path.write_text(line, encoding="utf-8")
    assert draws_from_global_state(path)
    path.write_text("x = torch.rand(3, generator=generator)\n", encoding="utf-8")
    assert not draws_from_global_state(path)


def test_no_file_is_long() -> None:
    assert not [path for path in MODULES if len(path.read_text(encoding="utf-8").splitlines()) > MAX_LINES]


def functions_with_many_parameters(path: Path, exempt: frozenset[str] = frozenset()) -> list[str]:
    """Names of functions with more than `MAX_PARAMETERS`, self excluded; exempt names and their methods left out."""
    found = []
    nodes = [(node, "") for node in parsed(path.read_text(encoding="utf-8"))[0].body]
    while nodes:
        node, owner = nodes.pop()
        name = getattr(node, "name", "")
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not {owner, name} & exempt:
            given = node.args
            names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
            names += [each.arg for each in (given.vararg, given.kwarg) if each is not None]
            if len(set(names) - {"self", "cls"}) > MAX_PARAMETERS:
                found.append(name)
        inside = name if isinstance(node, ast.ClassDef) else owner
        nodes += [(child, inside) for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]
    return found


def test_functions_that_are_not_public_have_few_parameters() -> None:
    inner = [path for path in MODULES if part_of(name_of(path)) != "cli" and name_of(path) not in PUBLIC_MODULES]
    exempt = frozenset(stochflow.__all__)
    assert {name_of(path): found for path in inner if (found := functions_with_many_parameters(path, exempt))} == {}


def test_a_function_with_many_parameters_is_found(tmp_path: Path) -> None:
    path = tmp_path / "example.py"
    eight = "a, b, c, /, d, e, *f, g, h"
    path.write_text(
        f"class Known:\n    def method(self, {eight}): ...\n    def many(self, {eight}, i): ...\n"
        f"def outer():\n    if True:\n        def inner({eight}, **i): ...\n",
        encoding="utf-8",
    )
    assert sorted(functions_with_many_parameters(path)) == ["inner", "many"]
    assert functions_with_many_parameters(path, frozenset({"Known"})) == ["inner"]

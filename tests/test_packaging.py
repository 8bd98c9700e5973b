"""Source distribution and wheel hold all that an installed stochflow needs."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ("src", "pyproject.toml", "README.md", "LICENSE", "NOTICE")

# no PYTHONPATH
ALONE = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"}


def build(kind: str, tree: Path, out: Path) -> Path:
    """What setuptools makes of a source tree, without the network: "wheel" or "sdist"."""
    code = f"from setuptools.build_meta import build_{kind}; print(build_{kind}({str(out)!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The source distribution, the wheel of the source tree, and the wheel of the source distribution."""
    folder = tmp_path_factory.mktemp("packages")
    tree = folder / "tree"
    tree.mkdir()
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
        else:
            shutil.copy2(source, tree / name)
    sdist = build("sdist", tree, folder)
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    (folder / "second").mkdir()
    return {
        "sdist": sdist,
        "wheel": build("wheel", tree, folder),
        "wheel of the sdist": build("wheel", unpacked, folder / "second"),
    }


def test_the_source_distribution_gives_the_same_wheel(packages):
    names, again = (sorted(zipfile.ZipFile(packages[kind]).namelist()) for kind in ("wheel", "wheel of the sdist"))
    assert names == again
    modules = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src" / "stochflow").rglob("*.py")}
    assert modules <= set(names)
    assert any(name.endswith("NOTICE") for name in names)


def test_the_wheel_works_from_outside_the_source_tree(packages, tmp_path):
    """Dependencies come from the environment of the tests, stochflow from nowhere but the wheel."""
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    python = tmp_path / "env" / "bin" / "python"
    site = Path(sysconfig.get_path("purelib", vars={"base": str(tmp_path / "env")}))
    install = [sys.executable, "-m", "pip", "--python", str(python), "install"]
    install += ["--no-deps", "--no-index", "--no-compile"]
    subprocess.run([*install, str(packages["wheel of the sdist"])], check=True, capture_output=True, env=ALONE)
    # a path in a .pth file comes last, and the .pth files over there are not read: no editable install
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (tmp_path / "work").mkdir()
    shutil.copy2(ROOT / "tests" / "smoke.py", tmp_path)
    done = subprocess.run(
        [python, tmp_path / "smoke.py"],
        cwd=tmp_path / "work",
        env=ALONE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "smoke test passed\n", done.stderr

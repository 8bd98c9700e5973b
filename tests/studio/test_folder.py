from pathlib import Path

import pytest

from stochflow import ConfigError, DataError
from stochflow.studio.folder import Folder, clean_name


@pytest.mark.parametrize(
    "path", ["..", "../other", "/etc", "a/../../b", ".studio/jobs", "a/.git", "a\0b", "link", "link/x"]
)
def test_no_path_leads_out_of_the_folder(path: str, folder: Folder, tmp_path: Path) -> None:
    (folder.root / "link").symlink_to(tmp_path)
    with pytest.raises(DataError, match="is not in the folder of this studio"):
        folder.inside(path)


def test_runs_of_a_sweep_are_inside(folder: Folder) -> None:
    assert folder.relative(folder.inside("sweep/runs/first")) == "sweep/runs/first"


@pytest.mark.parametrize(
    "name", ["../../evil.csv", "/etc/passwd", ".bashrc", "a\nb", "ü", "", "x" * 500, "CON:", "a/b\\c"]
)
def test_names_are_plain(name: str) -> None:
    clean = clean_name(name)
    assert clean
    assert len(clean) <= 60
    assert not set(clean) - set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
    assert not clean.startswith(".")


def test_what_is_there_is_not_replaced(folder: Folder) -> None:
    (folder.root / "first").mkdir()
    with pytest.raises(ConfigError, match="there is a 'first' in this folder already"):
        folder.fresh("first")


def test_uploads_are_kept_by_ids_that_nobody_can_make_up(folder: Folder) -> None:
    assert folder.stored(folder.store("a b.csv", b"x")).read_bytes() == b"x"
    for key in ("", "../..", "0" * 16, "*" * 16):
        with pytest.raises(DataError, match="choose it again"):
            folder.stored(key)


def test_old_uploads_go(folder: Folder) -> None:
    keys = [folder.store("a.csv", b"x") for _ in range(60)]
    assert len(list((folder.hidden / "uploads").iterdir())) == 50
    assert folder.stored(keys[-1]).exists()

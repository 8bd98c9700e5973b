"""A file is either whole or as it was before."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from stochflow.core.files import sync_folder, write_atomically


class PowerCut(BaseException):
    """Not an Exception, like KeyboardInterrupt: nothing may swallow it."""


@pytest.mark.parametrize("content", ["", "Δ, ACGT\n", b"", b"\x00\xff\r\n"])
def test_what_was_written_is_read_back_byte_for_byte(content: str | bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"much longer than what comes after it")
    write_atomically(path, content)
    assert path.read_bytes() == (content.encode("utf-8") if isinstance(content, str) else content)
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("step", ["fsync", "chmod", "replace"])
@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), PowerCut()])
def test_a_write_that_fails_leaves_the_old_file_and_no_temporary(
    step: str, failure: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise failure

    path = tmp_path / "file"
    path.write_text("old", encoding="utf-8")
    monkeypatch.setattr(os, step, fail)
    with pytest.raises(type(failure)):
        write_atomically(path, "new")
    monkeypatch.undo()
    assert path.read_text(encoding="utf-8") == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_first_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise PowerCut

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(PowerCut):
        write_atomically(tmp_path / "file", "new")
    monkeypatch.undo()
    assert os.listdir(tmp_path) == []


def test_content_reaches_the_disk_before_the_name_and_the_name_before_the_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    fsync, replace = os.fsync, os.replace

    def recorded_fsync(descriptor: int) -> None:
        events.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "content")
        fsync(descriptor)

    def recorded_replace(*arguments: Any) -> None:
        events.append("rename")
        replace(*arguments)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(os, "replace", recorded_replace)
    write_atomically(tmp_path / "file", "new")
    assert events == ["content", "rename", "folder"]


def test_a_file_can_be_read_by_others_unlike_a_temporary_one(tmp_path: Path) -> None:
    write_atomically(tmp_path / "file", "new")
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_atomically(tmp_path / "missing" / "file", "new")
    with pytest.raises(FileNotFoundError):
        sync_folder(tmp_path / "missing")


def test_a_folder_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        write_atomically(tmp_path / "folder", "new")
    assert os.listdir(tmp_path) == ["folder"]
    assert (tmp_path / "folder").is_dir()


def test_a_link_stays_a_link_and_its_target_is_written(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old", encoding="utf-8")
    link.symlink_to(target)
    write_atomically(link, "new")
    assert link.is_symlink()
    assert target.read_text(encoding="utf-8") == "new"


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"  # like /dev/stdout, which a rename would destroy for every other program
    os.mkfifo(pipe)
    reading_end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_atomically(pipe, "new")
        assert stat.S_ISFIFO(pipe.stat().st_mode)
        assert os.read(reading_end, 10) == b"new"
    finally:
        os.close(reading_end)

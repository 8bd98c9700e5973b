import os
from pathlib import Path

import pytest

import stochflow
from stochflow import DataError
from stochflow.core.files import is_locked
from stochflow.runs.directory import RunDirectory

TINY = ("model.width=8", "model.num_layers=1", "evaluation.num_samples=20")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("overview") / "run"
    return stochflow.train("hypergrid:2,4", method="sgfn-db", steps=4, settings=TINY, out=out).path


def test_a_run_is_training_as_long_as_a_process_holds_it(run: Path) -> None:
    directory = RunDirectory.open(run)
    assert stochflow.status(run).runs[0].state == "finished"
    directory.hold()
    (held,) = stochflow.status(run).runs
    directory.release()
    assert (held.state, held.share, held.step) == ("training", 1.0, 4)
    assert stochflow.status(run).runs[0].state == "finished"


def test_a_lock_is_seen_without_the_right_to_write(tmp_path: Path) -> None:
    directory = tmp_path / "file"
    assert not is_locked(directory)
    directory.touch()
    os.chmod(directory, 0o444)
    assert not is_locked(directory)


def test_time_that_is_left_follows_from_the_share_that_is_done(tmp_path: Path) -> None:
    seen: list[float] = []
    out = tmp_path / "run"

    def stop() -> bool:
        return len(seen) == 2

    stochflow.train(
        "hypergrid:2,4",
        method="sgfn-db",
        steps=8,
        settings=TINY,
        out=out,
        listen=lambda *_: seen.append(1.0),
        stop=stop,
    )
    (found,) = stochflow.status(out).runs
    assert (found.state, found.share, found.step) == ("interrupted", 0.25, 2)
    assert found.left == pytest.approx(3 * found.seconds)


def test_links_and_hidden_folders_are_not_followed(run: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(run)
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "run").symlink_to(run)
    assert stochflow.status(tmp_path).runs == []


@pytest.mark.parametrize("line", ['{"step": 1e400, "seconds": "x"}', '{"step": 3, "trajectories": null}', "[]", "\0"])
def test_damaged_records_are_survived(line: str, run: Path, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_bytes((run / "config.yaml").read_bytes())
    (tmp_path / "metrics.jsonl").write_text(line + "\n")
    (found,) = stochflow.status(tmp_path).runs
    assert (found.state, found.seconds) == ("interrupted", 0.0)


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a folder; give one that holds runs or campaigns"):
        stochflow.status(tmp_path / "nowhere")

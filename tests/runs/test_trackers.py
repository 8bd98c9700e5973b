"""What trackers keep of a run, read back from what they wrote; and that they never stand in its way."""

import json
import struct
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

import stochflow
from stochflow.core.errors import ConfigError, NumericsError
from stochflow.runs import trackers

TINY = ("optimiser.batch_size=16", "optimiser.updates=2", "model.width=8", "evaluation.num_samples=50")
STEPS = 4


class PowerCutError(Exception):
    """The machine stops between two steps."""


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """No environment of the caller decides where the files go, and nothing calls home."""
    for name in ("WANDB_DIR", "WANDB_MODE", "WANDB_PROJECT", "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")


def train(path: Path, track: str, **options: Any) -> stochflow.Run:
    arguments = {"method": "sgfn-kl-trajectory", "steps": STEPS, "settings": TINY, "track": [track], "out": path}
    return stochflow.train(**(arguments | options))


def cut_and_resume(path: Path, track: str) -> stochflow.Run:
    """A run that is cut after step 3 with a checkpoint at step 2, so that step 3 is made a second time."""
    settings = (*TINY, "checkpoint_every=0.5")

    def cut(record: dict[str, float], progress: float) -> None:
        if record["step"] == 3:
            raise PowerCutError

    with pytest.raises(PowerCutError):
        train(path, track, settings=settings, listen=cut)
    return train(path, track, settings=settings, resume=True)


def tensorboard_scalars(path: Path) -> dict[str, dict[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(path / "tensorboard"))
    events.Reload()
    found: dict[str, dict[int, float]] = {}
    for tag in events.Tags()["scalars"]:
        steps = [event.step for event in events.Scalars(tag)]
        assert len(steps) == len(set(steps)), tag
        found[tag] = {event.step: event.value for event in events.Scalars(tag)}
    return found


def mlflow_run(uri: str) -> tuple[Any, Any]:
    """The client and the only run of a store."""
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=uri)
    (run,) = client.search_runs([client.get_experiment_by_name("stochflow").experiment_id])
    return client, run


def wandb_records(folder: Path) -> list[Any]:
    """The records of an offline run: a log of 32 KiB blocks whose pieces carry checksum, length and kind."""
    from wandb.proto import wandb_internal_pb2

    (file,) = folder.glob("run-*.wandb")
    data, position, whole, records = file.read_bytes(), 7, b"", []
    while position + 7 <= len(data):
        left = 32768 - position % 32768
        if left < 7:
            position += left
            continue
        _, size, kind = struct.unpack("<IHB", data[position : position + 7])
        whole += data[position + 7 : position + 7 + size]
        position += 7 + size
        if kind in (1, 4):  # a whole record, or the last piece of one
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            records.append(record)
            whole = b""
    return records


def wandb_history(folder: Path) -> dict[int, dict[str, float]]:
    """Records by step; a service of wandb's own writes the file, on a busy machine a moment after the run has ended."""
    deadline = time.monotonic() + 30.0
    while not (found := _wandb_history(folder)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def wandb_runs(directory: Path, resumed_from: int) -> dict[int | None, tuple[str, list[int]]]:
    """Identity and steps of every run by the step it was resumed from, once the steps of the resumed one are there.

    A run that was cut may not have come to write down even that it began.
    """
    runs: dict[int | None, tuple[str, list[int]]] = {}
    deadline = time.monotonic() + 30.0
    while not runs.get(resumed_from, ("", []))[1] and time.monotonic() < deadline:
        for folder in directory.glob("offline-run-*"):
            for record in wandb_records(folder):
                if record.WhichOneof("record_type") == "run":
                    config = {item.key: json.loads(item.value_json) for item in record.run.config.update}
                    runs[config["resumed_from_step"]] = (record.run.run_id, list(_wandb_history(folder)))
        time.sleep(0.2)
    return runs


def _wandb_history(folder: Path) -> dict[int, dict[str, float]]:
    found = {}
    for record in wandb_records(folder):
        if record.WhichOneof("record_type") == "history":
            items = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
            assert items["_step"] not in found
            found[items["_step"]] = items
    return found


def test_tensorboard_keeps_every_number_of_every_step(tmp_path: Path) -> None:
    run = train(tmp_path / "run", "tensorboard")
    found = tensorboard_scalars(run.path)
    metrics = run.metrics.set_index("step")
    for name in metrics.columns:
        expected = metrics[name].dropna()
        assert list(found[name]) == expected.index.tolist()
        assert list(found[name].values()) == pytest.approx(expected.tolist(), rel=1e-6)
    assert found["summary/regret"] == {STEPS: pytest.approx(run.summary.regret, rel=1e-6)}


def test_tensorboard_shows_a_resumed_run_like_an_undisturbed_one(tmp_path: Path) -> None:
    run = cut_and_resume(tmp_path / "run", "tensorboard")
    found = tensorboard_scalars(run.path)
    assert list(found["loss"]) == [1, 2, 3, 4]
    assert list(found["loss"].values()) == pytest.approx(run.metrics["loss"].tolist(), rel=1e-6)


def test_mlflow_keeps_settings_steps_and_summary_in_the_run_directory(tmp_path: Path) -> None:
    run = train(tmp_path / "run", "mlflow")
    client, kept = mlflow_run(f"sqlite:///{run.path.resolve() / 'mlflow.db'}")
    assert kept.info.run_name == "run"
    assert kept.info.status == "FINISHED"
    assert kept.data.params["model.width"] == "8"
    assert kept.data.metrics["summary.regret"] == run.summary.regret
    history = client.get_metric_history(kept.info.run_id, "loss")
    assert [metric.step for metric in history] == [1, 2, 3, 4]
    assert [metric.value for metric in history] == run.metrics["loss"].tolist()


def test_mlflow_goes_on_in_the_same_run_and_repeats_no_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = f"sqlite:///{tmp_path / 'shared.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.chdir(tmp_path)
    run = cut_and_resume(tmp_path / "run", "mlflow")
    assert not (run.path / "mlflow.db").exists()
    client, kept = mlflow_run(uri)
    history = client.get_metric_history(kept.info.run_id, "loss")
    assert [metric.step for metric in history] == [1, 2, 3, 4]
    assert [metric.value for metric in history] == run.metrics["loss"].tolist()
    assert kept.info.status == "FINISHED"


def test_wandb_writes_an_offline_run_with_every_step(tmp_path: Path) -> None:
    run = train(tmp_path / "run", "wandb")
    (folder,) = (run.path / "wandb").glob("offline-run-*")
    history = wandb_history(folder)
    assert list(history) == [1, 2, 3, 4]
    assert [items["loss"] for items in history.values()] == run.metrics["loss"].tolist()
    (started,) = [record.run for record in wandb_records(folder) if record.WhichOneof("record_type") == "run"]
    config = {item.key: json.loads(item.value_json) for item in started.config.update}
    assert config["model"]["width"] == 8
    assert (started.display_name, started.project) == ("run", "stochflow")


def test_wandb_repeats_steps_of_a_resumed_run_under_the_same_id_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setenv("WANDB_DIR", str(tmp_path / "elsewhere"))
    run = cut_and_resume(tmp_path / "run", "wandb")
    assert not (run.path / "wandb").exists()
    runs = wandb_runs(tmp_path / "elsewhere" / "wandb", resumed_from=2)
    assert set(runs) <= {None, 2}
    assert runs[2][1] == [3, 4]
    assert len({identity for identity, _ in runs.values()}) == 1


class Faulty:
    """A tracker that fails in one of its calls."""

    fails_in = "log"

    def start(self, *_: object) -> None:
        self._call("start")

    def log(self, *_: object) -> None:
        self._call("log")

    def finish(self, *_: object) -> None:
        self._call("finish")

    def _call(self, name: str) -> None:
        if name == self.fails_in:
            raise RuntimeError("no room\nleft")


@pytest.mark.parametrize("call", ["start", "log", "finish"])
def test_a_tracker_that_fails_is_switched_off_and_the_run_goes_on(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(trackers.TRACKERS, "faulty", type("FaultyThere", (Faulty,), {"fails_in": call}))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = train(tmp_path / "run", "faulty")
    assert run.summary.steps == STEPS
    (warning,) = caught
    assert str(warning.message) == (
        "the tracker 'faulty' failed (RuntimeError: no room left) and is switched off; the run goes on"
    )


def test_a_run_that_fails_is_closed_as_failed(tmp_path: Path) -> None:
    with pytest.raises(NumericsError):
        train(tmp_path / "run", "mlflow", settings=(*TINY, "optimiser.learning_rate=1e39"))
    _, kept = mlflow_run(f"sqlite:///{(tmp_path / 'run').resolve() / 'mlflow.db'}")
    assert kept.info.status == "FAILED"


@pytest.mark.parametrize("name", list(trackers.TRACKERS))
def test_a_missing_package_is_named_before_anything_is_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)  # an import of it now fails
    with pytest.raises(ConfigError, match=rf"pip install 'stochflow\[{name}\]'"):
        train(tmp_path / "run", name)
    assert not (tmp_path / "run").exists()


def test_an_unknown_tracker_is_refused_with_the_names_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'aim'; choose one of: tensorboard, wandb, mlflow"):
        train(tmp_path / "run", "aim")
    assert not (tmp_path / "run").exists()

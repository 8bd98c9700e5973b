"""Experiment trackers: TensorBoard, Weights & Biases and MLflow. A tracker that fails does not stop the run."""

import hashlib
import logging
import os
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from stochflow.config.layers import leaves
from stochflow.config.schema import Config
from stochflow.config.yaml import dump_yaml
from stochflow.core.errors import ConfigError
from stochflow.core.extras import extra
from stochflow.evaluation.summary import Summary

Metrics = Mapping[str, float]  # of one training step, by name
_PROJECT = "stochflow"
_MLFLOW_BATCH = 100


class Tracker(Protocol):
    """An experiment tracker. Its constructor imports the package that it needs and does nothing else."""

    def start(self, config: Config, path: Path, resumed_at: int | None) -> None:
        """Open the tracker for the run directory `path`; `resumed_at` is the step that a resumed run starts from."""

    def log(self, record: Metrics, step: int) -> None:
        """Log the metrics of one training step."""

    def finish(self, summary: Summary | None) -> None:
        """Log the summary and close; without a summary the run has failed."""


class TensorBoard:
    """Event files in `RUN/tensorboard`. A resumed run purges the steps after the checkpoint and logs them again."""

    def __init__(self) -> None:
        extra("tensorboard", "tensorboard")
        self._module = extra("torch.utils.tensorboard", "tensorboard")

    def start(self, config: Config, path: Path, resumed_at: int | None) -> None:
        purge = None if resumed_at is None else resumed_at + 1
        self._writer = self._module.SummaryWriter(str(path / "tensorboard"), purge_step=purge)
        self._writer.add_text("config", f"```yaml\n{dump_yaml(config)}```", resumed_at or 0)

    def log(self, record: Metrics, step: int) -> None:
        for name, value in record.items():
            self._writer.add_scalar(name, value, step)

    def finish(self, summary: Summary | None) -> None:
        if summary is not None:
            self.log({f"summary/{name}": value for name, value in _numbers(summary).items()}, summary.steps)
        self._writer.close()


class WandB:
    """A run in `RUN/wandb` or `WANDB_DIR`; offline unless `WANDB_MODE` says otherwise.

    The id is a hash of the run's path, so a resumed run has the same id and logs repeated steps under the same
    numbers; `resumed_from_step` in its config is the step that it started from.
    """

    def __init__(self) -> None:
        self._wandb = extra("wandb", "wandb")

    def start(self, config: Config, path: Path, resumed_at: int | None) -> None:
        mode = os.environ.get("WANDB_MODE", "offline")
        settings = self._wandb.Settings(silent=True, console="off", disable_git=True, save_code=False)
        self._run = self._wandb.init(
            mode=mode,
            project=os.environ.get("WANDB_PROJECT", _PROJECT),
            dir=os.environ.get("WANDB_DIR", str(path)),
            id=hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12],
            resume=None if mode == "offline" or resumed_at is None else "allow",
            name=path.name,
            config=config.model_dump(mode="json") | {"resumed_from_step": resumed_at},
            settings=settings,
        )

    def log(self, record: Metrics, step: int) -> None:
        self._run.log(dict(record), step=step)

    def finish(self, summary: Summary | None) -> None:
        if summary is not None:
            self._run.summary.update(summary.model_dump())
        self._run.finish(exit_code=1 if summary is None else 0)


class MLflow:
    """A run in the database `RUN/mlflow.db`, or wherever `MLFLOW_TRACKING_URI` points.

    A resumed run continues the same MLflow run; steps that it has already are not logged a second time.
    """

    def __init__(self) -> None:
        self._mlflow = extra("mlflow", "mlflow")
        extra("sqlalchemy", "mlflow")
        extra("alembic", "mlflow")

    def start(self, config: Config, path: Path, resumed_at: int | None) -> None:
        # a new database logs every table that it creates
        logging.getLogger("mlflow").setLevel(logging.WARNING)
        logging.getLogger("alembic").setLevel(logging.WARNING)
        path = path.resolve()
        place = os.environ.get("MLFLOW_TRACKING_URI", f"sqlite:///{path / 'mlflow.db'}")
        self._client = self._mlflow.MlflowClient(tracking_uri=place)
        experiment = self._experiment(path)
        found = None if resumed_at is None else self._existing(experiment, path)
        self._last_step = -1 if found is None else self._last_logged(found)
        self._id = found or self._new_run(experiment, config, path)
        self._client.update_run(self._id, status="RUNNING")

    def log(self, record: Metrics, step: int) -> None:
        if step > self._last_step:
            self._log(record, step)

    def finish(self, summary: Summary | None) -> None:
        if summary is not None:
            numbers = {f"summary.{name}": value for name, value in _numbers(summary).items()}
            self._log(numbers, summary.steps)
        self._client.set_terminated(self._id, "FAILED" if summary is None else "FINISHED")

    def _log(self, numbers: Metrics, step: int) -> None:
        now = int(time.time() * 1000)
        metrics = [self._mlflow.entities.Metric(name, value, now, step) for name, value in numbers.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def _experiment(self, path: Path) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", _PROJECT)
        found = self._client.get_experiment_by_name(name)
        # beside the database: the default is the folder in which the command was called
        place = None if "MLFLOW_TRACKING_URI" in os.environ else (path / "mlflow-artifacts").as_uri()
        return str(found.experiment_id if found else self._client.create_experiment(name, artifact_location=place))

    def _existing(self, experiment: str, path: Path) -> str | None:
        runs = self._client.search_runs([experiment], max_results=1000)  # newest first
        same = (run.info.run_id for run in runs if run.data.tags.get("stochflow.directory") == str(path))
        return next(same, None)

    def _last_logged(self, run: str) -> int:
        return max((metric.step for metric in self._client.get_metric_history(run, "trajectories")), default=-1)

    def _new_run(self, experiment: str, config: Config, path: Path) -> str:
        run = self._client.create_run(experiment, run_name=path.name, tags={"stochflow.directory": str(path)})
        params = [self._mlflow.entities.Param(name, str(value)) for name, value in leaves(config.model_dump())]
        for first in range(0, len(params), _MLFLOW_BATCH):
            self._client.log_batch(run.info.run_id, params=params[first : first + _MLFLOW_BATCH])
        return str(run.info.run_id)


TRACKERS: dict[str, type[Tracker]] = {"tensorboard": TensorBoard, "wandb": WandB, "mlflow": MLflow}


class Tracking:
    """All trackers of a run. A tracker that raises is switched off with a warning that names it."""

    def __init__(self, names: Sequence[str]) -> None:
        for name in names:
            if name not in TRACKERS:
                raise ConfigError(f"unknown tracker '{name}'; choose one of: {', '.join(TRACKERS)}")
        self._active: dict[str, Tracker] = {name: TRACKERS[name]() for name in names}

    def start(self, config: Config, path: Path, resumed_at: int | None) -> None:
        self._each("start", config, path, resumed_at)

    def log(self, record: Metrics) -> None:
        numbers = {name: value for name, value in record.items() if name != "step"}
        self._each("log", numbers, int(record["step"]))

    def finish(self, summary: Summary | None) -> None:
        self._each("finish", summary)

    def _each(self, call: str, *arguments: Any) -> None:
        for name, tracker in list(self._active.items()):
            try:
                getattr(tracker, call)(*arguments)
            # of any kind: a run must not be lost because of its tracker
            except Exception as error:
                del self._active[name]
                reason = " ".join(f"{type(error).__name__}: {error}".split())
                warnings.warn(
                    f"the tracker '{name}' failed ({reason}) and is switched off; the run goes on", stacklevel=2
                )


def _numbers(summary: Summary) -> dict[str, float]:
    return {name: value for name, value in summary.model_dump().items() if isinstance(value, int | float)}

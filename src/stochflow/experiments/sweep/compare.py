"""`stochflow compare` as a function: plan, run what is missing, keep the table up to date."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import Timeout

from stochflow.core.errors import ConfigError
from stochflow.core.files import remove_leftovers, unwritable
from stochflow.core.processes import launched
from stochflow.core.signals import stop_signal
from stochflow.experiments.sweep.config import DEFAULT_OUT, RUNS, SweepConfig, requested, specify, store
from stochflow.experiments.sweep.local import LocalEngine
from stochflow.experiments.sweep.progress import State, Watch
from stochflow.experiments.sweep.ray import RayEngine
from stochflow.experiments.sweep.results import Results, Standing, standings
from stochflow.experiments.sweep.specification import PlannedRun, check_existing, named_oracle, plan
from stochflow.experiments.sweep.worker import STOP, Job, Outcome, lock
from stochflow.runs.trackers import Tracking

Listener = Callable[[State], None]


@dataclass(frozen=True)
class Comparison:
    """What a comparison has shown so far.

    Attributes:
        path: its folder.
        spec: the specification, resolved.
        frame: one row per finished or failed run.
        standings: methods by task and noise, with intervals and winners.
        failures: a sentence for each run that failed.
        missing: runs that have not finished.
        interrupted: somebody asked to stop before the end.
    """

    path: Path
    spec: SweepConfig
    frame: pd.DataFrame
    standings: list[Standing]
    failures: dict[str, str]
    missing: list[str]
    interrupted: bool


def compare(
    tasks: Sequence[str] | None = None,
    *,
    oracle: Sequence[str] = (),
    methods: Sequence[str] | None = None,
    noise: Sequence[float | str] | None = None,
    feedback: Sequence[str] | None = None,
    seeds: int | None = None,
    trajectories: int | None = None,
    world: str | None = None,
    gap_score: float | None = None,
    config: str | Path | Mapping[str, Any] | None = None,
    settings: Sequence[str] = (),
    deterministic: bool = False,
    jobs: int | None = None,
    engine: str | None = None,
    address: str | None = None,
    track: Sequence[str] = (),
    out: str | Path | None = None,
    listen: Listener | None = None,
) -> Comparison:
    """Run every method on every task under every noise, once per seed, with the same budget, and compare.

    In a folder that holds a comparison already, finished runs are kept, others go on from their checkpoints, and what
    is not given here stays as it was; tasks, methods, noise, feedback and seeds can be added, the budget and the
    settings not changed.

    Args:
        tasks, methods: names, or ["all"]; by default tfbind8, and sgfn-kl beside sgfn-db, or beside gfn-tb where
            whole strings are ordered.
        oracle: names of score functions, "package.module:function", as tasks beside the others. One that a file names
            as a task runs only if it is named here too.
        noise: channels, each as for `train`; by default 0.25, or none where all tasks are tables or oracles.
        feedback: "step", "none" or both, as for `train`; by default as each task has it.
        seeds: runs per method, 5 by default.
        trajectories: budget of every run, 32,000 by default.
        world, gap_score: of a table (task "table"), as for `train`.
        config: a YAML file or a dictionary with the fields of `SweepConfig`; the arguments here go over it.
        settings: assignments like "model.width=64" for every run.
        deterministic: as for `train`, in every run.
        jobs: runs at a time; by default one per core.
        engine, address: "local", or "ray" and the cluster to join.
        track: trackers of every run.
        out: folder of the comparison, `runs/compare` by default.
        listen: called about twice a second with the state of all runs.
    """
    given = locals()  # the arguments: nothing else has a name yet
    if launched():
        raise ConfigError("compare shares out its runs itself; start it without torchrun")
    path = Path(out) if out is not None else DEFAULT_OUT
    spec = specify(path, requested(given), address)
    runs = plan(spec, oracle)
    check_existing(path, runs)
    Tracking(spec.track)  # a missing package is an error now, not in every run
    chosen = _engine(spec)
    try:
        path.mkdir(parents=True, exist_ok=True)
        alone = lock(path, "compare").acquire(timeout=0)
    except Timeout:
        raise ConfigError(f"another comparison is at work in {path}; wait for it or choose another --out") from None
    except OSError as error:
        raise unwritable(path, error) from None
    with alone:
        for folder in (path, *(path / RUNS).glob("*")):  # of finished runs too, which nobody takes up again
            remove_leftovers(folder)
        store(path, spec)
        sweep = _Sweep(path.resolve(), spec, runs, oracle)
        interrupted = sweep.work_off(chosen, listen)
        return sweep.comparison(interrupted)


def _engine(spec: SweepConfig) -> LocalEngine | RayEngine:
    if spec.engine == "ray":
        return RayEngine(spec.num_jobs, spec.jobs, spec.retries, spec.address)
    return LocalEngine(spec.num_jobs, spec.retries)


class _Sweep:
    """One session of work on a comparison."""

    def __init__(self, path: Path, spec: SweepConfig, runs: list[PlannedRun], oracles: Sequence[str]) -> None:
        self._path, self._spec, self._runs = path, spec, {run.name: run for run in runs}
        self._oracles = oracles
        self._results = Results(path, runs)
        self._results.write()
        self._pending = dict.fromkeys(self._results.missing)

    def work_off(self, engine: LocalEngine | RayEngine, listen: Listener | None) -> bool:
        """Run what is missing; whether somebody asked to stop before the end."""
        stop_file = self._path / STOP
        try:
            stop_file.unlink(missing_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot remove {stop_file} ({error.strerror}); remove it by hand and go on") from None
        if not self._pending:
            return False
        watch = Watch(self._path, self._spec.trajectories, len(self._runs))
        with engine, stop_signal() as signalled:

            def stop() -> bool:
                if signalled():
                    stop_file.touch()  # seen by workers on every machine before their next step
                return signalled()

            for outcome in engine.run(self._jobs(), self._expected_seconds, stop):
                if outcome is not None:
                    self._take(outcome)
                state = watch.look(self._pending) if listen is not None else None
                if listen is not None and state is not None:
                    listen(state)
        stop_file.unlink(missing_ok=True)
        return bool(self._pending)

    def comparison(self, interrupted: bool) -> Comparison:
        frame, runs = self._results.frame(), list(self._runs.values())
        return Comparison(
            path=self._path,
            spec=self._spec,
            frame=frame,
            standings=standings(frame, runs),
            failures=self._results.failures,
            missing=self._results.missing,
            interrupted=interrupted,
        )

    def _jobs(self) -> list[Job]:
        return [
            Job(
                str(self._path),
                name,
                self._runs[name].config.model_dump(mode="json"),
                tuple(self._spec.track),
                named_oracle(self._runs[name].task, self._oracles),
            )
            for name in self._pending
        ]

    def _take(self, outcome: Outcome) -> None:
        for text in outcome.warnings:
            warnings.warn(f"{outcome.name}: {text}", stacklevel=2)
        if outcome.status == "interrupted":
            return
        del self._pending[outcome.name]
        if outcome.status == "finished":
            self._results.finish(outcome.name)
        else:
            self._results.fail(outcome.name, outcome.error)

    def _expected_seconds(self, job: Job) -> float:
        """Measured on runs of the same kind; before there are any, by the number of updates."""
        run = self._runs[job.name]
        return self._results.seconds(run) or run.num_updates * self._results.seconds_per_update()

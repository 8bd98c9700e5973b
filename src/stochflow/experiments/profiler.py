"""Where the time of training goes: by stage over the whole run, by operation over a few steps of it."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import torch
from torch.profiler import ProfilerActivity, profile

from stochflow.evaluation.summary import Summary
from stochflow.experiments.experiment import Experiment
from stochflow.runs.directory import PROFILE, RunDirectory
from stochflow.training.optimizer import Record
from stochflow.training.trainer import Trainer

TRACE = "profile-trace.json.gz"
# operations are recorded after the first steps, which allocate and plan for the first time, and only until there are
# enough of them: every single one is kept, and reading them takes several times as long as recording them
FIRST, MAX_STEPS, MAX_SECONDS = 3, 10, 0.5
_TOP = 12

SAMPLE, SCORE, DYNAMICS, PLAN = "sample trajectories", "score and remember", "fit the dynamics", "plan"
FORWARD, BACKWARD, CHECKS = "objective: forward pass, loss", "backward pass, clip, Adam", "checks of a step"
EVALUATION, CHECKPOINT, REST = "evaluation", "checkpoint", "everything else"
STAGES = (SAMPLE, SCORE, DYNAMICS, PLAN, FORWARD, BACKWARD, CHECKS, EVALUATION, CHECKPOINT, REST)


class Stopwatch:
    """Seconds by stage; while a stage runs inside another the clock of the outer one stands still."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self.running = True
        self._clock, self._since, self._open = clock, clock(), [REST]

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time spent inside counts for this stage."""
        self._charge()
        self._open.append(name)
        try:
            yield
        finally:
            self._charge()
            self._open.pop()

    @contextmanager
    def standing(self) -> Iterator[None]:
        """Time spent inside counts for nothing."""
        self._charge()
        self.running = False
        try:
            yield
        finally:
            self._charge()
            self.running = True

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function with its time counted for a stage."""

        def call(*arguments: Any, **options: Any) -> Any:
            with self.stage(name):
                return function(*arguments, **options)

        return call

    def timed_iterator(self, name: str, function: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        """The same for a function that returns an iterator: what each element takes to come counts."""

        def call(*arguments: Any) -> Iterator[Any]:
            elements = iter(function(*arguments))
            nothing = object()
            while True:
                with self.stage(name):
                    element = next(elements, nothing)
                if element is nothing:
                    return
                yield element

        return call

    def total(self) -> float:
        """Seconds of all stages up to now."""
        self._charge()
        return sum(self.seconds.values())

    def _charge(self) -> None:
        now = self._clock()
        if self.running:
            self.seconds[self._open[-1]] += now - self._since
        self._since = now


@dataclass(frozen=True)
class TimedExperiment(Experiment):
    """An experiment whose evaluations are timed."""

    watch: Stopwatch = field(default_factory=Stopwatch)

    def evaluate(self) -> dict[str, float]:
        with self.watch.stage(EVALUATION):
            return super().evaluate()

    def conclude(self) -> tuple[Summary, pd.DataFrame]:
        with self.watch.stage(EVALUATION):
            return super().conclude()


class Profiler:
    """Watches an experiment while it runs.

    The methods of this one trainer are replaced by timed ones, so a run that nobody watches pays nothing for it.

    Attributes:
        experiment: the one to run in the place of that which is watched.
    """

    def __init__(self, watched: Experiment, directory: RunDirectory) -> None:
        self._watch, self._directory = Stopwatch(), directory
        parts = (watched.config, watched.environment, watched.truth, watched.trainer, watched.reference)
        self.experiment = TimedExperiment(*parts, self._watch)
        self._first = watched.trainer.step + FIRST
        self._num_timed = self._num_traced = 0
        self._operations: profile | None = None
        self._recording, self._recording_until = False, 0.0
        self._attach(watched.trainer, directory)

    def write(self) -> None:
        """Put what was found into the run directory."""
        text = self.report()
        if self._operations is not None:
            self._stop_recording()
            self._operations.export_chrome_trace(str(self._directory.path / TRACE))
            text += f"\n{self._operations_table(self._operations)}\nTimeline of these steps: {TRACE}\n"
        self._directory.write(PROFILE, text)

    def report(self) -> str:
        """Share and time of every stage that took any."""
        total = self._watch.total()
        lines = [f"{total:.2f} s with {self._num_timed} training steps, by stage", "   share    seconds  stage"]
        found = sorted(self._watch.seconds.items(), key=lambda item: -item[1])
        lines += [f"{seconds / total:8.1%} {seconds:10.3f}  {name}" for name, seconds in found if seconds > 0]
        return "\n".join(lines) + "\n"

    def _attach(self, trainer: Trainer, directory: RunDirectory) -> None:
        watch, parts = self._watch, trainer.parts()
        memory, replay, objective = (parts[name] for name in ("memory", "replay", "objective"))
        stages: list[tuple[str, object, tuple[str, ...]]] = [
            (SAMPLE, trainer, ("collect",)),
            (SCORE, memory, ("asks", "pay")),
            (SCORE, replay, ("add",)),
            (DYNAMICS, trainer, ("fit_dynamics",)),
            (PLAN, objective, ("replan",)),
            (BACKWARD, trainer.optimizer, ("step",)),
            (CHECKPOINT, trainer, ("state_dict",)),
            (CHECKPOINT, directory, ("save_checkpoint",)),
        ]
        for stage, owner, names in stages:
            for name in names:
                if hasattr(owner, name):  # few objectives plan
                    setattr(owner, name, watch.timed(stage, getattr(owner, name)))
        replaced = {"updates": watch.timed_iterator(FORWARD, trainer.updates), "train_step": self._step(trainer)}
        for name, function in replaced.items():
            setattr(trainer, name, function)

    def _step(self, trainer: Trainer) -> Callable[[], Record]:
        """A training step that is timed, or one of the few whose operations are recorded: that slows it down."""
        plain, timed = trainer.train_step, self._watch.timed(CHECKS, trainer.train_step)

        def step() -> Record:
            if trainer.step + 1 == self._first:
                self._start_recording()
            if not self._recording:
                self._num_timed += 1
                return timed()
            with self._watch.standing():
                record = plain()
                self._num_traced += 1
                if self._num_traced == MAX_STEPS or time.perf_counter() > self._recording_until:
                    self._stop_recording()
            return record

        return step

    def _start_recording(self) -> None:
        with self._watch.standing():
            os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it writes to standard error when it starts
            gpu = [ProfilerActivity.CUDA] if torch.cuda.is_available() else []
            self._operations = profile(activities=[ProfilerActivity.CPU, *gpu])
            self._operations.start()
            self._recording = True
            self._recording_until = time.perf_counter() + MAX_SECONDS

    def _stop_recording(self) -> None:
        if self._operations is not None and self._recording:  # stopping twice would bring the process down
            self._operations.stop()
        self._recording = False

    def _operations_table(self, operations: profile) -> str:
        """The operations that took most CPU time themselves, without those that they call."""
        events = operations.key_averages()
        total = sum(event.self_cpu_time_total for event in events)
        lines = [f"{self._num_traced} more, by operation", "   share  ms/step  calls/step  operation"]
        for event in sorted(events, key=lambda event: -event.self_cpu_time_total)[:_TOP]:
            spent, calls = event.self_cpu_time_total, event.count / self._num_traced
            lines.append(f"{spent / total:8.1%} {spent / self._num_traced / 1e3:8.2f} {calls:11.1f}  {event.key}")
        return "\n".join(lines) + "\n"

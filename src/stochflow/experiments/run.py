"""One run from its first step to its summary: train, evaluate when due, keep checkpoints, conclude."""

import warnings
from collections.abc import Callable
from contextlib import closing

from stochflow.experiments.experiment import Runnable
from stochflow.experiments.torch_settings import computing
from stochflow.runs.directory import RunDirectory
from stochflow.training.optimizer import Record
from stochflow.training.trainer import MAX_IDLE_STEPS

Listener = Callable[[Record, float], None]


def run(experiment: Runnable, directory: RunDirectory, listen: Listener, stop: Callable[[], bool]) -> None:
    """Train to the end of the budget or until asked to stop, keeping what was learned along the way."""
    trainer = experiment.trainer
    with computing(experiment.config), closing(experiment):
        untrained = {}
        if trainer.step == 0:
            directory.save_checkpoint(trainer.state_dict(), 0)
            untrained = untrained_figures(experiment)
        while not trainer.finished and not stop():
            before = trainer.progress
            record = trainer.train_step() | untrained
            untrained = {}
            keep_step(experiment, directory, record, before)
            listen(record, trainer.progress)
        conclude_run(experiment, directory)


def untrained_figures(experiment: Runnable) -> dict[str, float]:
    """The regret before the first step, where it can be known: what every later one is measured against."""
    return {f"start_{name}": value for name, value in experiment.evaluate().items() if name == "regret"}


def keep_step(experiment: Runnable, directory: RunDirectory, record: Record, before: float) -> None:
    """Evaluate the policy where that is due, write the record down with what was found, and keep a checkpoint if due.

    Args:
        before: progress before the step.
    """
    config, trainer = experiment.config, experiment.trainer
    if crossed(before, trainer.progress, experiment.evaluated_every):
        record |= experiment.evaluate()
    directory.append_metrics(record)
    if crossed(before, trainer.progress, config.checkpoint_every):
        directory.save_checkpoint(trainer.state_dict(), trainer.step)


def conclude_run(experiment: Runnable, directory: RunDirectory) -> None:
    """Write down what was reached, with a checkpoint to go on from where the budget is not spent."""
    trainer = experiment.trainer
    if not trainer.finished:
        directory.save_checkpoint(trainer.state_dict(), trainer.step)
    if trainer.exhausted:
        warnings.warn(
            f"training ended with {trainer.calls} of {experiment.config.budget.oracle_calls} oracle calls, because "
            f"{MAX_IDLE_STEPS} steps in a row brought no new design",
            stacklevel=3,
        )
    summary, designs = experiment.conclude()
    directory.write_samples(designs)
    directory.write_summary(summary)


def follow(experiment: Runnable, stop: Callable[[], bool]) -> None:
    """Train beside the first process of the run, which alone evaluates it and writes files."""
    trainer = experiment.trainer
    with computing(experiment.config):
        while not trainer.finished and not stop():
            trainer.train_step()


def crossed(before: float, after: float, share: float) -> bool:
    """True when progress passed a multiple of `share`, or the end."""
    return after >= 1.0 or int(after / share) > int(before / share)

"""Runs with run directories of their own, trained as one program."""

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass

from stochflow.config import Config
from stochflow.experiment import (
    Experiment,
    Listener,
    choose_device,
    computing,
    conclude_run,
    crossed,
    keep_step,
    run,
    untrained_figures,
)
from stochflow.graphs import is_graph
from stochflow.runs import RunDirectory
from stochflow.stacking.trainer import StackedTrainer

_KINDS = ("detailed-balance", "trajectory-balance", "subtrajectory-balance")


@dataclass(frozen=True)
class Part:
    """One run of a stack."""

    experiment: Experiment
    directory: RunDirectory
    listen: Listener


def why_not_stacked(config: Config) -> str | None:
    """What keeps seeds of this config from being trained as one program; None when nothing does."""
    objective = config.objective
    if is_graph(config.task):
        return "it trains on a graph"
    if objective.kind not in _KINDS and not (objective.kind == "kl" and objective.scope == "trajectory"):
        return "its objective has no stacked form"
    if config.model.body != "kmer":
        return "only k-mer bodies can be stacked"
    if config.model.trunk == "plain":
        return "only residual trunks can be stacked"
    if config.model.precision != "float32":
        return "only networks in float32 can be stacked"
    if config.budget.oracle_calls is not None or config.budget.minutes is not None:
        return "its budget ends each run at a step of its own"
    if choose_device(config.device).type != "cpu":
        return "stacking is for the CPU"
    return None


def run_stacked(parts: Sequence[Part], stop: Callable[[], bool]) -> None:
    """Train all runs to the end of their budget or until asked to stop; the files are those of separate runs.

    Args:
        parts: runs of one config but for the seed, all at the same step.
    """
    if len(parts) == 1:
        run(parts[0].experiment, parts[0].directory, parts[0].listen, stop)
        return
    parts = _with_one_truth(parts)
    trainers = [part.experiment.trainer for part in parts]
    config = parts[0].experiment.config
    stack, judged_every = StackedTrainer(trainers), parts[0].experiment.judged_every
    with computing(config), ExitStack() as open_parts:
        for part in parts:
            open_parts.enter_context(closing(part.experiment))
            if part.experiment.trainer.step == 0:
                part.directory.save_checkpoint(part.experiment.trainer.state_dict(), 0)
        untrained = [untrained_figures(part.experiment) if part.experiment.trainer.step == 0 else {} for part in parts]
        # some weights wait for their moves, and where they catch up decides how they are rounded: only at such a step a
        # run may stop that shall go on as if it had not
        while not stack.finished and not (stack.settled and stop()):
            before = stack.progress
            records = [record | start for record, start in zip(stack.train_step(), untrained, strict=True)]
            untrained = [{}] * len(parts)
            if any(crossed(before, stack.progress, every) for every in (judged_every, config.checkpoint_every)):
                stack.settle()
            for part, record in zip(parts, records, strict=True):
                keep_step(part.experiment, part.directory, record, before)
                part.listen(record, stack.progress)
        stack.settle()
        for part in parts:
            conclude_run(part.experiment, part.directory)


def _with_one_truth(parts: Sequence[Part]) -> list[Part]:
    """Task, channel and reward are the same for all runs, and so is what can be computed from them."""
    truth = parts[0].experiment.truth
    return [dataclasses.replace(part, experiment=dataclasses.replace(part.experiment, truth=truth)) for part in parts]

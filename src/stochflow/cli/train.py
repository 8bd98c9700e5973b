"""`stochflow train` and `stochflow pretrain`."""

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from stochflow.cli.parameters import takes
from stochflow.cli.render import console, ending, print_summary, progress_line, say, say_unscored, tell
from stochflow.config.options import PRETRAIN, TRAIN, Option, arguments_of
from stochflow.core.signals import importing
from stochflow.environments.settings import (
    Layers,
    check_settings,
    pretraining_layers,
    resolve_layers,
    training_layers,
)

if TYPE_CHECKING:
    from stochflow.experiments.finished_run import Run

_ALL = Option("all_figures", bool, "Also print every figure of the summary.", flag="--all", default=False)
_SAMPLES = ("samples.csv", "samples.fasta")


@takes(*TRAIN, _ALL)
def train(**given: Any) -> None:
    """Train a sampler; Ctrl-C ends cleanly and keeps everything so far."""
    arguments = arguments_of(TRAIN, given)
    _check(given, training_layers(arguments))
    with importing():
        from stochflow import api
        from stochflow.runs.directory import PROFILE, is_vacant
    if given["resume"] and given["out"] is not None and is_vacant(given["out"]):
        tell(f"There is no run in {escape(str(given['out']))} yet; a new one begins.")
    by_calls = given["oracle"] is not None or given["oracle_calls"] is not None
    with progress_line("oracle_calls" if by_calls else "trajectories") as listen:
        run = api.train(**arguments, listen=listen)
    named = "".join(f" --{name} {given[name]}" for name in ("oracle", "address") if given[name] is not None)
    _end(run, given["all_figures"], f"train --resume --out {shlex.quote(str(run.path))}{named}")
    if given["profile"]:
        console.print((run.path / PROFILE).read_text(encoding="utf-8"), markup=False, highlight=False, soft_wrap=True)
    say_unscored(run.summary.scored_fraction)


@takes(*PRETRAIN, _ALL)
def pretrain(**given: Any) -> None:
    """Train one sampler for several tasks; `stochflow train --from RUN --support N` goes on from it."""
    arguments = arguments_of(PRETRAIN, given)
    _check(given, pretraining_layers(arguments))
    with importing():
        from stochflow import api
    with progress_line("step") as listen:
        run = api.pretrain(**arguments, listen=listen)
    path = shlex.quote(str(run.path))
    _end(
        run, given["all_figures"], f"pretrain --resume --out {path}", f"stochflow train TASK --from {path} --support N"
    )


def _check(given: Mapping[str, Any], layers: Layers) -> None:
    """Refuse wrong settings before anything heavy is imported; a run that is resumed has settings of its own."""
    if not given["resume"]:
        check_settings(resolve_layers(layers))


def _end(run: "Run", all_figures: bool, again: str, following: str | None = None) -> None:
    """What came of a run in five lines, the last of which is the next command.

    Args:
        again: command that goes on with a run that was stopped.
        following: command after one that was not; by default its report, or the doctor where something is wrong.
    """
    from stochflow import api

    (diagnosis,) = api.doctor(run)
    path = shlex.quote(str(run.path))
    if run.summary.status == "interrupted":
        tell(f"Stopped early; continue with `stochflow {escape(again)}`.")
        following = f"stochflow {again}"
    elif following is None:
        following = f"stochflow {'report' if diagnosis.healthy else 'doctor'} {path}"
    if all_figures:
        print_summary(run.summary)
    files = " and ".join(name for name in _SAMPLES if (run.path / name).exists())
    lines = [*ending(run.summary), diagnosis.verdict]
    lines += [f"Run directory: {run.path} (designs in {files})", f"Next: {following}"]
    for line in lines:
        say(line)

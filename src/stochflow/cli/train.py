"""`stochflow train` and `stochflow pretrain`."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from stochflow.cli.parameters import takes
from stochflow.cli.render import console, print_summary, progress_line, say_unscored, tell
from stochflow.config.options import PRETRAIN, TRAIN, arguments_of
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


@takes(*TRAIN)
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
    print_summary(run.summary)
    console.print(f"noise: {escape(str(run.summary.noise or 'none'))}", highlight=False)
    if given["profile"]:
        console.print((run.path / PROFILE).read_text(encoding="utf-8"), markup=False, highlight=False, soft_wrap=True)
    say_unscored(run.summary.scored_fraction)
    named = "".join(f" --{name} {given[name]}" for name in ("oracle", "address") if given[name] is not None)
    _say_where(run, f"train --resume --out {run.path}{named}", f"designs in {' and '.join(_sample_files(run.path))}")


@takes(*PRETRAIN)
def pretrain(**given: Any) -> None:
    """Train one sampler for several tasks; `stochflow train --from RUN --support N` goes on from it."""
    arguments = arguments_of(PRETRAIN, given)
    _check(given, pretraining_layers(arguments))
    with importing():
        from stochflow import api
    with progress_line("step") as listen:
        run = api.pretrain(**arguments, listen=listen)
    print_summary(run.summary)
    further = f"go on with `stochflow train TASK --from {run.path} --support N`"
    _say_where(run, f"pretrain --resume --out {run.path}", further)


def _check(given: Mapping[str, Any], layers: Layers) -> None:
    """Refuse wrong settings before anything heavy is imported; a run that is resumed has settings of its own."""
    if not given["resume"]:
        check_settings(resolve_layers(layers))


def _say_where(run: "Run", again: str, further: str) -> None:
    """How to continue a run that was stopped, and where it is."""
    if run.summary.status == "interrupted":
        tell(f"Stopped early; continue with `stochflow {escape(again)}`.")
    console.print(f"Run directory: {escape(f'{run.path} ({further})')}", highlight=False, soft_wrap=True)


def _sample_files(path: Path) -> list[str]:
    return [name for name in ("samples.csv", "samples.fasta") if (path / name).exists()]

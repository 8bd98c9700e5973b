"""`stochflow train`."""

from pathlib import Path
from typing import Any

from rich.markup import escape

from stochflow.cli.parameters import takes
from stochflow.cli.render import console, print_summary, progress_line, say_unscored, tell
from stochflow.config.options import TRAIN, arguments_of
from stochflow.core.signals import importing
from stochflow.environments.settings import check_settings, resolve_layers, training_layers


@takes(*TRAIN)
def train(**given: Any) -> None:
    """Train a sampler; Ctrl-C ends cleanly and keeps everything so far."""
    arguments = arguments_of(TRAIN, given)
    layers = training_layers(arguments)
    if not given["resume"]:  # which has settings of its own
        check_settings(resolve_layers(layers))
    with importing():
        from stochflow import api
        from stochflow.runs.directory import PROFILE, is_vacant
    if given["resume"] and given["out"] is not None and is_vacant(given["out"]):
        tell(f"There is no run in {escape(str(given['out']))} yet; a new one begins.")
    by_calls = given["oracle"] is not None or given["oracle_calls"] is not None
    with progress_line("oracle_calls" if by_calls else "trajectories") as listen:
        run = api.train(**arguments, listen=listen)
    print_summary(run.summary)
    if given["profile"]:
        console.print((run.path / PROFILE).read_text(encoding="utf-8"), markup=False, highlight=False, soft_wrap=True)
    say_unscored(run.summary.scored_fraction)
    if run.summary.status == "interrupted":
        named = "" if given["oracle"] is None else f" --oracle {given['oracle']}"
        tell(f"Stopped early; continue with `stochflow train --resume --out {escape(str(run.path) + named)}`.")
    console.print(
        f"Run directory: {escape(str(run.path))} (designs in {' and '.join(_sample_files(run.path))})",
        highlight=False,
        soft_wrap=True,
    )


def _sample_files(path: Path) -> list[str]:
    return [name for name in ("samples.csv", "samples.fasta") if (path / name).exists()]

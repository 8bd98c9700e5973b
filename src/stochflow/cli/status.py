"""`stochflow status`."""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from stochflow.cli.render import console, listing, plain, say
from stochflow.core.signals import importing

if TYPE_CHECKING:
    from rich.table import Table

    from stochflow.overview import CampaignStatus, Overview, RunStatus

_LIVE_EVERY, _PLAIN_EVERY = 1.0, 30.0  # seconds between two looks


def status(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run, or a folder of runs and campaigns.")] = Path(
        "runs"
    ),
    watch: Annotated[bool, typer.Option("--watch", help="Look again and again until no run is training.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Say where runs and campaigns stand, from another terminal too; a plain line per run where there is none."""
    with importing():
        from stochflow import api
    found = api.status(folder)
    if as_json:
        print(json.dumps(_as_dict(found), indent=2))
    elif not watch or not _training(found):
        _print(found, folder)
    elif console.is_terminal:
        _watch(folder, found)
    else:
        while _lines(found):
            time.sleep(_PLAIN_EVERY)
            found = api.status(folder)
    if watch and not _training(found):
        say("No run is training.")


def _training(found: "Overview") -> bool:
    return any(run.state == "training" for run in found.runs)


def _print(found: "Overview", folder: Path) -> None:
    if not found.runs and not found.campaigns:
        say(f"No runs and no campaigns are in the folder {folder}")
    if found.runs:
        console.print(_runs_table(found.runs, folder))
    if found.campaigns:
        console.print(_campaigns_table(found.campaigns, folder))


def _watch(folder: Path, found: "Overview") -> None:
    """One table that follows its runs."""
    from rich.live import Live

    from stochflow import api

    with Live(_runs_table(found.runs, folder), console=console, auto_refresh=False) as live:
        while _training(found):
            time.sleep(_LIVE_EVERY)
            found = api.status(folder)
            live.update(_runs_table(found.runs, folder), refresh=True)


def _lines(found: "Overview") -> bool:
    """A plain line for every run that is training, for a log file; whether there was one."""
    going = [run for run in found.runs if run.state == "training"]
    for run in going:
        say(f"{run.path} {run.share:4.0%}  {_left(run)}  {_figures(run)}")
    return bool(going)


def _runs_table(runs: "list[RunStatus]", folder: Path) -> "Table":
    from rich.table import Column

    table = listing(Column("run", overflow="fold"), "state", Column("done", justify="right"), "left", "figures")
    for run in runs:
        left = _left(run) if run.state == "training" else ""
        table.add_row(escape(_name(run.path, folder)), run.state, f"{run.share:.0%}", left, escape(_figures(run)))
    return table


def _campaigns_table(campaigns: "list[CampaignStatus]", folder: Path) -> "Table":
    from rich.table import Column

    names = ("asks", "ordered", "pending", "failed", "measured")
    table = listing(Column("campaign", overflow="fold"), *names, Column("best", overflow="fold"))
    for campaign in campaigns:
        found, name = campaign.status, escape(_name(campaign.path, folder))
        if found is None:
            table.add_row(name, *[""] * len(names), escape(plain(campaign.problem)))
            continue
        counts = [f"{getattr(found, f'num_{name}'):,}" for name in names]
        best = "" if found.best_score is None else f"{found.best_score:.4g} {found.best}"
        table.add_row(name, *counts, escape(best))
    return table


def _name(path: Path, folder: Path) -> str:
    return plain(str(path if path == folder else path.relative_to(folder)))


def _left(run: "RunStatus") -> str:
    from stochflow.runs.monitor.throughput import time_text

    return time_text(run.left)


def _figures(run: "RunStatus") -> str:
    """The newest figures in few words."""
    if run.problem:
        return plain(run.problem)
    names = (
        {"mean_score": "score", "regret": "regret"} if "regret" in run.figures else {"mean_score": "score", "j": "J"}
    )
    shown = [f"{word} {run.figures[name]:.3g}" for name, word in names.items() if name in run.figures]
    shown = shown or [f"loss {run.figures['loss']:.3g}"] if "loss" in run.figures or shown else []
    return ", ".join(shown) or "no step yet"


def _as_dict(found: "Overview") -> dict[str, Any]:
    runs = [asdict(run) | {"path": str(run.path)} for run in found.runs]
    return {"runs": runs, "campaigns": [asdict(each) | {"path": str(each.path)} for each in found.campaigns]}

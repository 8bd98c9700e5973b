"""Progress while a forecaster is fitted: a bar on standard error."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from stochflow.forecasting.model.stages import Report, Stage, no_report
from stochflow.runs.monitor.throughput import Throughput, time_text


@contextmanager
def progress_bar(wanted: bool | Report | None, console: Console | None = None) -> Iterator[Report]:
    """What to call with each `Stage`: a function that was given, or one that moves a bar.

    None shows the bar where standard error is a terminal.
    """
    if callable(wanted):
        yield wanted
        return
    if not (sys.stderr.isatty() if wanted is None and console is None else wanted is not False):
        yield no_report
        return
    columns = (
        TextColumn("[progress.description]{task.description}"),
        BarColumn(bar_width=16),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    with Progress(*columns, console=console or Console(stderr=True, emoji=False), transient=True) as progress:
        line = progress.add_task("reading the table", total=None, left="")
        paces: dict[str, Throughput] = {}

        def show(stage: Stage) -> None:
            pace = paces.setdefault(stage.name, Throughput())
            pace.note(stage.done / stage.total, stage.done)
            left = f"at most {time_text(pace.left)} left"
            progress.update(line, description=stage.text, completed=stage.done, total=stage.total, left=left)

        yield show

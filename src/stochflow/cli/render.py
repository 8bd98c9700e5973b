"""What the commands print: messages, tables and the line of progress."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table

from stochflow.evaluation.summary import Summary
from stochflow.runs.monitor.throughput import Throughput, time_text, training_figures

console = Console(emoji=False)
messages = Console(stderr=True, emoji=False)

_LIVE_EVERY, _PLAIN_EVERY = 0.25, 30.0  # seconds between two looks of a progress line


def tell(text: str) -> None:
    """A sentence on standard error; `escape` what is not ours."""
    messages.print(text, highlight=False, soft_wrap=True)


@contextmanager
def progress_line(counted: str) -> Iterator[Any]:
    """A live line with times, rate, memory, loss and exact figures; where nobody watches, a plain one now and then.

    Args:
        counted: what the rate is about, `trajectories`, `oracle_calls` or `step`.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=16),
        TaskProgressColumn(),
        TextColumn("{task.fields[numbers]}"),
    )
    progress = Progress(*columns, console=messages)
    line = progress.add_task("training", total=1.0, numbers="")
    latest: dict[str, float] = {}
    pace, due = Throughput(), 0.0

    def listen(record: dict[str, float], done: float) -> None:
        nonlocal due
        latest.update(record)
        pace.note(done, record[counted])
        if done < 1.0 and pace.elapsed < due:
            return
        due = pace.elapsed + (_LIVE_EVERY if messages.is_terminal else _PLAIN_EVERY)
        times = f"{time_text(pace.elapsed)} (left {time_text(pace.left)})"
        numbers = escape("  ".join([times, *training_figures(latest, pace, counted)]))
        if messages.is_terminal:
            progress.start()  # only now: an error before the first step leaves no empty bar behind
            progress.update(line, completed=done, numbers=numbers)
        else:
            messages.print(f"training {done:4.0%}  {numbers}", highlight=False, soft_wrap=True)

    try:
        yield listen
    finally:
        if progress.live.is_started:
            progress.stop()


def print_summary(summary: Summary) -> None:
    """Every metric of a run, the regret in bold."""
    title = f"{summary.task}, {summary.method}, noise {summary.noise}, seed {summary.seed}"
    table = Table(title=escape(title))
    table.add_column("metric")
    table.add_column("value", justify="right")
    for name, value in summary.model_dump().items():
        shown = "–" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)
        table.add_row(name, escape(shown), style="bold" if name == "regret" else None)
    console.print(table)

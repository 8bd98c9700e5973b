"""What the commands print: messages, tables and the line of progress."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from stochflow.core.errors import Note

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Column, Table

    from stochflow.evaluation.summary import Summary
    from stochflow.experiments.sweep.compare import Comparison
    from stochflow.experiments.sweep.results import Standing

console = Console(emoji=False)
messages = Console(stderr=True, emoji=False)

_LIVE_EVERY, _PLAIN_EVERY = 0.25, 30.0  # seconds between two looks of a progress line
_MOST_SHOWN = 4000
_MOST_COLUMNS = 100_000
_HEADINGS = {"j": "J (nats)"}
# beside the metric that decides: heading and digits
_MEDIANS = {"num_modes": ("modes", 0), "cpu_seconds": ("CPU s", 0)}
_TV, _SCORE = {"tv": ("TV", 3)}, {"mean_score": (r"E\[score]", 3)}


def tell(text: str) -> None:
    """A sentence on standard error; `escape` what is not ours."""
    messages.print(text, highlight=False, soft_wrap=True)


def say(text: str, style: str = "") -> None:
    """Text that may come from a stranger's files, on standard output: nothing in it is obeyed."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    console.print(shown, style=style, markup=False, highlight=False, soft_wrap=True)


def plain(text: str) -> str:
    """On one line and without what a terminal would obey, whatever file it was taken from; not endless either."""
    shown = "".join(letter if letter.isprintable() else "�" for letter in " ".join(text.split()))
    return shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}…"


def show_warnings() -> None:
    """Print warnings as sentences on standard error from now on."""
    warnings.showwarning = _show_warning


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    if isinstance(message, Note):
        tell(f"{escape(plain(str(message)))}.")
        return
    tell(f"[yellow]Warning:[/] {escape(plain(str(message)))}")


def say_unscored(scored: float) -> None:
    """Say what share of designs has no score, where there are any."""
    if scored < 1.0:
        tell(
            f"{1.0 - scored:.1%} of the drawn designs were never paid for and have no score (NaN); "
            "--score-samples asks the oracle for them."
        )


def print_whole(table: "Table") -> None:
    """Print a table whose cells are never cut, so that they can be copied, however narrow the terminal is.

    Columns with a `max_width` are folded to it, and no others.
    """
    from rich.measure import Measurement

    whole = Measurement.get(console, console.options.update(max_width=_MOST_COLUMNS), table).maximum
    table.width = whole if whole > console.width else None
    console.print(table, crop=False)


@contextmanager
def working(what: str) -> Iterator[None]:
    """A line on a terminal that says what takes so long, for as long as it does."""
    if not messages.is_terminal:
        yield
        return
    with messages.status(escape(f"{what} …")):
        yield


def print_summary(summary: "Summary") -> None:
    """Every metric of a run, ± its standard error if it has one; the regret in bold, or J where there is no regret."""
    from rich.table import Table

    headline = "j" if summary.regret is None else "regret"
    title = f"{summary.task}, {summary.method}, noise {summary.noise}, seed {summary.seed}"
    table = Table(title=escape(title))
    table.add_column("metric")
    table.add_column("value", justify="right")
    values = summary.model_dump()
    for name, value in values.items():
        shown = "–" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)
        error = values.get(f"{name}_se")
        shown += "" if error is None else f" ± {error:.2g}"
        table.add_row(name, escape(shown), style="bold" if name == headline else None)
    console.print(table)


def ending(summary: "Summary") -> list[str]:
    """Two sentences on what came of a run: what it did, and what was designed."""
    from stochflow.runs.monitor.throughput import time_text

    done = "Finished" if summary.status == "finished" else "Stopped"
    noise = f"{summary.noise:g}" if isinstance(summary.noise, float) else summary.noise
    noise = "none" if noise == "0" else noise
    spent = f"{summary.trajectories:,} trajectories" if summary.trajectories else f"{summary.steps:,} steps"
    parts = []
    if summary.mean_score is not None:
        best = "" if summary.attainable_score is None else f" ({summary.attainable_score:.3f} is possible)"
        parts.append(f"mean score {summary.mean_score:.3f}{best}")
    if summary.top100_mean is not None:
        parts.append(f"best 100 {summary.top100_mean:.3f}")
    parts.append(f"{summary.num_modes} different peaks")
    return [
        f"{done} {summary.task}, {summary.method}, noise {noise}, seed {summary.seed}: {spent}, "
        f"{time_text(summary.seconds)}.",
        f"Designs: {', '.join(parts)}.",
    ]


def listing(*columns: "Column | str", title: str | None = None) -> "Table":
    """An empty table for long texts: no lines between the columns, so that they fit 80 of them."""
    from rich import box
    from rich.table import Table

    return Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False, title=title)


def print_optimum(result: Mapping[str, Any]) -> None:
    """What `stochflow.exact` has found, as a table."""
    from rich.table import Table

    ordered = "value_of_feedback" in result
    what = "Optimum without feedback" if ordered else "Attainable optimum"
    title = f"{what} of {result['task']}, β = {result['beta']:g}, floor {result['floor']:g}"
    shown = Table(title=escape(title))
    for heading in ("noise", "min KL (nats)", "TV at that point", r"E\[score]", "log Z"):
        shown.add_column(heading, justify="right")
    columns = {"min_kl": 5, "min_tv": 4, "attainable_score": 4, "log_z_true": 4}
    cells = ("–" if result[key] is None else f"{result[key]:.{digits}f}" for key, digits in columns.items())
    shown.add_row(escape(str(result["noise"])), *cells)
    console.print(shown)
    if "log_z_error" in result:
        console.print(f"log Z may be too large by {result['log_z_error']:.1g} nats at most.", highlight=False)
    if "infeasible_share" in result:
        shares = ", ".join(f"{share:.3f}" for share in result["infeasible_share"])
        console.print(f"Prefixes with a child below the slip floor, by depth: {shares}", highlight=False)
    if ordered:
        _print_orders(result)
    if "min_kl_revealed" in result:
        line = (
            f"Policies that read outcomes alone: {result['min_kl_without_history']:.5f}; that are told the hidden "
            f"state: {result['min_kl_revealed']:.5f}. Certified to {result['min_kl_gap']:.1e} nats."
        )
        console.print(line, highlight=False)


def _print_orders(result: Mapping[str, Any]) -> None:
    """What is known of orders without feedback beside their optimum."""
    kl, value = result["min_kl_with_feedback"], result["value_of_feedback"]
    for line in (
        f"Certified: no orders come below {result['min_kl_lower_bound']:.6f} nats; gap {result['min_kl_gap']:.1e}.",
        f"With feedback: {kl:.5f}; feedback is worth {value:.5f} nats.",
        f"Ordering R/Z itself, ignoring the noise: {result['kl_ignoring_noise']:.5f}.",
        f"Strings ordered with probability above 1e-7: {result['num_orders']:,}.",
    ):
        console.print(line, highlight=False)


def print_comparison(found: "Comparison", out: Path, num_finished: int) -> None:
    """A table for each task and noise, and where the runs are."""
    for standing in found.standings:
        console.print(_standing_table(standing, found))
        console.print(escape(standing.verdict), highlight=False, soft_wrap=True)
        console.print()
    console.print(
        f"{num_finished} runs in {escape(str(out))} (every run in results.csv and results.parquet)",
        highlight=False,
        soft_wrap=True,
    )


def _beside(metric: str, rows: "pd.DataFrame") -> dict[str, tuple[str, int]]:
    """What is shown beside the metric that decides: TV, or E[score] where there is none, and what runs always have."""
    if metric == "mean_score":
        return _MEDIANS
    exact = metric == "regret" and (not len(rows) or bool(rows["tv"].notna().any()))
    return (_TV if exact else _SCORE) | _MEDIANS


def _standing_table(standing: "Standing", found: "Comparison") -> "Table":
    """Methods by median, best first; the winner, if there is one, in bold with a star."""
    from rich.table import Table

    noise = f"{standing.noise}, orders" if standing.feedback == "none" else standing.noise
    title = f"{standing.task}, noise {noise}, {found.spec.trajectories:,} trajectories; medians over seeds"
    table = Table(title=escape(title))
    table.add_column("method", no_wrap=True)
    rows = found.frame[(found.frame["task"] == standing.task) & (found.frame["status"] == "finished")]
    # as text, which every channel of a column becomes as soon as one of them has no number
    rows = rows[(rows["noise"].astype("str") == str(standing.noise)) & (rows["feedback"] == standing.feedback)]
    beside = _beside(standing.metric, rows)
    metric = _HEADINGS.get(standing.metric, standing.metric)
    for heading in (metric, standing.interval, *(heading for heading, _ in beside.values()), "runs"):
        table.add_column(heading, justify="right", no_wrap=True)
    medians = rows.groupby("method")[list(beside)].median()
    for entry in standing.entries:
        won = entry.method == standing.winner
        cells = ["–"] * (2 + len(beside))
        if entry.median is not None:
            cells = [f"{entry.median:.4f}", f"{entry.low:.4f}–{entry.high:.4f}"]
            values = medians.loc[entry.method]
            cells += [
                f"{values[name]:.{digits}f}" if values.notna()[name] else "–" for name, (_, digits) in beside.items()
            ]
        name = escape(entry.method) + (" ★" if won else "")
        table.add_row(name, *cells, f"{entry.runs}/{entry.planned}", style="bold" if won else None)
    return table


@contextmanager
def progress_line(counted: str) -> Iterator[Any]:
    """A live line with times, rate, memory, loss and exact figures; where nobody watches, a plain one now and then.

    Args:
        counted: what the rate is about, `trajectories`, `oracle_calls` or `step`.
    """
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    from stochflow.runs.monitor.throughput import Throughput, time_text, training_figures

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

"""`stochflow campaign`: rounds of orders and measurements."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from stochflow.cli.parameters import takes
from stochflow.cli.render import console, print_whole, say, tell, working
from stochflow.config.options import CONSTRAINTS, Option, arguments_of
from stochflow.core.errors import ConfigError
from stochflow.core.signals import importing
from stochflow.core.words import counted

if TYPE_CHECKING:
    import pandas as pd

    from stochflow.campaigns.campaign import Campaign

_CREATE = (
    Option("directory", Path, "Directory of the campaign.", flag="", metavar="DIR", default=...),
    Option("alphabet", str, "dna, rna, protein, or the letters.", default=...),
    Option("length", int, "Letters of a design.", default=...),
    Option("noise", str, "Between order and outcome: as for `train`, or a file of `channel fit`.", default="none"),
    Option("goal", str, "maximise, sample (in proportion to the score), or target:VALUE.", default="maximise"),
    Option("batch", int, "Wells of a round.", default=96),
    Option("thresholds", list[str], "Bound of a measured property; repeatable.", flag="--threshold", metavar="NAME>=X"),
    *CONSTRAINTS,
    Option("seed", int, "Seed of every random choice.", default=0),
)
_SHOWN = 12  # rows of a table in a terminal
_FOLDED = 24  # letters in a line of a reason there
_ASKED = ["id", "order", "well", "predicted", "interval", "why"]
_JUDGED = ["sequence", "predicted", "low", "high", "distance", "measured", "feasible"]  # columns that fit there
_DIRECTORY = typer.Argument(metavar="DIR", help="Directory of the campaign.")

app = typer.Typer(help="Ask for designs, order them, tell what was measured, and ask again.")


@app.callback(invoke_without_command=True)
def campaign(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command()
@takes(*_CREATE)
def create(**given: Any) -> None:
    """Begin a campaign in a new directory."""
    arguments = arguments_of(_CREATE, given)
    with importing():
        from stochflow.campaigns.campaign import Campaign
    made = Campaign.create(**arguments | {"thresholds": arguments["thresholds"] or ()})
    size = made.settings.space.size
    counted = "" if size is None else f"; {size:,} designs can be ordered"
    say(f"Campaign in {made.directory}: goal {made.settings.goal}, noise {made.settings.noise}{counted}.")
    say(f"Next: stochflow campaign tell {made.directory} results.csv, or ask {made.directory} --out plate.csv")


@app.command(name="tell")
def tell_results(
    directory: Annotated[Path, _DIRECTORY],
    results: Annotated[Path, typer.Argument(help="CSV or TSV with sequence or id, and score.")],
) -> None:
    """Record results; the same file twice changes nothing."""
    told = _opened(directory).tell(results)
    say(str(told))
    if told.ignored:
        tell(f"Columns that were not read: {escape(', '.join(told.ignored))}.")


@app.command()
def ask(
    directory: Annotated[Path, _DIRECTORY],
    num: Annotated[int | None, typer.Option("-n", help="Designs to order.  [default: the campaign's batch]")] = None,
    out: Annotated[Path | None, typer.Option(help="CSV file to write, one row per well.  [default: none]")] = None,
    again: Annotated[
        int | None, typer.Option(metavar="ASK", help="Write an earlier ask again.  [default: none]")
    ] = None,
) -> None:
    """Choose the designs to order next; they are pending until they are told."""
    if again is not None and num is not None:
        raise ConfigError("an earlier ask has as many designs as it had; leave out -n, or --again")
    _check_name(out)
    opened = _opened(directory)
    with working("Fitting models and choosing designs"):
        plate = opened.ask(num) if again is None else opened.asked(again)
    if out is not None:
        _write(plate, out)
    else:
        interval = plate["low"].map("{:.3g}".format) + " to " + plate["high"].map("{:.3g}".format)
        _print(plate.assign(interval=interval)[_ASKED], f"{counted(len(plate), 'design')} to order")


@app.command()
def status(directory: Annotated[Path, _DIRECTORY]) -> None:
    """Print where a campaign stands."""
    from rich.table import Table

    found = _opened(directory).status()
    table = Table("", "", title=escape(str(directory)), show_header=False)
    for name, value in asdict(found).items():
        shown = "–" if value is None else f"{value:,}" if isinstance(value, int) else f"{value}"
        table.add_row(name.removeprefix("num_").replace("_", " "), escape(shown))
    print_whole(table)


@app.command()
def judge(
    directory: Annotated[Path, _DIRECTORY],
    candidates: Annotated[Path, typer.Argument(help="FASTA, CSV with a column sequence, or one sequence per line.")],
    out: Annotated[Path | None, typer.Option(help="CSV file to write.  [default: none]")] = None,
) -> None:
    """Predict designs that somebody else proposes, and say what is known of them."""
    _check_name(out)
    opened = _opened(directory)
    with working("Fitting models"):
        judged = opened.judge(candidates)
    if out is not None:
        _write(judged, out)
    else:
        _print(judged[_JUDGED], counted(len(judged), "candidate"))


@app.command()
def rehearse(
    directory: Annotated[Path, _DIRECTORY],
    table: Annotated[str, typer.Argument(help="CSV with sequence and score, or a task such as tfbind8.")],
    rounds: Annotated[int, typer.Option(min=1, help="Rounds to play.")] = 4,
    batch: Annotated[int | None, typer.Option(help="Wells of a round.  [default: the campaign's batch]")] = None,
    out: Annotated[Path | None, typer.Option(help="CSV file to write.  [default: none]")] = None,
) -> None:
    """Play the next rounds on known scores; the campaign itself stays as it is."""
    _check_name(out)
    opened = _opened(directory)
    with working(f"Playing {counted(rounds, 'round')}"):
        played = opened.rehearse(table, rounds=rounds, batch=batch)
    _print(played, f"{counted(rounds, 'round')} on {table}")
    if out is not None:
        _write(played, out)


@app.command()
def report(
    directory: Annotated[Path, _DIRECTORY],
    out: Annotated[Path | None, typer.Option(help="Page to write.  [default: DIR/report.html]")] = None,
) -> None:
    """Write one HTML page about a campaign; it needs no network to be read."""
    opened = _opened(directory)
    with working("Fitting models and drawing"):
        written = opened.report(out)
    _said(written)


@app.command()
def undo(directory: Annotated[Path, _DIRECTORY]) -> None:
    """Take the last tell back; it stays in the file, marked as undone."""
    number, file = _opened(directory).undo()
    say(f"Tell {number} ({file}) was taken back.")


@app.command()
def export(
    directory: Annotated[Path, _DIRECTORY],
    out: Annotated[Path, typer.Option(help="File to write: .csv, .xlsx, or a FASTA file.")],
    layout: Annotated[
        str, typer.Option("--as", metavar="plate|map|fasta|idt|twist", help="What the file looks like.")
    ] = "plate",
    ask: Annotated[int | None, typer.Option(help="Number of the ask.  [default: the last one]")] = None,
) -> None:
    """Write an ask as a plate map, FASTA, or a vendor's order sheet."""
    _said(_opened(directory).export(out, layout, ask))


def _opened(directory: Path) -> "Campaign":
    with importing():
        from stochflow.campaigns.campaign import Campaign
    return Campaign.open(directory)


def _check_name(out: Path | None) -> None:
    """Refuse a file that cannot be written before anything is recorded."""
    if out is not None and (out.suffix != ".csv" or out.is_dir() or not out.parent.is_dir()):
        raise ConfigError(f"--out {out} must be a .csv file in a folder that exists; choose another name")


def _write(frame: "pd.DataFrame", out: Path) -> None:
    from stochflow.core.files import write_atomically

    write_atomically(out, frame.to_csv(index=False))
    _said(out)


def _said(out: Path) -> None:
    console.print(f"Written: {escape(str(out))}", highlight=False, soft_wrap=True)


def _print(frame: "pd.DataFrame", title: str) -> None:
    """The first rows of a table."""
    from rich.table import Table

    table = Table(title=escape(title))
    for name in frame.columns:
        table.add_column(escape(name), max_width=_FOLDED if name == "why" else None)
    for row in frame.head(_SHOWN).itertuples(index=False):
        table.add_row(*(escape(f"{value:.4g}" if isinstance(value, float) else str(value)) for value in row))
    print_whole(table)
    if len(frame) > _SHOWN:
        tell(f"{counted(len(frame) - _SHOWN, 'more row')}; write all of them with --out.")

"""`stochflow channel fit` and `stochflow channel show`."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.markup import escape

from stochflow.cli.render import console, say, tell
from stochflow.config.noise import check_matrix_name
from stochflow.core.signals import importing

if TYPE_CHECKING:
    from rich.table import Table

    from stochflow.environments.channel_fit import FittedChannel

Model = Literal["auto", "global", "position"]
_FEW_LETTERS = 6  # whose matrix with intervals fits into a terminal
_MOST_ERRORS = 2

app = typer.Typer(help="Estimate the noise from sequenced designs.")


@app.callback(invoke_without_command=True)
def channel(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command()
def fit(
    pairs: Annotated[Path, typer.Argument(help="CSV or TSV with intended and observed strings.")],
    out: Annotated[Path, typer.Option(help="YAML file to write, for --noise.")],
    intended: Annotated[str, typer.Option(help="Column of intended strings.")] = "intended",
    observed: Annotated[str, typer.Option(help="Column of observed strings.")] = "observed",
    count: Annotated[
        str | None, typer.Option(help="Column that says how often a pair was seen.  [default: count, if there is one]")
    ] = None,
    alphabet: Annotated[str, typer.Option(help="dna, rna, protein, or the letters.")] = "dna",
    model: Annotated[Model, typer.Option(help="One matrix, one per position, or what predicts better.")] = "auto",
) -> None:
    """Learn P(observed letter | intended letter) from intended and sequenced strings of equal length."""
    check_matrix_name(out)
    with importing():
        from stochflow.environments.channel_fit import fit_channel
    found = fit_channel(pairs, intended=intended, observed=observed, count=count, alphabet=alphabet, model=model)
    found.save(out)
    _print(found, str(out))
    console.print(
        f"Written: {escape(str(out))} (use it with --noise {escape(str(out))})", highlight=False, soft_wrap=True
    )


@app.command()
def show(path: Annotated[Path, typer.Argument(metavar="CHANNEL", help="File of `stochflow channel fit`.")]) -> None:
    """Print a fitted channel: its matrix, intervals, counts, and error rates by position."""
    with importing():
        from stochflow.environments.channel_fit import FittedChannel
    _print(FittedChannel.load(path), str(path))


def _print(found: "FittedChannel", name: str) -> None:
    """The mean matrix with its intervals, error rates, and how the model was chosen."""
    console.print(_matrix_table(found, name))
    if found.model == "position":
        console.print(_position_table(found))
    else:
        rate, lower, upper = (float(each[0]) for each in found.error_rates)
        console.print(f"Error rate: {rate:.3%} of letters ({lower:.3%} to {upper:.3%}).", highlight=False)
    say(f"Model: {found.model}, {_held_out(found)} ({found.reason}).")
    say(f"Counted: {found.num_pairs:,} pairs, {int(found.counts.sum()):,} letters.")
    if found.num_left_out:
        share = found.num_left_out / (found.num_left_out + found.num_pairs)
        pairs = "pair" if found.num_left_out == 1 else "pairs"
        tell(
            f"Left out: {found.num_left_out:,} {pairs} ({100 * share:.2g} %) of two lengths; insertions and deletions "
            "are not part of this channel."
        )


def _matrix_table(found: "FittedChannel", name: str) -> "Table":
    """P(observed | intended) with intervals; for many letters what is likeliest. Of several matrices their mean."""
    from rich.table import Table

    from stochflow.environments.channel_fit import wilson_interval

    one = found.model == "global"
    counts = found.counts.sum(axis=0)
    weights = found.counts.sum(axis=-1, keepdims=True) + 1e-9  # the mean is then that of all letters
    matrix = found.matrices[0] if one else (found.matrices * weights).sum(axis=0) / weights.sum(axis=0)
    lower, upper = wilson_interval(counts, counts.sum(axis=-1, keepdims=True))
    what = "P(observed | intended) in %" if one else "P(observed | intended) in %, mean of all positions"
    table = Table(title=escape(f"{name}: {what}, 95 % intervals"))
    table.add_column("intended\ncount", justify="right")
    few = len(found.letters) <= _FEW_LETTERS
    for heading in found.letters if few else ("correct", "likeliest errors"):
        table.add_column(escape(heading), justify="right")
    for row, letter in enumerate(found.letters):
        cells = [
            f"{100 * value:.4g}\n{100 * low:.3g}–{100 * high:.3g}"
            for value, low, high in zip(matrix[row], lower[row], upper[row], strict=True)
        ]
        label = escape(letter) + f"\n{counts[row].sum():,}"
        if few:
            table.add_row(label, *cells)
            continue
        worst = sorted((b for b in range(len(cells)) if b != row), key=lambda b: -matrix[row, b])[:_MOST_ERRORS]
        listed = (escape(f"{found.letters[b]} {cells[b]}").replace("\n", " (") + ")" for b in worst)
        table.add_row(label, cells[row], ", ".join(listed))
    return table


def _position_table(found: "FittedChannel") -> "Table":
    """Error rates by position, and the commonest error there."""
    from rich.table import Table

    table = Table(title="Share of wrong letters by position")
    for heading in ("position", "error rate", "95 % interval", "letters", "likeliest error"):
        table.add_column(heading, justify="right", no_wrap=True)
    rows = zip(*found.error_rates, found.counts, found.matrices, strict=True)
    size = len(found.letters)
    for position, (rate, lower, upper, counts, matrix) in enumerate(rows, start=1):
        errors = [(matrix[a, b], a, b) for a in range(size) for b in range(size) if a != b]
        value, a, b = max(errors)
        worst = f"{found.letters[a]}→{found.letters[b]} {value:.3%}"
        table.add_row(str(position), f"{rate:.3%}", f"{lower:.3%}–{upper:.3%}", f"{counts.sum():,}", escape(worst))
    return table


def _held_out(found: "FittedChannel") -> str:
    """Held-out log-likelihoods as words."""
    values = {name: value for name, value in found.held_out.items() if not math.isnan(value)}
    if not values:
        return "too few pairs to hold some out"
    listed = ", ".join(f"{name} {value:.6f}" for name, value in values.items())
    return f"log-likelihood per held-out letter in nats: {listed}"

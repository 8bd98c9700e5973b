"""`stochflow channel fit` and `stochflow channel show`."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.markup import escape

from stochflow.cli.render import console, say, tell
from stochflow.config.noise import PRESETS, check_matrix_name, parse_noise
from stochflow.core.signals import importing

if TYPE_CHECKING:
    from rich.table import Table

    from stochflow.environments.fitted_channel import FittedChannel

Model = Literal["auto", "global", "position", "context"]
_FEW_LETTERS = 6  # whose matrix with intervals fits into a terminal
_MOST_ERRORS = 2
_FEW_TIMES = 20  # intended letters of a kind, below which its row says little

app = typer.Typer(help="Estimate the noise from sequenced designs.")


@app.callback(invoke_without_command=True)
def channel(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command()
def fit(
    pairs: Annotated[
        Path, typer.Argument(help="CSV or TSV with intended and observed strings; or FASTQ or FASTA, with --orders.")
    ],
    out: Annotated[Path, typer.Option(help="YAML file to write, for --noise.")],
    orders: Annotated[
        Path | None,
        typer.Option(help="What was ordered, of which reads are read: FASTA, CSV or one per line.  [default: none]"),
    ] = None,
    intended: Annotated[str, typer.Option(help="Column of intended strings.")] = "intended",
    observed: Annotated[str, typer.Option(help="Column of observed strings.")] = "observed",
    count: Annotated[
        str | None, typer.Option(help="Column that says how often a pair was seen.  [default: count, if there is one]")
    ] = None,
    alphabet: Annotated[str, typer.Option(help="dna, rna, protein, or the letters.")] = "dna",
    model: Annotated[Model, typer.Option(help="One matrix, one per position or letter before, or the best.")] = "auto",
) -> None:
    """Learn P(observed letter | intended letter), deletions and duplications from intended and sequenced strings."""
    check_matrix_name(out)
    with importing():
        from stochflow.environments.channel_fit import fit_channel
    found = fit_channel(
        pairs, orders=orders, intended=intended, observed=observed, count=count, alphabet=alphabet, model=model
    )
    found.save(out)
    _print(found, str(out))
    scarce = found.letters_below(_FEW_TIMES)
    if scarce:
        few = ", ".join(f"{letter} {num}" for letter, num in scarce.items())
        tell(
            f"[yellow]Warning:[/] too few pairs to know the noise: these letters were intended fewer than {_FEW_TIMES} "
            f"times ({escape(few)}), and their rows are mostly a guess; give more pairs."
        )
    console.print(
        f"Written: {escape(str(out))} (use it with --noise {escape(str(out))})", highlight=False, soft_wrap=True
    )


@app.command()
def show(
    channel: Annotated[
        str, typer.Argument(metavar="CHANNEL", help="File of `stochflow channel fit`, or a name as in --noise.")
    ],
) -> None:
    """Print a fitted channel, with intervals, counts and error rates, or the matrix of a channel by name."""
    if channel.partition(":")[0] in PRESETS:
        _print_preset(channel)
        return
    with importing():
        from stochflow.environments.fitted_channel import FittedChannel
    _print(FittedChannel.load(channel), channel)


def _print(found: "FittedChannel", name: str) -> None:
    """The mean matrix with its intervals, error rates, and how the model was chosen."""
    console.print(_matrix_table(found, name))
    if found.model != "global":
        console.print(_group_table(found))
    else:
        rate, lower, upper = (float(each[0]) for each in found.error_rates)
        console.print(f"Error rate: {rate:.3%} of letters ({lower:.3%} to {upper:.3%}).", highlight=False)
    say("Per intended letter: " + ", ".join(_edit(name, *edit) for name, edit in found.edits.items()) + ".")
    say(f"Model: {found.model}, {_held_out(found)} ({found.reason}).")
    say(f"Counted: {found.num_pairs:,} pairs, {int(found.counts.sum()):,} letters.")
    if found.num_left_out:
        tell(f"Left out: {_share(found.num_left_out, found)}, which differ in too many letters.")
    if found.num_ambiguous:
        tell(f"Left out: {_share(found.num_ambiguous, found)}, as near to one order as to another.")


def _share(number: int, found: "FittedChannel") -> str:
    """A number of pairs, and how many that is of all."""
    share = number / (found.num_left_out + found.num_ambiguous + found.num_pairs)
    return f"{number:,} {'pair' if number == 1 else 'pairs'} ({100 * share:.2g} %)"


def _edit(name: str, rate: float, lower: float, upper: float, count: int) -> str:
    """Rate of an edit with its interval as words."""
    return f"{'other insertion' if name == 'insertion' else name} {rate:.3%} ({lower:.3%} to {upper:.3%}, {count:,})"


def _print_preset(name: str) -> None:
    """The matrix of a channel by name."""
    with importing():
        from rich.table import Table

        from stochflow.environments.channel_presets import preset
    settings = parse_noise(name)
    channel, letters = preset(settings["kind"], settings["noise"], None)
    letters = letters or "ACGT"
    few = len(letters) <= _FEW_LETTERS
    table = Table("intended", *(letters if few else ("correct", "likeliest errors")))
    for place, row in enumerate(channel.matrix(0).tolist()):
        cells = [f"{100 * value:.4g}" for value in row]
        worst = sorted((b for b in range(len(row)) if b != place), key=lambda b: -row[b])[: 2 * _MOST_ERRORS]
        errors = ", ".join(f"{letters[b]} {cells[b]}" for b in worst)
        table.add_row(letters[place], *(cells if few else (cells[place], errors)))
    say(f"{channel.name}: P(observed | intended) in %")
    console.print(table)
    if channel.deletion:
        say(f"Deletions: {channel.deletion:.3%} of letters, in designs of variable length.")


def _matrix_table(found: "FittedChannel", name: str) -> "Table":
    """P(observed | intended) with intervals; for many letters what is likeliest. Of several matrices their mean."""
    from rich.table import Table

    from stochflow.environments.fitted_channel import wilson_interval

    one = found.model == "global"
    counts = found.counts.sum(axis=0)
    matrix = found.mean
    lower, upper = wilson_interval(counts, counts.sum(axis=-1, keepdims=True))
    what = "P(observed | intended) in %" + ("" if one else f", mean of all {found.model}s")
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


def _group_table(found: "FittedChannel") -> "Table":
    """Error rates by position or letter before, and the commonest error there."""
    from rich.table import Table

    by_position = found.model == "position"
    group = "position" if by_position else "letter before"
    labels = [str(number) for number in range(1, len(found.counts) + 1)] if by_position else [*found.letters, "none"]
    table = Table(title=f"Share of wrong letters by {group}")
    for heading in (group, "error rate", "95 % interval", "letters", "likeliest error"):
        table.add_column(heading, justify="right", no_wrap=True)
    rows = zip(labels, *found.error_rates, found.counts, found.matrices, strict=True)
    size = len(found.letters)
    for label, rate, lower, upper, counts, matrix in rows:
        errors = [(matrix[a, b], a, b) for a in range(size) for b in range(size) if a != b]
        value, a, b = max(errors)
        worst = f"{found.letters[a]}→{found.letters[b]} {value:.3%}"
        table.add_row(escape(label), f"{rate:.3%}", f"{lower:.3%}–{upper:.3%}", f"{counts.sum():,}", escape(worst))
    return table


def _held_out(found: "FittedChannel") -> str:
    """Held-out log-likelihoods as words."""
    values = {name: value for name, value in found.held_out.items() if not math.isnan(value)}
    if not values:
        return "too few pairs to hold some out"
    listed = ", ".join(f"{name} {value:.6f}" for name, value in values.items())
    return f"log-likelihood per held-out letter in nats: {listed}"

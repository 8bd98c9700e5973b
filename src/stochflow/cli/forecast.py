"""`stochflow forecast` and `stochflow series`."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from stochflow.cli.render import console, listing, messages, plain
from stochflow.config.options import names_in
from stochflow.config.yaml import parse_assignment
from stochflow.core.errors import ConfigError
from stochflow.core.signals import importing


def _list_settings(wanted: bool) -> None:
    """Print every setting of a forecaster, and end."""
    if not wanted:
        return
    from rich.table import Table

    with importing():
        from stochflow.forecasting.config import ForecastConfig
    table = Table("setting", "default", "what it is", title="Settings of a forecaster, for --set name=value")
    for name, field in ForecastConfig.model_fields.items():
        default = f"{field.default:.3g}" if isinstance(field.default, float) else str(field.default)
        table.add_row(name, default, field.description)
    console.print(table)
    raise typer.Exit


def forecast(
    data: Annotated[
        str, typer.Argument(help="CSV or parquet with unique_id, ds, y; or a series of `stochflow series`.")
    ],
    horizon: Annotated[int, typer.Option(help="Steps ahead.")] = 12,
    freq: Annotated[str | None, typer.Option(help="Pandas frequency: h, D, W, MS, …  [default: inferred]")] = None,
    season_length: Annotated[int | None, typer.Option(help="Steps of the season.  [default: by frequency]")] = None,
    level: Annotated[str, typer.Option(help="Intervals in per cent.")] = "80,95",
    id_column: Annotated[str, typer.Option(help="Column that names the series.")] = "unique_id",
    time_column: Annotated[str, typer.Option(help="Column of timestamps.")] = "ds",
    target_column: Annotated[str, typer.Option(help="Column of values.")] = "y",
    future: Annotated[str, typer.Option(metavar="A,B", help="Columns known in advance.  [default: none]")] = "",
    past: Annotated[str, typer.Option(metavar="A,B", help="Columns known up to now.  [default: none]")] = "",
    static: Annotated[
        str, typer.Option(metavar="A,B", help="Columns with one value per series.  [default: none]")
    ] = "",
    future_data: Annotated[
        Path | None, typer.Option(help="Table with the columns known in advance.  [default: none]")
    ] = None,
    network: Annotated[
        str, typer.Option(metavar="auto|none|mlp|transformer", help="What refines the linear models.")
    ] = "auto",
    seed: Annotated[int, typer.Option(help="Seed of every random generator.")] = 0,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="name=value",
            help="Override one setting (see --list-settings); repeatable.  [default: none]",
        ),
    ] = None,
    list_settings: Annotated[
        bool,
        typer.Option(
            "--list-settings", help="List all settings of --set, and end.", is_eager=True, callback=_list_settings
        ),
    ] = False,
    out: Annotated[Path, typer.Option(help="CSV of forecasts.")] = Path("forecast.csv"),
    plot: Annotated[bool, typer.Option("--plot", help="Also draw a fan chart, as HTML beside --out.")] = False,
    save: Annotated[Path | None, typer.Option(help="Folder to keep the fitted forecaster in.  [default: none]")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")] = False,
) -> None:
    """Forecast time series: medians and intervals as CSV, a fan chart with --plot."""
    if save is not None and save.exists() and not overwrite:
        raise ConfigError(f"--save {save} exists; choose another folder or allow --overwrite")
    settings: dict[str, Any] = {"network": network, "seed": seed}
    for assignment in assignments or ():
        settings.update(parse_assignment(assignment))
    levels = _percents(level)
    with importing():
        from stochflow.forecasting.command import Request, forecast_file
        from stochflow.forecasting.data.columns import Columns
        from stochflow.forecasting.progress import progress_bar
    columns = Columns(
        id_column, time_column, target_column, tuple(names_in(future)), tuple(names_in(past)), tuple(names_in(static))
    )
    command = shlex.join(["stochflow", *sys.argv[1:]])
    request = Request(
        data, horizon, out, freq, season_length, columns, future_data, levels, settings, plot, overwrite, command
    )
    with progress_bar(True, messages) as show:
        forecasts, forecaster = forecast_file(request, show)
    if save is not None:
        forecaster.save(save)
    guided = f"{forecaster.network} network on {forecaster.network_weight:.0%} of the paths"
    factors = sorted({f"{factor:.2f}" for factor in forecaster.stretch.values()}, key=float)
    spread = f"; spread × {' to '.join(dict.fromkeys([factors[0], factors[-1]]))}" if factors != ["1.00"] else ""
    console.print(
        f"{forecasts[id_column].nunique()} series, {horizon} steps ahead; "
        f"{'linear models alone' if forecaster.network == 'none' else guided}{spread}.",
        highlight=False,
    )
    for name in columns.past:
        saved = [gains[name] for gains in forecaster.past_gains.values() if name in gains]
        if saved:
            gain = f"{sum(saved) / len(saved):.0%}"
            text = f"{name}: used by {len(saved)} series, CRPS {gain} less on held-out origins."
            console.print(escape(plain(text)), highlight=False)
    for path in [out, request.page] if plot else [out]:
        console.print(f"Written: {escape(str(path))}", highlight=False, soft_wrap=True)


def series() -> None:
    """List the real time series that ship with the package."""
    with importing():
        from stochflow.forecasting.data.datasets import SERIES
    table = listing("series", "group", "freq", "steps", "what it is")
    for info in SERIES.values():
        table.add_row(info.name, info.group, info.freq, str(info.horizon), info.description)
    console.print(table)


def _percents(listed: str) -> tuple[float, ...]:
    try:
        return tuple(float(percent) for percent in names_in(listed))
    except ValueError:
        raise ConfigError(f"--level {listed} is no list of per cents; write for example 80,95") from None

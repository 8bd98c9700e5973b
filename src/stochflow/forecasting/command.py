"""From a table on disk to forecasts on disk: what `stochflow forecast` does."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from stochflow.core.errors import ConfigError
from stochflow.core.extras import extra
from stochflow.core.files import unwritable, write_atomically
from stochflow.core.ram import require
from stochflow.forecasting.config import ForecastConfig
from stochflow.forecasting.data.columns import Columns
from stochflow.forecasting.data.datasets import SERIES, load_series
from stochflow.forecasting.data.tables import read_frame
from stochflow.forecasting.forecaster import StochflowForecaster
from stochflow.forecasting.model.stages import Report, no_report
from stochflow.forecasting.output import MODEL, interval_levels
from stochflow.forecasting.plotting import BANDS, fan_page


@dataclass(frozen=True)
class Request:
    """One call of the command: `data` is a file or the name of a series that ships with the package."""

    data: str
    horizon: int
    out: Path
    freq: str | None = None
    season_length: int | None = None
    columns: Columns = field(default_factory=Columns)
    future_data: Path | None = None
    level: tuple[float, ...] = (80.0, 95.0)
    settings: dict[str, Any] = field(default_factory=dict)
    plot: bool = False
    overwrite: bool = False
    command: str = ""

    @property
    def page(self) -> Path:
        """Where the fan chart goes: beside the forecasts."""
        return self.out.with_suffix(".html")


def forecast_file(request: Request, report: Report = no_report) -> tuple[pd.DataFrame, StochflowForecaster]:
    """Read, fit, predict and write; the forecasts and the forecaster that made them."""
    _check(request)
    frame, freq = _table(request)
    future = read_frame(request.future_data, request.columns, with_target=False) if request.future_data else None
    settings = ForecastConfig.checked(request.settings).model_dump()
    forecaster = StochflowForecaster(freq, request.horizon, request.season_length, request.columns, **settings)
    require({"num_paths × --horizon": 16.0 * forecaster.config.num_paths * request.horizon})
    forecaster.fit(frame, report)
    forecasts = forecaster.predict(level=(*request.level, *BANDS), future_df=future)
    names = request.columns
    shown = forecasts[[names.id, names.time, MODEL, *interval_levels(request.level, None)]]
    try:
        write_atomically(request.out, shown.to_csv(index=False))
    except OSError as error:
        raise unwritable(request.out, error) from None
    if request.plot:
        title = f"Forecast of {Path(request.data).name}, {request.horizon} steps ahead"
        fan_page(forecaster.history, forecasts, names, request.page, title, request.command)
    return shown, forecaster


def _check(request: Request) -> None:
    """Refuse what would fail after the work or destroy something, before the work."""
    interval_levels(request.level, None)
    targets = [request.out, request.page] if request.plot else [request.out]
    if len(set(targets)) < len(targets):
        raise ConfigError(f"--out {request.out} is where the page goes; give it another ending, such as .csv")
    for target in targets:
        if target.resolve() in [Path(source).resolve() for source in (request.data, request.future_data) if source]:
            raise ConfigError(f"{target} holds the data; choose another --out")
        if target.is_dir():
            raise ConfigError(f"{target} is a folder; choose a file for --out")
        if target.exists() and not request.overwrite:
            raise ConfigError(f"{target} exists; choose another --out or allow --overwrite")
        if not target.parent.is_dir():
            raise ConfigError(f"the folder {target.parent} of --out does not exist; create it or choose another")
    if request.columns.future and request.future_data is None:
        raise ConfigError(
            f"--future names {', '.join(request.columns.future)}; give their coming values: --future-data"
        )
    if request.plot:
        extra("plotly", "report")


def _table(request: Request) -> tuple[pd.DataFrame, str | None]:
    """The training table and its frequency."""
    if request.data in SERIES and not Path(request.data).exists():
        return load_series(request.data), request.freq or SERIES[request.data].freq
    return read_frame(Path(request.data), request.columns), request.freq

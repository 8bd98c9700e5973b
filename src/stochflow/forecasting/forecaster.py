"""`StochflowForecaster`: fit to a long table, predict distributions, cross-validate, save and load."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from stochflow.core.errors import ConfigError, DataError
from stochflow.forecasting.config import ForecastConfig, check_horizon
from stochflow.forecasting.data.columns import Columns
from stochflow.forecasting.data.encoder import Encoder, Panel
from stochflow.forecasting.data.series import Array, Series
from stochflow.forecasting.model.calibration import Calibration, calibrate, stretch_paths
from stochflow.forecasting.model.context import context_vectors, encoder_windows
from stochflow.forecasting.model.direct import direct_quantiles
from stochflow.forecasting.model.fit import train_network
from stochflow.forecasting.model.linear_models import fit_linear_models
from stochflow.forecasting.model.mixture import mix_marginals
from stochflow.forecasting.model.past_selection import select_past, using_past
from stochflow.forecasting.model.paths import path_starts, sample_paths
from stochflow.forecasting.model.ridge_ar import with_ridge_paths
from stochflow.forecasting.model.stages import Report, no_report
from stochflow.forecasting.notices import warn_left_out, warn_unknown_categories, warn_unused
from stochflow.forecasting.output import check_samples, interval_levels, quantile_rows, sample_rows
from stochflow.forecasting.progress import progress_bar
from stochflow.forecasting.storage import SETTINGS, Fitted, read_forecaster, write_forecaster

# path steps that are held in memory at once
_MAX_CELLS = 2_000_000
# values before the first cutoff
MIN_HISTORY = 16


class StochflowForecaster:
    """Probabilistic forecaster of one or many series.

    An ensemble of linear models forecasts each series; a flow network, shared by all series, shifts and scales the
    ensemble's residuals on as many paths as held-out origins support.

    Args:
        freq: pandas frequency of the series, such as "h", "D" or "MS"; inferred by default. Timestamps without a
            frequency are irregular, and their gaps are features.
        horizon: steps ahead on which the network is validated, and the default of `predict`.
        season_length: steps of the main season, if not the one that the frequency implies.
        columns: names and roles of the columns.
        future, past, static: names of columns with features, in addition to those of `columns`.
        settings: fields of `ForecastConfig`.

    >>> from stochflow.forecasting import StochflowForecaster, load_series
    >>> forecaster = StochflowForecaster(freq="MS", horizon=3, network="none").fit(load_series("airline"))
    >>> forecaster.predict(level=[80]).columns.tolist()
    ['unique_id', 'ds', 'stochflow', 'stochflow-lo-80', 'stochflow-hi-80']
    >>> forecaster.network, forecaster.problems
    ('none', {})
    """

    def __init__(
        self,
        freq: str | None = None,
        horizon: int = 12,
        season_length: int | None = None,
        columns: Columns | None = None,
        future: Sequence[str] = (),
        past: Sequence[str] = (),
        static: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        check_horizon(horizon)
        self.freq, self.horizon, self.season_length = freq, int(horizon), season_length
        self.columns = (columns or Columns()).adding(future, past, static)
        self.config = ForecastConfig.checked(settings)
        self._state: Fitted | None = None

    @property
    def problems(self) -> dict[str, str]:
        """By id, the reason why a series was left out."""
        return self._fitted().panel.problems

    @property
    def network(self) -> str:
        """Selected network: "none", "mlp" or "transformer"."""
        return self._fitted().trained.name

    @property
    def gain(self) -> float:
        """Relative reduction of the linear ensemble's CRPS by the network on held-out origins."""
        return self._fitted().trained.gain

    @property
    def network_weight(self) -> float:
        """Share of the paths that follow the network."""
        return self._fitted().trained.network_weight

    @property
    def stretch(self) -> dict[str, float]:
        """By id, the factor that calibration scales paths with around their median."""
        return {uid: found.stretch for uid, found in self._fitted().calibrations.items()}

    @property
    def hedge(self) -> dict[str, float]:
        """By id, the share of the paths that a ridge autoregression draws."""
        return {uid: found.ridge_share for uid, found in self._fitted().calibrations.items()}

    @property
    def past_gains(self) -> dict[str, dict[str, float]]:
        """By id, the features of the past that forecasts use, and by how much each reduced the held-out CRPS."""
        return self._fitted().past

    @property
    def history(self) -> pd.DataFrame:
        """Observed values that the forecaster was fitted to: ids, times and targets."""
        panel, names = self._fitted().panel, self.columns
        frames = [
            pd.DataFrame({names.id: one.uid, names.time: panel.times[one.uid], names.target: one.y})[one.observed]
            for one in panel.series
        ]
        return pd.concat(frames, ignore_index=True)

    def fit(self, df: pd.DataFrame, progress: bool | Report | None = None) -> "StochflowForecaster":
        """Fit to a long table; series that cannot be used are named in `problems`.

        A bar shows the progress where standard error is a terminal; with `progress=True` always, with False never. A
        function is called with each `Stage` instead.

        >>> from stochflow.forecasting import StochflowForecaster, load_series
        >>> forecaster = StochflowForecaster(freq="YS", network="none", calibration_origins=0).fit(load_series("lynx"))
        >>> len(forecaster.history)
        114
        """
        encoder = Encoder.fit(df, self.columns, self.freq, self.season_length)
        panel = usable_panel(encoder, df)
        warn_left_out(panel.problems)
        with progress_bar(progress) as report:
            self._state = self._fit(panel, encoder, self.horizon, None, report)
        warn_unused(df, self._state)
        return self

    def update(self, df: pd.DataFrame) -> "StochflowForecaster":
        """Fit to newer data but keep the flow network; direct networks and calibration are fitted anew.

        >>> from stochflow.forecasting import StochflowForecaster, load_series
        >>> lynx = load_series("lynx")
        >>> forecaster = StochflowForecaster(freq="YS", network="none", calibration_origins=0).fit(lynx[:-10])
        >>> forecaster.update(lynx).predict(1)["ds"].item()
        Timestamp('1935-01-01 00:00:00')
        """
        state = self._fitted()
        panel = usable_panel(state.encoder, df)
        warn_left_out(panel.problems)
        warn_unknown_categories(df, state.encoder)
        self._state = self._fit(panel, state.encoder, self.horizon, state)
        return self

    def predict(
        self,
        h: int | None = None,
        level: Sequence[float] | None = None,
        quantiles: Sequence[float] | None = None,
        num_samples: int | None = None,
        future_df: pd.DataFrame | None = None,
    ) -> pd.DataFrame:
        """Forecast `h` steps after the end of every series.

        Returns:
            One row per series and step: the ids, the times, the predictive median `stochflow`, for each `level` the
            interval `stochflow-lo-80`, `stochflow-hi-80`, for each of `quantiles` a column `stochflow-q-0.1`. With
            `num_samples` and neither of them: one row per path and step, with the number of the path in `sample`.

        >>> from stochflow.forecasting import StochflowForecaster, load_series
        >>> forecaster = StochflowForecaster(freq="YS", network="none", calibration_origins=0).fit(load_series("lynx"))
        >>> list(forecaster.predict(2, quantiles=[0.1, 0.9]).columns)
        ['unique_id', 'ds', 'stochflow', 'stochflow-q-0.1', 'stochflow-q-0.9']
        >>> forecaster.predict(2, num_samples=100).shape
        (200, 4)
        """
        horizon = self.horizon if h is None else h
        check_horizon(horizon)
        levels = interval_levels(level, quantiles)
        num = num_samples if num_samples is not None else self.config.num_paths
        check_samples(num, horizon)
        state = self._fitted()
        warn_unknown_categories(future_df, state.encoder)
        panel, extended, times, used = state.panel, [], [], []
        impossible = {}
        for index, series in enumerate(panel.series):
            try:
                ahead, when = state.encoder.future(series, panel.times[series.uid], horizon, future_df)
            except DataError as error:
                impossible[series.uid] = panel.problems[series.uid] = str(error)
                continue
            extended.append(replace(series, exogenous=np.concatenate([series.exogenous, ahead])))
            times.append(when)
            used.append(index)
        if not extended:
            raise DataError(f"no series can be forecast; {next(reversed(panel.problems.values()))}")
        warn_left_out(impossible)
        known = replace(state, panel=replace(panel, series=extended), models=state.models.subset(used))
        paths = self._paths(known, horizon, num)
        make = sample_rows if num_samples is not None and not levels else quantile_rows
        frames = [
            make(drawn, levels, {self.columns.id: series.uid, self.columns.time: when})
            for series, when, drawn in zip(extended, times, paths, strict=True)
        ]
        return pd.concat(frames, ignore_index=True)

    def cross_validation(
        self,
        df: pd.DataFrame,
        h: int | None = None,
        n_windows: int = 10,
        step_size: int | None = None,
        level: Sequence[float] | None = None,
        quantiles: Sequence[float] | None = None,
        refit: bool = False,
    ) -> pd.DataFrame:
        """Forecasts from `n_windows` rolling origins at the end of every series, with the observed values beside them.

        The origins are `step_size` steps apart, half the horizon by default. The network is trained before the first
        origin, with `refit` at each; everything else is fitted at each. Features known in advance are taken from the
        table.

        >>> from stochflow.forecasting import StochflowForecaster, load_series
        >>> forecaster = StochflowForecaster(freq="YS", horizon=4, network="none", calibration_origins=0)
        >>> found = forecaster.cross_validation(load_series("lynx"), n_windows=2, level=[80])
        >>> list(found.columns)
        ['unique_id', 'ds', 'cutoff', 'stochflow', 'stochflow-lo-80', 'stochflow-hi-80', 'y']
        >>> found["cutoff"].dt.year.unique().tolist()
        [1928, 1930]
        """
        horizon = self.horizon if h is None else h
        check_horizon(horizon)
        step = max(horizon // 2, 1) if step_size is None else step_size
        if n_windows < 1 or step < 1:
            raise ConfigError(f"n_windows is {n_windows} and step_size {step}; give at least 1 for each")
        levels = interval_levels(level, quantiles)
        num_held = horizon + (n_windows - 1) * step
        encoder, panel = self._known_before(df, num_held)
        rows: list[pd.DataFrame] = []
        known: Fitted | None = None
        for window in range(n_windows):
            cut = [truncated(series, len(series) - num_held + window * step, horizon) for series in panel.series]
            fitted = self._fit(replace(panel, series=cut), encoder, horizon, None if refit else known)
            if known is None:
                warn_left_out(panel.problems)
                warn_unused(df, fitted)
            known = fitted
            paths = self._paths(fitted, horizon, self.config.num_paths)
            for series, whole, drawn in zip(cut, panel.series, paths, strict=True):
                times, here = panel.times[series.uid], slice(len(series), len(series) + horizon)
                labels = {self.columns.id: series.uid, self.columns.time: times[here], "cutoff": times[len(series) - 1]}
                truth = np.where(whole.observed[here], whole.y[here], np.nan)
                rows.append(quantile_rows(drawn, levels, labels).assign(**{self.columns.target: truth}))
        return pd.concat(rows, ignore_index=True)

    def save(self, path: str | Path) -> Path:
        """Write the fitted forecaster to a folder: weights and data as safetensors, the rest as JSON.

        >>> import tempfile
        >>> from stochflow.forecasting import StochflowForecaster, load_series
        >>> forecaster = StochflowForecaster(freq="YS", network="none", calibration_origins=0).fit(load_series("lynx"))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sorted(file.name for file in forecaster.save(folder).iterdir())
        ['forecaster.json', 'forecaster.safetensors']
        """
        settings = {name: getattr(self, name) for name in SETTINGS}
        return write_forecaster(Path(path), settings, self.config, self._fitted())

    @classmethod
    def load(cls, path: str | Path) -> "StochflowForecaster":
        """The forecaster that `save` wrote; its forecasts are identical.

        >>> import tempfile
        >>> from stochflow.forecasting import StochflowForecaster, load_series
        >>> forecaster = StochflowForecaster(freq="YS", network="none", calibration_origins=0).fit(load_series("lynx"))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     loaded = StochflowForecaster.load(forecaster.save(folder))
        >>> loaded.predict().equals(forecaster.predict())
        True
        """
        settings, config, fitted = read_forecaster(Path(path))
        forecaster = cls(columns=fitted.encoder.columns, **settings, **config.model_dump())
        forecaster._state = fitted
        return forecaster

    def _fitted(self) -> Fitted:
        if self._state is None:
            raise ConfigError("the forecaster has not been fitted; call fit first")
        return self._state

    def _fit(
        self, panel: Panel, encoder: Encoder, horizon: int, known: Fitted | None, report: Report = no_report
    ) -> Fitted:
        """Fit everything to a panel; past features and the flow network are those of `known` where it has any."""
        series, seasonality, places = panel.series, encoder.seasonality, encoder.past_places
        if known is None:
            series, past = select_past(series, places, seasonality, horizon, self.config, report)
            categories = tuple(encoder.num_categories)
            trained = train_network(series, seasonality, horizon, self.config, categories, report)
        else:
            past, trained = known.past, known.trained
            series = [using_past(one, places, past.get(one.uid, {})) for one in series]
        panel = replace(panel, series=series)
        # without held-out origins the neutral one
        calibrations = dict.fromkeys((one.uid for one in series), Calibration())
        calibrations |= calibrate(trained, series, seasonality, horizon, self.config, report)
        direct = direct_quantiles(series, seasonality, horizon, self.config)
        models = fit_linear_models(series, seasonality, self.config, report=report)
        return Fitted(encoder, panel, trained, calibrations, past, direct, models)

    def _known_before(self, df: pd.DataFrame, num_held: int) -> tuple[Encoder, Panel]:
        """Encoder fitted without the last `num_held` rows, and the whole series that are long enough without them."""
        too_short = f"no series has {num_held + MIN_HISTORY} values; take fewer windows or a shorter horizon"
        known = _drop_last(df, self.columns, num_held)
        if known.empty and not df.empty:
            raise DataError(too_short)
        encoder = Encoder.fit(known, self.columns, self.freq, self.season_length)
        panel = encoder.panel(df)
        ends = [max(len(series) - num_held, 0) for series in panel.series]
        used = [one for one, end in zip(panel.series, ends, strict=True) if one.observed[:end].sum() >= MIN_HISTORY]
        if not used:
            raise DataError(too_short)
        return encoder, replace(panel, series=used)

    def _paths(self, fitted: Fitted, horizon: int, num_paths: int) -> list[Array]:
        """Sampled futures of every series, [num_paths, horizon] each."""
        panel, models, network = fitted.panel.series, fitted.models, fitted.trained.network
        generator = torch.Generator().manual_seed(self.config.seed)
        windows = encoder_windows(network, panel, models, self.config.context_length)
        ends = torch.tensor([len(series) for series in panel])
        contexts = context_vectors(network, panel, windows, torch.arange(len(panel)), ends)
        drawn = []
        for index, (series, ensemble) in enumerate(zip(panel, models.ensembles, strict=True)):
            own = contexts[index : index + 1] if contexts is not None else None
            calibration = fitted.calibrations[series.uid]
            left, parts = num_paths, []
            while left:
                size = min(left, max(_MAX_CELLS // horizon, 1))
                start = path_starts(series, ensemble, [len(series)], horizon, size, models.past[index], generator)
                part = sample_paths(start, models, network, generator, own, fitted.trained.network_weight).numpy()
                parts.append(with_ridge_paths(part, calibration.ridge_share, models.ridges[index], series.y, generator))
                left -= size
            paths = stretch_paths(np.concatenate(parts), calibration.stretch, ensemble.floor)
            direct = fitted.direct.get(series.uid)
            drawn.append(paths if direct is None else mix_marginals(paths, direct, self.config.direct_share))
        return drawn


def usable_panel(encoder: Encoder, df: pd.DataFrame) -> Panel:
    """The panel of a table; raises a DataError if none of its series can be used."""
    panel = encoder.panel(df)
    if not panel.series:
        raise DataError(f"no series can be used; {next(iter(panel.problems.values()))}")
    return panel


def truncated(series: Series, end: int, horizon: int) -> Series:
    """The series as known before index `end`, with exogenous features of `horizon` more steps."""
    observed = series.observed[:end]
    last = int(np.flatnonzero(observed)[-1])
    y = series.y[:end].copy()
    y[last + 1 :] = y[last]  # a gap that is open at `end` must not be interpolated towards later values
    return replace(
        series,
        y=y,
        observed=observed,
        exogenous=series.exogenous[: end + horizon],
        past=series.past[:end],
        positions=series.positions[:end],
    )


def _drop_last(df: pd.DataFrame, columns: Columns, num: int) -> pd.DataFrame:
    """The table without the last `num` rows of every series."""
    if columns.time not in df.columns:
        return df  # the encoder says what is missing
    ordered = df.sort_values(columns.time)
    if columns.id not in df.columns:
        return ordered.iloc[:-num]
    return ordered[ordered.groupby(columns.id).cumcount(ascending=False) >= num]

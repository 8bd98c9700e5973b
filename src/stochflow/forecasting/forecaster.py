"""`StochflowForecaster`: fit on a long table, predict distributions, judge itself on rolling origins, save and load."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from stochflow.core.errors import ConfigError, DataError
from stochflow.forecasting.config import ForecastConfig
from stochflow.forecasting.data.encoder import Columns, Encoder, Panel, check_horizon
from stochflow.forecasting.data.series import Array, Series
from stochflow.forecasting.model.calibration import Verdict, stretched
from stochflow.forecasting.model.direct import direct_values, pooled
from stochflow.forecasting.model.fit import (
    Report,
    Trained,
    World,
    context_windows,
    fit_world,
    silent,
    thoughts,
    train_network,
)
from stochflow.forecasting.model.paths import sample_paths, starts
from stochflow.forecasting.model.ridge_ar import hedged
from stochflow.forecasting.model.spread import verdicts
from stochflow.forecasting.storage import SETTINGS, read_forecaster, write_forecaster

MODEL = "stochflow"
# path steps that are held in memory at once
_MAX_CELLS = 2_000_000
# path steps of one series that may be asked for
_MAX_DRAWN = 200_000_000
# values before the first cutoff
MIN_HISTORY = 16


@dataclass(frozen=True)
class _State:
    """What fitting leaves behind."""

    encoder: Encoder
    panel: Panel
    trained: Trained
    world: World


class StochflowForecaster:
    """Probabilistic forecasts for one or many series.

    An ensemble of linear anchors says what each series would do if it went on as before. A flow network, shared by all
    series, says where the world will land around them; it is used as far as held-out origins trust it.

    Args:
        freq: pandas frequency of the series, such as "h", "D" or "MS". Without it, it is inferred; timestamps without
            one are irregular and their gaps are used.
        horizon: steps ahead that the network is judged on, and that `predict` returns unless told otherwise.
        season_length: steps of the main season, if not the one that the frequency implies.
        columns: names of the columns, and which are features known in advance, known only up to now, or static.
        settings: fields of `ForecastConfig`.
    """

    def __init__(
        self,
        freq: str | None = None,
        horizon: int = 12,
        season_length: int | None = None,
        columns: Columns | None = None,
        **settings: Any,
    ) -> None:
        check_horizon(horizon)
        self.freq, self.horizon, self.season_length = freq, int(horizon), season_length
        self.columns = columns or Columns()
        self.config = ForecastConfig.checked(settings)
        self._state: _State | None = None

    @property
    def problems(self) -> dict[str, str]:
        """A sentence for every series that could not be used, by id."""
        return self._fitted().panel.problems

    @property
    def network(self) -> str:
        """What refines the anchors: "none", "mlp" or "transformer"."""
        return self._fitted().trained.name

    @property
    def gain(self) -> float:
        """Share of the anchors' CRPS that the network saved on held-out origins."""
        return self._fitted().trained.gain

    @property
    def trust(self) -> float:
        """Share of the paths that the network guides."""
        return self._fitted().trained.trust

    @property
    def stretch(self) -> dict[str, float]:
        """Factor by which the paths of every series are stretched around their median, by id; 1 leaves them."""
        return {uid: verdict.stretch for uid, verdict in self._verdicts().items()}

    @property
    def hedge(self) -> dict[str, float]:
        """Share of the paths of every series that a ridge autoregression draws, by id."""
        return {uid: verdict.ridge for uid, verdict in self._verdicts().items()}

    @property
    def history(self) -> pd.DataFrame:
        """What was learned from: ids, times and values, missing ones left out."""
        panel, names = self._fitted().panel, self.columns
        frames = [
            pd.DataFrame({names.id: series.uid, names.time: panel.times[series.uid], names.target: series.y})[
                series.observed
            ]
            for series in panel.series
        ]
        return pd.concat(frames, ignore_index=True)

    def fit(self, df: pd.DataFrame, report: Report = silent) -> "StochflowForecaster":
        """Learn from a long table. Series that cannot be used are named in `problems`."""
        encoder = Encoder.fit(df, self.columns, self.freq, self.season_length)
        panel = encoder.panel(df)
        if not panel.series:
            raise DataError(f"no series can be used; {next(iter(panel.problems.values()))}")
        trained = self._learned(panel.series, encoder, self.horizon, report)
        self._state = _State(encoder, panel, trained, fit_world(panel.series, encoder.rhythm, self.config))
        return self

    def update(self, df: pd.DataFrame) -> "StochflowForecaster":
        """Take over newer data: anchors, calibration and direct networks are new, the flow network stays."""
        state = self._fitted()
        panel = state.encoder.panel(df)
        if not panel.series:
            raise DataError(f"no series can be used; {next(iter(panel.problems.values()))}")
        trained = self._calibrated(state.trained, panel.series, state.encoder, self.horizon)
        world = fit_world(panel.series, state.encoder.rhythm, self.config)
        self._state = replace(state, panel=panel, trained=trained, world=world)
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
            `num_samples` and neither of them: one row per path, with its number in `sample`.
        """
        horizon = self.horizon if h is None else h
        check_horizon(horizon)
        levels = interval_levels(level, quantiles)
        num = num_samples if num_samples is not None else self.config.num_paths
        check_samples(num, horizon)
        state = self._fitted()
        extended, times, anchors, ridges = [], [], [], []
        for series, own, ridge in zip(state.panel.series, state.world.anchors, state.world.ridges, strict=True):
            try:
                ahead, when = state.encoder.future(series, state.panel.times[series.uid], horizon, future_df)
            except DataError as error:
                state.panel.problems[series.uid] = str(error)
                continue
            extended.append(replace(series, outside=np.concatenate([series.outside, ahead])))
            times.append(when)
            anchors.append(own)
            ridges.append(ridge)
        if not extended:
            raise DataError(f"no series can be forecast; {next(reversed(state.panel.problems.values()))}")
        state = replace(state, world=replace(state.world, anchors=anchors, ridges=ridges))
        paths = self._paths(extended, state, horizon, num)
        frames = []
        for series, when, drawn in zip(extended, times, paths, strict=True):
            make = sample_rows if num_samples is not None and not levels else quantile_rows
            frames.append(make(drawn, levels, {self.columns.id: series.uid, self.columns.time: when}))
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
        """Forecasts from `n_windows` rolling origins at the end of every series, with what happened beside them.

        The origins are `step_size` steps apart, half the horizon by default. Anchors and calibration are fitted anew at
        each; the network is learned before the first, or anew with `refit`. Features known in advance are taken from
        the table.
        """
        horizon = self.horizon if h is None else h
        check_horizon(horizon)
        step = max(horizon // 2, 1) if step_size is None else step_size
        if n_windows < 1 or step < 1:
            raise ConfigError(f"n_windows is {n_windows} and step_size {step}; give at least 1 for each")
        levels = interval_levels(level, quantiles)
        num_held = horizon + (n_windows - 1) * step
        encoder, panel = self._known_before(df, num_held)
        long, rows, trained = panel.series, [], None
        for window in range(n_windows):
            cut = [truncated(series, len(series) - num_held + window * step, horizon) for series in long]
            known = [_history(series) for series in cut]
            if trained is None or refit:
                trained = self._learned(known, encoder, horizon, silent)
            else:
                trained = self._calibrated(trained, known, encoder, horizon)
            state = _State(encoder, panel, trained, fit_world(cut, encoder.rhythm, self.config))
            paths = self._paths(cut, state, horizon, self.config.num_paths)
            for series, whole, drawn in zip(cut, long, paths, strict=True):
                times, here = panel.times[series.uid], slice(len(series), len(series) + horizon)
                labels = {self.columns.id: series.uid, self.columns.time: times[here], "cutoff": times[len(series) - 1]}
                truth = np.where(whole.observed[here], whole.y[here], np.nan)
                rows.append(quantile_rows(drawn, levels, labels).assign(**{self.columns.target: truth}))
        return pd.concat(rows, ignore_index=True)

    def save(self, path: str | Path) -> Path:
        """Write the fitted forecaster to a folder: weights and data as safetensors, the rest as JSON."""
        state = self._fitted()
        settings = {name: getattr(self, name) for name in SETTINGS}
        return write_forecaster(Path(path), settings, self.config, state.encoder, state.panel, state.trained)

    @classmethod
    def load(cls, path: str | Path) -> "StochflowForecaster":
        """The forecaster that `save` wrote; it predicts the same."""
        settings, config, encoder, panel, trained = read_forecaster(Path(path))
        forecaster = cls(columns=encoder.columns, **settings, **config.model_dump())
        try:
            world = fit_world(panel.series, encoder.rhythm, config)
        except (ValueError, IndexError, TypeError, ArithmeticError) as error:  # numpy's LinAlgError is a ValueError
            raise DataError(f"the data of the forecaster in {path} are damaged ({error}); fit it again") from None
        forecaster._state = _State(encoder, panel, trained, world)
        return forecaster

    def _fitted(self) -> _State:
        if self._state is None:
            raise ConfigError("the forecaster has not been fitted; call fit first")
        return self._state

    def _verdicts(self) -> dict[str, Verdict]:
        """What held-out origins asked for, by id; nothing where there were none."""
        state = self._fitted()
        return {series.uid: state.trained.verdicts.get(series.uid, Verdict()) for series in state.panel.series}

    def _learned(self, panel: list[Series], encoder: Encoder, horizon: int, report: Report) -> Trained:
        """The network, and what held-out origins ask for."""
        categories = tuple(encoder.num_categories)
        trained = train_network(panel, encoder.rhythm, horizon, self.config, categories, report)
        return self._calibrated(trained, panel, encoder, horizon)

    def _calibrated(self, trained: Trained, panel: list[Series], encoder: Encoder, horizon: int) -> Trained:
        """The same network with what the latest held-out origins ask for, and what direct networks say."""
        found = verdicts(trained, panel, encoder.rhythm, horizon, self.config)
        return replace(trained, verdicts=found, direct=direct_values(panel, encoder.rhythm, horizon, self.config))

    def _known_before(self, df: pd.DataFrame, num_held: int) -> tuple[Encoder, Panel]:
        """What the table without its last `num_held` rows teaches, and the whole series that are long without them."""
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

    def _paths(self, panel: list[Series], state: _State, horizon: int, num_paths: int) -> list[Array]:
        """Draws of every series that start after its last value, [num_paths, horizon] each."""
        network, world = state.trained.network, state.world
        generator = torch.Generator().manual_seed(self.config.seed)
        contexts = None
        if network is not None:
            needs = network.context is not None
            windows = context_windows(panel, world, self.config.context_length) if needs else None
            ends = torch.tensor([len(series) for series in panel])
            contexts = thoughts(network, panel, windows, torch.arange(len(panel)), ends)
        drawn = []
        for index, (series, anchors) in enumerate(zip(panel, world.anchors, strict=True)):
            own = contexts[index : index + 1] if contexts is not None else None
            verdict = state.trained.verdicts.get(series.uid, Verdict())
            left, parts = num_paths, []
            while left:
                size = min(left, max(_MAX_CELLS // horizon, 1))
                start = starts(series, anchors, [len(series)], horizon, size)
                part = sample_paths(
                    start, world.rhythm, network, world.kernel, world.bins, generator, own, state.trained.trust
                )
                parts.append(hedged(part.numpy(), verdict.ridge, world.ridges[index], series.y, generator))
                left -= size
            paths = stretched(np.concatenate(parts), verdict.stretch, anchors.floor)
            direct = state.trained.direct.get(series.uid)
            drawn.append(paths if direct is None else pooled(paths, direct, self.config.direct_share))
        return drawn


def truncated(series: Series, end: int, horizon: int) -> Series:
    """The series as it was known before index `end`, with the features of `horizon` more steps."""
    observed = series.observed[:end]
    last = int(np.flatnonzero(observed)[-1])
    y = series.y[:end].copy()
    y[last + 1 :] = y[last]  # a gap that is still open has no far end yet
    return replace(
        series,
        y=y,
        observed=observed,
        outside=series.outside[: end + horizon],
        past=series.past[:end],
        positions=series.positions[:end],
    )


def _history(series: Series) -> Series:
    return replace(series, outside=series.outside[: len(series)])


def _drop_last(df: pd.DataFrame, columns: Columns, num: int) -> pd.DataFrame:
    """The table without the last `num` rows of every series."""
    if columns.time not in df.columns:
        return df  # the encoder says what is missing
    if columns.id not in df.columns:
        return df.sort_values(columns.time).iloc[:-num]
    ordered = df.sort_values(columns.time)
    return ordered[ordered.groupby(columns.id).cumcount(ascending=False) >= num]


def interval_levels(level: Sequence[float] | None, quantiles: Sequence[float] | None) -> dict[str, float]:
    """Column name → quantile, for intervals in per cent and for quantiles between 0 and 1."""
    columns: dict[str, float] = {}
    for percent in _numbers("level", level):
        if not 0 < percent < 100:
            raise ConfigError(f"level {percent:g} is no interval; give per cents between 0 and 100, such as 80")
        columns[f"{MODEL}-lo-{percent:.12g}"] = 0.5 - percent / 200
        columns[f"{MODEL}-hi-{percent:.12g}"] = 0.5 + percent / 200
    for quantile in _numbers("quantiles", quantiles):
        if not 0 < quantile < 1:
            raise ConfigError(f"quantile {quantile:g} lies outside (0, 1); give shares such as 0.1")
        columns[f"{MODEL}-q-{quantile:.12g}"] = quantile
    return columns


def _numbers(name: str, given: Sequence[float] | None) -> list[float]:
    """One number or several as a list."""
    try:
        return [] if given is None else [float(value) for value in np.atleast_1d(np.asarray(given, dtype=float))]
    except (TypeError, ValueError):
        raise ConfigError(f"{name} is {given!r}; give a list of numbers") from None


def check_samples(num: int, horizon: int) -> None:
    """Raise a ConfigError for a number of paths that is none, or that no memory holds."""
    whole = isinstance(num, int | np.integer) and not isinstance(num, bool)
    if not whole or not 2 <= num <= _MAX_DRAWN // horizon:
        most = _MAX_DRAWN // horizon
        raise ConfigError(f"{num} paths of {horizon} steps cannot be drawn; ask for 2 to {most:,} paths")


def quantile_rows(drawn: Array, levels: dict[str, float], labels: dict[str, Any]) -> pd.DataFrame:
    """Labels, median and quantiles of draws [num, horizon], one row per step."""
    values = np.quantile(drawn, [0.5, *levels.values()], axis=0)
    return pd.DataFrame({**labels, **dict(zip([MODEL, *levels], values, strict=True))})


def sample_rows(drawn: Array, levels: dict[str, float], labels: dict[str, Any]) -> pd.DataFrame:
    """Labels and values of draws [num, horizon], path by path."""
    num, horizon = drawn.shape
    columns = {name: np.tile(value, num) if isinstance(value, pd.Index) else value for name, value in labels.items()}
    return pd.DataFrame({**columns, "sample": np.repeat(np.arange(num), horizon), MODEL: drawn.ravel()})

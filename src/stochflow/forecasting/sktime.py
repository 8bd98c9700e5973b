"""`StochflowSktimeForecaster`: the forecaster under the interface of sktime."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from stochflow.core.errors import DataError
from stochflow.core.extras import extra
from stochflow.forecasting.data.columns import Columns
from stochflow.forecasting.data.split import names_list, show_time
from stochflow.forecasting.data.timeline import infer_freq
from stochflow.forecasting.forecaster import StochflowForecaster
from stochflow.forecasting.output import MODEL

BaseForecaster: Any = extra("sktime.forecasting.base", "sktime").BaseForecaster
_HORIZON = 12
# enough consecutive periods to tell business days from days
_NUM_PERIODS = 13


class StochflowSktimeForecaster(BaseForecaster):  # type: ignore[misc]  # sktime is not typed
    """Sampled paths of a `StochflowForecaster` as sktime's points, quantiles, intervals and distributions.

    The point forecast is the predictive median. `X` holds features known in advance; steps that `fh` leaves out may be
    left out of it too, and count as an average step. `update` keeps the network and fits everything else anew,
    whatever `update_params` says: the linear models hold the state of the series. Panels are fitted series
    by series; for one network that they share, use `StochflowForecaster`.

    Args:
        freq: pandas frequency, if the index has none: what one step of an integer index means, such as "MS".
        horizon: steps ahead on which the network is validated; by default as far as the `fh` of `fit` reaches, else 12.
        season_length: steps of the main season, if not the one that the frequency implies.
        network: "auto", "none", "mlp" or "transformer".
        num_paths: paths that are drawn for a forecast.
        seed: of all random numbers; the same seed gives the same forecast.
        settings: further fields of `ForecastConfig`, by name.

    Examples
    --------
    >>> import pandas as pd
    >>> from stochflow.forecasting.sktime import StochflowSktimeForecaster
    >>> months = pd.period_range("2020-01", periods=48, freq="M")
    >>> y = pd.Series([100.0 + step + 10 * (step % 12) for step in range(48)], index=months)
    >>> forecaster = StochflowSktimeForecaster(network="none").fit(y, fh=[1, 2, 3])
    >>> intervals = forecaster.predict_interval(coverage=0.8)
    """

    _tags: ClassVar[dict[str, Any]] = {
        "authors": "The stochflow authors",
        "maintainers": "The stochflow authors",
        "capability:multivariate": False,
        "capability:exogenous": True,
        "capability:categorical_in_X": True,
        "capability:non_contiguous_X": True,
        "capability:insample": False,
        "capability:pred_int": True,
        "capability:pred_int:insample": False,
        "capability:missing_values": True,
        "capability:update": True,
        "requires-fh-in-fit": False,
        "X-y-must-have-same-index": False,
        "y_inner_mtype": "pd.Series",
        "X_inner_mtype": "pd.DataFrame",
    }
    # what has been seen is kept here, in _cur_y and _cur_X
    _config: ClassVar[dict[str, Any]] = {"remember_data": False}

    def __init__(
        self,
        freq: str | None = None,
        horizon: int | None = None,
        season_length: int | None = None,
        network: str = "auto",
        num_paths: int = 1000,
        seed: int = 0,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.freq, self.horizon, self.season_length = freq, horizon, season_length
        self.network, self.num_paths, self.seed, self.settings = network, num_paths, seed, settings
        super().__init__()
        self._y = self._X = None  # sktime looks here when it is told to remember

    def _fit(self, y: Any, X: pd.DataFrame | None = None, fh: Any = None) -> "StochflowSktimeForecaster":  # noqa: N803  # sktime's name
        self._cur_y, self._cur_X = y, X
        horizon = self.horizon
        if horizon is None:
            horizon = _HORIZON if fh is None else max(_furthest(fh, self.cutoff), 1)
        names = [] if X is None else [f"x{number}" for number in range(X.shape[1])]
        self.forecaster_ = StochflowForecaster(
            freq=self.freq or _freq(y.index),
            horizon=horizon,
            season_length=self.season_length,
            columns=Columns(future=tuple(names)),
            **{"network": self.network, "num_paths": self.num_paths, "seed": self.seed, **(self.settings or {})},
        )
        self.forecaster_.fit(self._table())
        return self

    def _update(
        self,
        y: Any,
        X: pd.DataFrame | None = None,  # noqa: N803  # sktime's name
        update_params: bool = True,
    ) -> "StochflowSktimeForecaster":
        before = self._cur_X
        if before is not None:
            self._cur_X = _features(X, before.columns, y.index).combine_first(before)[before.columns]
        self._cur_y = y.combine_first(self._cur_y)
        self.forecaster_.update(self._table())
        return self

    def _predict(self, fh: Any, X: pd.DataFrame | None = None) -> Any:  # noqa: N803  # sktime's name
        drawn = self._draws(fh, X)
        return pd.Series(np.median(drawn, axis=0), index=drawn.columns, name=self._cur_y.name)

    def _predict_quantiles(self, fh: Any, X: pd.DataFrame | None, alpha: Sequence[float]) -> pd.DataFrame:  # noqa: N803  # sktime's name
        drawn = self._draws(fh, X)
        names = self._get_columns(method="predict_quantiles", alpha=alpha)
        return pd.DataFrame(np.quantile(drawn, alpha, axis=0).T, index=drawn.columns, columns=names)

    def _predict_var(self, fh: Any, X: pd.DataFrame | None = None, cov: bool = False) -> pd.DataFrame:  # noqa: N803  # sktime's name
        drawn = self._draws(fh, X)
        if cov:
            return drawn.cov()
        return pd.DataFrame(drawn.var().to_numpy()[:, None], index=drawn.columns, columns=self._get_varnames())

    def _predict_proba(self, fh: Any, X: pd.DataFrame | None, marginal: bool = True) -> Any:  # noqa: N803  # sktime's name
        drawn = self._draws(fh, X)
        rows = pd.MultiIndex.from_product([drawn.index, drawn.columns])
        samples = pd.DataFrame(drawn.to_numpy().reshape(-1, 1), index=rows, columns=self._get_varnames())
        return extra("skpro.distributions", "sktime").Empirical(samples, time_indep=marginal)

    def _draws(self, fh: Any, X: pd.DataFrame | None) -> pd.DataFrame:  # noqa: N803  # sktime's name
        """Values of every path at the times of `fh`, [num_paths, steps]."""
        index, horizon = fh.to_absolute_index(self.cutoff), _furthest(fh, self.cutoff)
        features = None
        if self._cur_X is not None:
            given = _features(X, self._cur_X.columns, index)
            steps = type(fh)(np.arange(1, horizon + 1), is_relative=True).to_absolute_index(self.cutoff)
            features = self._frame(given.reindex(steps.union(index)))
        num = self.forecaster_.config.num_paths
        rows = self.forecaster_.predict(horizon, num_samples=num, future_df=features)
        times = pd.Index(rows["ds"].iloc[:horizon])
        place = times.get_indexer(self._times(index))
        if (place < 0).any():
            raise DataError(
                f"{index[int(np.argmax(place < 0))]} is no step of the series, the next ones are "
                f"{names_list(map(show_time, times), 3)}; correct fh or the index of y"
            )
        return pd.DataFrame(rows[MODEL].to_numpy().reshape(num, horizon)[:, place], columns=index)

    def _table(self) -> pd.DataFrame:
        """All that has been seen, as the long table of one series."""
        y = self._cur_y
        if self._cur_X is None:
            return pd.DataFrame({"ds": self._times(y.index), "y": y.to_numpy()})
        given = _features(self._cur_X, self._cur_X.columns, y.index)
        return self._frame(given.reindex(y.index)).assign(y=y.to_numpy())

    def _frame(self, X: pd.DataFrame) -> pd.DataFrame:  # noqa: N803  # sktime's name
        """The table of the features; their columns are numbered, as any name may be taken."""
        features = X.set_axis(self.forecaster_.columns.future, axis=1)
        return features.assign(ds=self._times(X.index)).reset_index(drop=True)

    def _times(self, index: pd.Index) -> pd.Index:
        """Dates, or whole numbers from the first value on: 20240101 might be taken for a date otherwise."""
        if isinstance(index, pd.PeriodIndex):
            return index.to_timestamp()
        return index if isinstance(index, pd.DatetimeIndex) else index - self._cur_y.index[0]

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Settings for sktime's checks: the linear ensemble alone, and a network with four updates."""
        quick = {"max_steps": 4, "check_every": 2, "width": 4, "batch_size": 16, "min_gain": 0.0}
        return [
            {"network": "none", "num_paths": 20},
            {"network": "mlp", "num_paths": 20, "season_length": 1, "settings": quick | {"validation_paths": 4}},
        ]


def _features(X: pd.DataFrame | None, names: pd.Index, index: pd.Index) -> pd.DataFrame:  # noqa: N803  # sktime's name
    """The columns of X that `fit` saw; raises a DataError unless it has them and a row for every time of `index`."""
    if X is None:
        raise DataError(f"there is no X, but fit had one; give {names_list(map(str, names))} for the same times")
    absent = names.difference(X.columns, sort=False)
    if len(absent):
        raise DataError(f"X has no column '{absent[0]}', but had it in fit; give the same columns")
    missing = index.difference(X.index)
    if len(missing):
        raise DataError(f"X has no row for {show_time(missing[0])}; add it, with empty values if they are unknown")
    return X[names]


def _furthest(fh: Any, cutoff: Any) -> int:
    """Steps from the cutoff to the last time of `fh`."""
    return int(np.max(fh.to_indexer(cutoff))) + 1


def _freq(index: pd.Index) -> str | None:
    """The frequency that an index carries, as one of timestamps; None if it carries none."""
    if isinstance(index, pd.PeriodIndex):
        return infer_freq(pd.period_range(index[0], periods=_NUM_PERIODS, freq=index.freq).to_timestamp())
    return index.freqstr if isinstance(index, pd.DatetimeIndex) else None

"""The linear ensemble against slow, literal versions of itself."""

import numpy as np
import pytest

from stochflow.forecasting.data.series import Array
from stochflow.forecasting.model.linear_ensemble import (
    EnsembleGrid,
    LinearEnsemble,
    Smoother,
    fit_ensemble,
    forward,
    smoothers,
)
from stochflow.forecasting.model.seasonality import Seasonality, seasonality_of

MONTHS = seasonality_of("MS")
YEARS = Seasonality(1)
# one member: no smoothing, one penalty, values as they are
PLAIN = EnsembleGrid(plain_share=0.0, penalties=(3.0,), smoothings=(0.0,), transforms=("identity",))


def noise(num: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=num)


def seasonal(num: int, seed: int = 0) -> Array:
    return 20 + 0.05 * np.arange(num) + 3 * np.sin(2 * np.pi * np.arange(num) / 12) + noise(num, seed)


def fit(
    y: Array,
    seasonality: Seasonality = MONTHS,
    grid: EnsembleGrid | None = None,
    until: int | None = None,
    features: Array | None = None,
) -> LinearEnsemble:
    features = seasonality.fourier_terms(np.arange(len(y), dtype=float)) if features is None else features
    return fit_ensemble(
        y, np.ones(len(y), dtype=bool), features, seasonality, grid or EnsembleGrid(plain_share=0.0), until
    )


def one_step(ensemble: LinearEnsemble, member: int, time: int, features: Array, past: Array, errors: Array) -> float:
    """ẑ of the member at `time`, by the formula of the module's docstring."""
    near, lags = ensemble.seasonality.smoothing_lags, ensemble.seasonality.lags
    back = [max(time - lag, 0) for lag in near]
    value = ensemble.ar[member] @ past[back] + ensemble.ma[member] @ errors[back]
    value += ensemble.lag_weights[member] @ past[[max(time - lag, 0) for lag in lags]]
    return float(value + ensemble.calendar_weights[member] @ features[time] + ensemble.intercept[member])


def test_left_out_errors_equal_refits_without_the_row() -> None:
    y, features = noise(60).cumsum(), noise(120, seed=1).reshape(60, 2)
    ensemble = fit(y, YEARS, PLAIN, features=features)
    first, penalty = 14, 3.0
    z = (y - y.mean()) / (y.std() + 1e-9)
    lagged = np.stack([z[first - lag : 60 - lag] for lag in range(1, 15)], axis=1)
    inputs = np.concatenate([lagged, features[first:]], axis=1)
    inputs = np.concatenate([inputs - inputs.mean(axis=0), np.ones((len(inputs), 1))], axis=1)
    for member in range(len(ensemble.weight)):
        step = ensemble.ar[member, 0]
        targets = z[first:] - step * z[first - 1 : -1]
        left_out = []
        for row in range(len(targets)):
            others = np.arange(len(targets)) != row
            gram = inputs[others].T @ inputs[others] + penalty * np.eye(inputs.shape[1])
            left_out.append(targets[row] - inputs[row] @ np.linalg.solve(gram, inputs[others].T @ targets[others]))
        expected = np.array(left_out) - np.mean(left_out)
        assert ensemble.noise_scale[member] == pytest.approx(expected.std())
        np.testing.assert_allclose(
            ensemble.residuals[member, first:] * ensemble.noise_scale[member], expected, atol=1e-9
        )
        assert np.isnan(ensemble.residuals[member, :first]).all()
    assert sorted(ensemble.ar[:, 0]) == [0.0, 1.0]  # with and without the difference


@pytest.mark.parametrize("step", [False, True])
@pytest.mark.parametrize("season", [0, 12])
def test_errors_of_smoothing_follow_the_recursion(step: bool, season: int) -> None:
    smoother = Smoother(step, season, 0.4 * step, 0.7 if season else 0.0)
    z = noise(50)
    errors = np.zeros(50)
    for now in range(step + season, 50):
        past = {lag: (z[now - lag], errors[now - lag]) if now >= lag else (0.0, 0.0) for lag in (1, 12, 13)}
        predicted = 0.0
        if step:
            predicted += past[1][0] - 0.4 * past[1][1]
        if season:
            predicted += past[12][0] - 0.7 * past[12][1]
        if step and season:
            predicted += -past[13][0] + 0.4 * 0.7 * past[13][1]
        errors[now] = z[now] - predicted
    np.testing.assert_allclose(smoother.errors(z), errors, atol=1e-12)


def test_every_meaningful_smoother_is_tried_once() -> None:
    found = smoothers((0.0, 0.5), MONTHS)
    assert len(found) == len(set(found)) == 1 + 2 + 2 + 4
    assert len(smoothers((0.0, 0.5), seasonality_of("h"))) == (1 + 2 + 2) + (2 + 4 + 4)
    assert smoothers((0.0, 0.5), YEARS) == [
        Smoother(False, 0, 0.0, 0.0),
        Smoother(True, 0, 0.0, 0.0),
        Smoother(True, 0, 0.5, 0.0),
    ]


def test_fitted_is_what_the_residuals_are_measured_from() -> None:
    ensemble = fit(seasonal(90))
    known = np.isfinite(ensemble.residuals)
    assert known[:, 30:].all()
    rebuilt = ensemble.fitted + ensemble.residuals * ensemble.noise_std(np.arange(90))
    np.testing.assert_allclose(rebuilt[known], ensemble.values[known])
    assert (np.isnan(ensemble.fitted) == ~known).all()


def test_after_the_end_of_training_the_residuals_are_those_of_a_recursive_forecaster() -> None:
    y = seasonal(100)
    features = MONTHS.fourier_terms(np.arange(100.0))
    ensemble = fit(y, until=80)
    for member in range(0, len(ensemble.weight), 7):
        z, errors = ensemble.values[member], np.zeros(100)
        errors[:80] = ensemble.errors[member, :80]
        for time in range(80, 100):
            near = [time - lag for lag in MONTHS.smoothing_lags]
            smooth = ensemble.ar[member] @ z[near] + ensemble.ma[member] @ errors[near]
            errors[time] = z[time] - smooth
            residual = z[time] - one_step(ensemble, member, time, features, z, errors)
            assert ensemble.residuals[member, time] * ensemble.noise_std(np.array([time]))[member] == pytest.approx(
                residual, abs=1e-9
            )


def test_nothing_after_the_end_of_training_changes_what_was_learned() -> None:
    y = seasonal(100)
    other = y.copy()
    other[80:] = 50 * np.exp(noise(20, seed=3))
    before, after = fit(y, until=80), fit(other, until=80)
    for name in (
        *("transform", "centre", "spread", "ceiling", "ar", "ma", "lag_weights", "calendar_weights"),
        *("intercept", "noise_scale", "weight"),
    ):
        np.testing.assert_array_equal(getattr(before, name), getattr(after, name), err_msg=name)
    np.testing.assert_array_equal(before.residuals[:, :80], after.residuals[:, :80])
    assert (before.residuals[:, 80:] != after.residuals[:, 80:]).all()


def test_training_to_an_end_is_training_on_the_series_cut_there() -> None:
    y = seasonal(100)
    whole, cut = fit(y, until=80), fit(y[:80])
    np.testing.assert_allclose(whole.lag_weights, cut.lag_weights, atol=1e-12)
    np.testing.assert_allclose(whole.weight, cut.weight)


@pytest.mark.parametrize(
    ("lowest", "allowed"), [(1.0, {"identity", "root", "log"}), (0.0, {"identity", "root"}), (-1.0, {"identity"})]
)
def test_transforms_are_tried_only_where_they_are_defined(lowest: float, allowed: set[str]) -> None:
    y = np.abs(noise(60)) + 2
    y[10] = lowest
    # so mild a choice that every candidate stays
    ensemble = fit(y, YEARS, EnsembleGrid(plain_share=0.0, penalties=(3.0,), smoothings=(0.0,), min_temperature=1e6))
    assert set(ensemble.transform) == allowed
    assert np.isfinite(ensemble.values).all()


def test_a_transform_that_is_not_allowed_gives_way_to_the_values_themselves() -> None:
    ensemble = fit(noise(60), YEARS, EnsembleGrid(plain_share=0.0, transforms=("log",)))
    assert set(ensemble.transform) == {"identity"}


def test_exponential_growth_is_followed_in_the_logarithm() -> None:
    y = np.exp(0.05 * np.arange(90) + 0.1 * noise(90))
    ensemble = fit(y, YEARS)
    assert ensemble.weight[ensemble.transform == "log"].sum() > 0.75


def test_only_the_logarithm_has_a_ceiling() -> None:
    y = np.abs(noise(60)) + 0.1
    ensemble = fit(y, YEARS, EnsembleGrid(plain_share=0.0, penalties=(3.0,), smoothings=(0.0,), min_temperature=1e6))
    for member, name in enumerate(ensemble.transform):
        highest = ensemble.ceiling[member]
        assert highest == pytest.approx(ensemble.values[member].max() + 3) if name == "log" else highest == np.inf


def test_the_plain_member_comes_last_with_its_share() -> None:
    ensemble = fit(seasonal(90), grid=EnsembleGrid(plain_share=0.25))
    near = ensemble.seasonality.smoothing_lags
    assert ensemble.weight[-1] == 0.25
    assert ensemble.weight.sum() == pytest.approx(1.0)
    assert ensemble.transform[-1] == "root"
    assert ensemble.ar[-1, [near.index(lag) for lag in (1, 12, 13)]].tolist() == [1, 1, -1]
    assert not ensemble.ma[-1].any()


@pytest.mark.parametrize("factor", [2.0**600, 2.0**-600])
def test_huge_and_tiny_values_are_forecast_in_their_own_unit(factor: float) -> None:
    usual, extreme = fit(seasonal(60) - 20, YEARS), fit((seasonal(60) - 20) * factor, YEARS)
    assert usual.unit == 1.0
    np.testing.assert_allclose(extreme.residuals, usual.residuals, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(extreme.high * extreme.unit / factor, usual.high)


def test_values_are_standardised_transforms() -> None:
    y = seasonal(60)
    ensemble = fit(y)
    for member, name in enumerate(ensemble.transform):
        raw = ensemble.values[member] * ensemble.spread[member] + ensemble.centre[member]
        np.testing.assert_allclose(raw, forward(str(name), y))
        assert ensemble.values[member].mean() == pytest.approx(0, abs=1e-9)
        assert ensemble.values[member].std() == pytest.approx(1)


def test_weights_sum_to_one_and_prefer_small_errors() -> None:
    ensemble = fit(seasonal(90), grid=EnsembleGrid(plain_share=0.0, transforms=("identity",)))
    assert ensemble.weight.sum() == pytest.approx(1)
    assert (np.diff(ensemble.weight) <= 0).all()
    assert (np.diff(ensemble.noise_scale) >= -1e-12).all()
    assert len(ensemble.weight) <= EnsembleGrid().max_members
    few = fit(seasonal(90), grid=EnsembleGrid(plain_share=0.0, max_members=3))
    assert len(few.weight) == 3
    assert few.weight.sum() == pytest.approx(1)


def test_a_series_that_only_repeats_is_predicted_exactly() -> None:
    pattern = np.random.default_rng(4).uniform(1, 5, 12)
    y = np.tile(pattern, 8)
    ensemble = fit(y)
    best = int(np.argmax(ensemble.weight))
    fitted = ensemble.fitted[best, 30:] * ensemble.spread[best] + ensemble.centre[best]
    np.testing.assert_allclose(fitted, forward(str(ensemble.transform[best]), y[30:]), atol=1e-6)


def test_what_fills_a_gap_is_never_a_target() -> None:
    y = seasonal(90)
    observed = np.ones(90, dtype=bool)
    observed[-6:] = False
    y[-6:] = y[-7]
    features = MONTHS.fourier_terms(np.arange(90.0))
    ensemble = fit_ensemble(y, observed, features, MONTHS, EnsembleGrid(plain_share=0.0, transforms=("identity",)))
    assert np.isnan(ensemble.residuals[:, -6:]).all()
    np.testing.assert_array_equal(np.isfinite(ensemble.residuals[0]), observed & (np.arange(90) >= 25))
    # in the same units, what stands in a gap at the end changes no error before it
    shifted = y.copy()
    shifted[-6:] = y[-12:-6]
    grid = EnsembleGrid(
        plain_share=0.0, penalties=(3.0,), smoothings=(0.0,), transforms=("identity",), min_temperature=1e6
    )
    first, second = (fit_ensemble(values, observed, features, MONTHS, grid, 84) for values in (y, shifted))
    np.testing.assert_array_equal(first.residuals, second.residuals)
    np.testing.assert_array_equal(first.lag_weights, second.lag_weights)


@pytest.mark.parametrize("num", [16, 17, 20, 24, 25, 26, 30, 36, 40])
def test_short_series_have_finite_members(num: int) -> None:
    ensemble = fit(seasonal(num))
    for name in ("ar", "ma", "lag_weights", "calendar_weights", "intercept", "noise_scale", "weight", "values"):
        assert np.isfinite(getattr(ensemble, name)).all(), name
    assert (ensemble.noise_scale > 0).all()
    assert np.isfinite(ensemble.residuals[:, -6:]).all()
    # a season that was not seen twice is not used
    assert (np.abs(ensemble.ar[:, 1]).max() > 0) <= (num > 24)


def test_values_before_a_long_gap_are_learned_from() -> None:
    y, observed = np.append(seasonal(16), np.full(100, 20.0)), np.arange(116) < 16
    ensemble = fit_ensemble(y, observed, np.zeros((116, 0)), MONTHS, EnsembleGrid(plain_share=0.0))
    assert np.isfinite(ensemble.residuals[0]).sum() >= 4
    assert np.isfinite(ensemble.noise_scale).all()


def test_a_constant_series_keeps_its_value() -> None:
    ensemble = fit(np.full(40, 7.0))
    assert np.isfinite(ensemble.residuals[:, 30:]).all()
    np.testing.assert_allclose(ensemble.fitted[:, 30:], ensemble.values[:, 30:], atol=1e-6)


def test_a_season_with_one_wild_month_gets_more_noise_there_and_no_less_likely_residuals() -> None:
    rng = np.random.default_rng(0)
    size = np.where(np.arange(600) % 12 == 4, 5.0, 1.0)
    ensemble = fit(rng.normal(size=600) * size)
    assert ensemble.seasonal_scale.shape == (len(ensemble.weight), 12)
    wild = ensemble.seasonal_scale[:, 4] / np.delete(ensemble.seasonal_scale, 4, axis=1).mean(axis=1)
    assert ((wild > 3.0) & (wild < 5.5)).all()  # shrunk towards one
    spreads = [np.nanstd(ensemble.residuals[0, place::12]) for place in range(12)]
    assert max(spreads) / min(spreads) < 1.6


def test_a_month_seen_twice_is_hardly_believed_to_be_wild() -> None:
    y = np.random.default_rng(1).normal(size=40)
    y[28] += 4.0
    assert fit(y).seasonal_scale.max() < 1.35


def test_both_seasons_scale_the_noise() -> None:
    hours = np.arange(24 * 7 * 40)
    size = np.where(hours % 24 == 3, 4.0, 1.0) * np.where(hours % 168 == 100, 4.0, 1.0)
    y = np.random.default_rng(2).normal(size=len(hours)) * size
    seasonality = seasonality_of("h")
    seasonal_scale = fit(y, seasonality, PLAIN).seasonal_scale[0]
    assert seasonal_scale.shape == (168,)
    assert seasonal_scale[100] == np.delete(seasonal_scale, np.arange(3, 168, 24)).max()
    assert (seasonal_scale[3::24] > 2.0 * np.median(seasonal_scale)).all()


def test_values_slightly_below_zero_still_get_a_root() -> None:
    y = np.abs(noise(120)) * 100 - 1.0
    ensemble = fit(y)
    assert ensemble.offset == y.min()
    assert "root" in ensemble.transform
    assert "log" not in ensemble.transform
    deep = np.where(np.arange(120) == 5, -50.0, y)
    assert fit(deep).offset == 0.0
    assert set(fit(deep).transform) == {"identity"}

"""A forecaster on disk: whole, or refused with a sentence."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from stochflow.core.errors import DataError, Note
from stochflow.forecasting.data.columns import Columns
from stochflow.forecasting.forecaster import StochflowForecaster
from stochflow.forecasting.storage import MANIFEST, TENSORS, _seal

TINY = {"width": 8, "num_bins": 33, "num_intentions": 5, "num_paths": 20, "validation_paths": 8, "max_steps": 4}
CONTEXT = {"context_length": 6, "context_width": 8, "context_layers": 1}


def table(times: Any = None, num: int = 100) -> pd.DataFrame:
    times = pd.date_range("2020-01-01", periods=num, freq="D") if times is None else times
    y = 5 + np.random.default_rng(0).normal(size=num).cumsum() * 0.2
    return pd.DataFrame({"unique_id": "a", "ds": times, "y": y})


def fitted(frame: pd.DataFrame | None = None, **settings: Any) -> StochflowForecaster:
    # the tiny network is kept as soon as it gains anything
    kept = {**TINY, **CONTEXT, "min_gain": 0.0, "check_every": 2, "horizon": 4, **settings}
    return StochflowForecaster(**kept).fit(table() if frame is None else frame)


@pytest.mark.filterwarnings("ignore:these static columns are not used")
@pytest.mark.parametrize("network", ["none", "mlp", "transformer"])
def test_what_is_loaded_predicts_the_same(network: str, tmp_path: Path) -> None:
    frame = pd.concat([table(), table().assign(unique_id="b", y=lambda rows: 2 * rows["y"])], ignore_index=True)
    rng = np.random.default_rng(1)
    frame["promo"] = rng.random(len(frame)).round()
    frame["y"] += rng.normal(size=len(frame)) * frame["promo"]
    frame["region"] = np.where(frame["unique_id"] == "a", "north", "south")
    columns = Columns(future=("promo",), static=("region",))
    settings = {"max_steps": 60, "check_every": 20, "learning_rate": 0.01}
    forecaster = fitted(frame, network=network, columns=columns, season_length=7, **settings)
    assert forecaster.network == network
    future = pd.DataFrame({"ds": pd.date_range("2020-04-10", periods=6), "promo": [0.0, 1.0] * 3})
    future = pd.concat([future.assign(unique_id=uid) for uid in "ab"])
    forecaster.save(tmp_path / "model")
    loaded = StochflowForecaster.load(tmp_path / "model")
    before, after = (each.predict(6, level=[80], future_df=future) for each in (forecaster, loaded))
    pd.testing.assert_frame_equal(before, after, check_exact=True)
    assert (loaded.network, loaded.gain, loaded.network_weight) == (
        forecaster.network,
        forecaster.gain,
        forecaster.network_weight,
    )
    assert loaded.stretch == forecaster.stretch
    assert forecaster.stretch.keys() == {"a", "b"}
    assert all(factor != 1 for factor in forecaster.stretch.values())
    assert (loaded.horizon, loaded.season_length, loaded.config) == (4, 7, forecaster.config)
    # and it can be saved again, updated and fitted anew
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again" / TENSORS).read_bytes() == (tmp_path / "model" / TENSORS).read_bytes()
    assert len(loaded.update(frame).predict(2, future_df=future)) == 4


def test_a_hedge_is_kept(tmp_path: Path) -> None:
    walk = pd.date_range("2020-01-01", periods=400, freq="D")
    forecaster = fitted(table(walk, 400), network="mlp", context_min_values=300, freq="D")
    held = forecaster.hedge["a"]
    assert held > 0
    forecaster.save(tmp_path / "model")
    loaded = StochflowForecaster.load(tmp_path / "model")
    assert loaded.hedge == {"a": held}
    pd.testing.assert_frame_equal(forecaster.predict(level=[80]), loaded.predict(level=[80]), check_exact=True)


@pytest.mark.parametrize(
    "times",
    [
        pd.date_range("2020-01-01", periods=100, freq="D", tz="Europe/Berlin"),
        pd.date_range("1950-01-01", periods=100, freq="MS", unit="s"),
        np.arange(100),
        np.random.default_rng(0).exponential(size=100).cumsum(),
        pd.Timestamp("2020-01-01") + pd.to_timedelta(np.random.default_rng(0).exponential(size=100).cumsum(), unit="h"),
    ],
    ids=["zone", "seconds", "integers", "floats", "irregular"],
)
def test_every_kind_of_time_survives(times: Any, tmp_path: Path) -> None:
    forecaster = fitted(table(times), network="none")
    loaded = StochflowForecaster.load(forecaster.save(tmp_path))
    pd.testing.assert_frame_equal(forecaster.predict(3), loaded.predict(3), check_exact=True)


def test_problems_are_remembered(tmp_path: Path) -> None:
    frame = pd.concat([table(), table(num=3, times=pd.date_range("2020-01-01", periods=3)).assign(unique_id="short")])
    with pytest.warns(Note, match="Left out: series 'short'"):
        known = fitted(frame, network="none")
    loaded = StochflowForecaster.load(known.save(tmp_path))
    assert list(loaded.problems) == ["short"]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, dict[str, Any]]:
    folder = fitted(network="none").save(tmp_path_factory.mktemp("stored"))
    return (folder / TENSORS).read_bytes(), json.loads((folder / MANIFEST).read_text(encoding="utf-8"))


def write(folder: Path, tensors: bytes, manifest: Any) -> None:
    (folder / TENSORS).write_bytes(tensors)
    (folder / MANIFEST).write_text(manifest if isinstance(manifest, str) else json.dumps(manifest), encoding="utf-8")


def test_a_missing_folder_holds_no_forecaster(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere holds no forecaster .*; save one there first"):
        StochflowForecaster.load(tmp_path / "nowhere")


def test_half_a_forecaster_is_none(tmp_path: Path, stored: tuple[bytes, dict[str, Any]]) -> None:
    write(tmp_path, *stored)
    (tmp_path / TENSORS).unlink()
    with pytest.raises(DataError, match="holds no forecaster"):
        StochflowForecaster.load(tmp_path)
    write(tmp_path, *stored)
    (tmp_path / MANIFEST).unlink()
    with pytest.raises(DataError, match="holds no forecaster"):
        StochflowForecaster.load(tmp_path)


def test_a_flipped_bit_is_noticed(tmp_path: Path, stored: tuple[bytes, dict[str, Any]]) -> None:
    tensors, manifest = stored
    damaged = bytearray(tensors)
    damaged[-3] ^= 1
    write(tmp_path, bytes(damaged), manifest)
    with pytest.raises(DataError, match="is damaged; fit it again and save it anew"):
        StochflowForecaster.load(tmp_path)


@pytest.mark.parametrize("manifest", ["{", "[]", "7"])
def test_a_manifest_that_is_none_is_refused(
    manifest: str, tmp_path: Path, stored: tuple[bytes, dict[str, Any]]
) -> None:
    write(tmp_path, stored[0], manifest)
    with pytest.raises(DataError, match=r"is damaged|holds no forecaster"):
        StochflowForecaster.load(tmp_path)


def test_another_format_is_named(tmp_path: Path, stored: tuple[bytes, dict[str, Any]]) -> None:
    write(tmp_path, stored[0], stored[1] | {"format": 99})
    with pytest.raises(DataError, match="has format 99, this version reads 4"):
        StochflowForecaster.load(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"ids": ["a", "b"]},
        {"settings": {"horizon": 4}},
        {"settings": None},
        {"settings": {"freq": None, "horizon": "four", "season_length": None}},
        {"config": {"width": "wide"}},
        {"config": {"colour": "red"}},
        {"encoder": {}},
        {"times": ["nonsense"]},
        {"network": {"name": "mlp", "fitted": True}},
        {"network": {}},
    ],
    ids=lambda change: "-".join(change),
)
def test_a_manifest_that_does_not_fit_is_refused(
    change: dict[str, Any], tmp_path: Path, stored: tuple[bytes, dict[str, Any]]
) -> None:
    write(tmp_path, stored[0], stored[1] | change)
    with pytest.raises(DataError, match="again"):
        StochflowForecaster.load(tmp_path)


@pytest.mark.parametrize("problems", [None, 7, ["short"]])
def test_a_forged_manifest_is_refused_though_its_seal_fits(
    problems: Any, tmp_path: Path, stored: tuple[bytes, dict[str, Any]]
) -> None:
    forged = {name: value for name, value in stored[1].items() if name != "seal"} | {"problems": problems}
    if problems is None:
        del forged["problems"]
    write(tmp_path, stored[0], forged | {"seal": _seal(forged)})
    with pytest.raises(DataError, match="is damaged; fit it again"):
        StochflowForecaster.load(tmp_path)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("occupied")
    with pytest.raises(DataError, match=r"cannot be written to .*file.*; choose another place"):
        fitted(network="none").save(tmp_path / "file")

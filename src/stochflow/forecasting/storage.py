"""A fitted forecaster on disk: tensors as safetensors, everything else as JSON that vouches for them. No pickles."""

import hashlib
import json
import os
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors import SafetensorError
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from stochflow.core.errors import ConfigError, DataError
from stochflow.core.files import remove_leftovers, sync_folder, write_atomically
from stochflow.forecasting.config import ForecastConfig
from stochflow.forecasting.data.encoder import Encoder, Panel, check_horizon
from stochflow.forecasting.data.series import Series
from stochflow.forecasting.model.calibration import Verdict
from stochflow.forecasting.model.fit import Trained, new_network

FORMAT = 3
TENSORS, MANIFEST = "forecaster.safetensors", "forecaster.json"
# what a forecaster is built with beside its config
SETTINGS = ("freq", "horizon", "season_length")
# what validation said of the network
_NUMBERS = ("gain", "error", "evidence", "steps")
_ARRAYS = ("y", "observed", "outside", "past", "positions", "static")


def write_forecaster(
    folder: Path, settings: dict[str, Any], config: ForecastConfig, encoder: Encoder, panel: Panel, trained: Trained
) -> Path:
    """Write all files of a forecaster; the JSON comes last, without it there is none."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tensors: dict[str, Tensor] = {}
        for number, series in enumerate(panel.series):
            for name in _ARRAYS:
                tensors[f"series.{number}.{name}"] = torch.as_tensor(getattr(series, name))
            times = panel.times[series.uid]
            whole = times.astype("int64") if isinstance(times, pd.DatetimeIndex) else times
            tensors[f"series.{number}.times"] = torch.as_tensor(whole.to_numpy(copy=True))
            if series.uid in trained.direct:
                tensors[f"direct.{number}"] = torch.as_tensor(trained.direct[series.uid])
        if trained.network is not None:
            tensors |= {f"network.{name}": tensor for name, tensor in trained.network.state_dict().items()}
        data = tensors_to_bytes({name: tensor.contiguous().clone() for name, tensor in tensors.items()})
        network = {name: getattr(trained, name) for name in ("name", *_NUMBERS, "history")}
        network["verdicts"] = {uid: asdict(verdict) for uid, verdict in trained.verdicts.items()}
        manifest = {
            "format": FORMAT,
            "sha256": hashlib.sha256(data).hexdigest(),
            "settings": settings,
            "config": config.model_dump(),
            "encoder": encoder.to_dict(),
            "ids": [series.uid for series in panel.series],
            "times": [str(panel.times[series.uid].dtype) for series in panel.series],
            "problems": panel.problems,
            "network": network | {"fitted": trained.network is not None},
        }
        sealed = json.dumps(manifest | {"seal": _seal(manifest)}, indent=1)
        # beside those of an earlier forecaster, which stays whole until the JSON names the new ones
        fresh = _fresh_tensors(folder, manifest)
        write_atomically(fresh, data)
        write_atomically(folder / MANIFEST, sealed)
        os.replace(fresh, folder / TENSORS)
        sync_folder(folder)
        _clear(folder)
    except OSError as error:
        reason = error.strerror
        raise DataError(f"the forecaster cannot be written to {folder} ({reason}); choose another place") from None
    return folder


def read_forecaster(folder: Path) -> tuple[dict[str, Any], ForecastConfig, Encoder, Panel, Trained]:
    """What `write_forecaster` wrote; a DataError if it is incomplete or damaged."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        fresh = _fresh_tensors(folder, manifest)
        data = (fresh if fresh.exists() else folder / TENSORS).read_bytes()
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{folder} holds no forecaster ({error}); save one there first") from None
    damaged = f"the forecaster in {folder} is damaged; fit it again and save it anew"
    if isinstance(manifest, dict) and manifest.get("format") not in (None, FORMAT):
        raise DataError(
            f"the forecaster in {folder} has format {manifest['format']}, this version reads {FORMAT}; "
            "use the version that saved it, or fit it again and save it anew"
        )
    if not isinstance(manifest, dict) or hashlib.sha256(data).hexdigest() != manifest.get("sha256"):
        raise DataError(damaged)
    if manifest.pop("seal", None) != _seal(manifest):
        raise DataError(damaged)
    try:
        tensors = tensors_from_bytes(data)
        config = ForecastConfig.checked(manifest["config"])
        encoder = Encoder.from_dict(manifest["encoder"])
        panel, times = [], {}
        for number, (uid, dtype) in enumerate(zip(manifest["ids"], manifest["times"], strict=True)):
            arrays = {name: tensors[f"series.{number}.{name}"].numpy() for name in _ARRAYS}
            panel.append(Series(uid=uid, **arrays))
            stored = tensors[f"series.{number}.times"].numpy()
            times[uid] = pd.Index(stored).astype(dtype)
            encoder.timeline.phases(times[uid])  # which fails now rather than in a forecast
        trained = _network(manifest["network"], tensors, config, encoder)
        direct = {series.uid: tensors.get(f"direct.{number}") for number, series in enumerate(panel)}
        trained.direct.update({uid: values.numpy() for uid, values in direct.items() if values is not None})
        settings = {name: manifest["settings"][name] for name in SETTINGS}
        check_horizon(settings["horizon"])
        return settings, config, encoder, Panel(panel, times, manifest["problems"]), trained
    except (
        ConfigError,
        LookupError,
        TypeError,
        ValueError,
        RuntimeError,
        AttributeError,
        ArithmeticError,
        SafetensorError,
    ):
        raise DataError(damaged) from None


def _fresh_tensors(folder: Path, manifest: Any) -> Path:
    """Where tensors lie as long as they have not taken the place of earlier ones."""
    digest = str(manifest.get("sha256")) if isinstance(manifest, dict) else ""
    return folder / f"forecaster-{re.sub('[^0-9a-f]', '', digest)[:16]}.safetensors"


def _clear(folder: Path) -> None:
    """Remove what saving left behind when it was stopped."""
    remove_leftovers(folder)
    for abandoned in folder.glob("forecaster-*.safetensors"):
        abandoned.unlink()


def _seal(manifest: dict[str, Any]) -> str:
    """Hash of everything else in the JSON: an edit by hand is damage."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _network(stored: dict[str, Any], tensors: dict[str, Tensor], config: ForecastConfig, encoder: Encoder) -> Trained:
    network = None
    if stored["fitted"]:
        prefix = "network."
        weights = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
        embedding = weights.get("context.feature_embedding.weight", np.zeros((0, 0)))
        network = new_network(
            stored["name"], len(weights["feature_mean"]), embedding.shape[1], tuple(encoder.num_categories), config
        )
        network.load_state_dict(weights)
    history = [(int(step), float(gain)) for step, gain in stored["history"]]
    verdicts = {
        str(uid): Verdict(float(verdict["ridge"]), float(verdict["stretch"]))
        for uid, verdict in stored["verdicts"].items()
    }
    numbers = {name: stored[name] for name in _NUMBERS}
    return Trained(network, stored["name"], history=history, verdicts=verdicts, **numbers)

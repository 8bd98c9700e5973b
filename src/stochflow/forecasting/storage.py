"""A fitted forecaster on disk: tensors as safetensors, everything else as JSON with their hash. No pickles."""

import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from pydantic import TypeAdapter
from safetensors import SafetensorError
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from stochflow.core.errors import ConfigError, DataError
from stochflow.core.files import remove_leftovers, sync_folder, write_atomically
from stochflow.forecasting.config import ForecastConfig, check_horizon
from stochflow.forecasting.data.encoder import Encoder, Panel
from stochflow.forecasting.data.series import Array, Series
from stochflow.forecasting.model.calibration import Calibration
from stochflow.forecasting.model.fit import TrainedNetwork, new_network
from stochflow.forecasting.model.linear_models import LinearModels, fit_linear_models
from stochflow.forecasting.model.past_selection import PastGains

FORMAT = 4
TENSORS, MANIFEST = "forecaster.safetensors", "forecaster.json"
# constructor arguments of a forecaster beside its config
SETTINGS = ("freq", "horizon", "season_length")
# fields of `TrainedNetwork` that are stored by name
_NUMBERS = ("gain", "error", "evidence", "steps")
# Stored key → field of `Series`. The file format keeps its keys, whatever the fields are called: `outside` here, and
# `verdicts` with `ridge` and `stretch` in the JSON.
_ARRAYS = {name: name for name in ("y", "observed", "past", "positions", "static", "used_past")} | {
    "outside": "exogenous"
}
# raised where the parts of a file do not fit together
_UNUSABLE = (LookupError, TypeError, ValueError, RuntimeError, AttributeError, ArithmeticError)


@dataclass(frozen=True)
class Fitted:
    """A fitted forecaster.

    Attributes:
        calibrations: by id, of every series.
        past: by id, the past features that a series uses and the CRPS that each saved on held-out origins.
        direct: equally likely values of each step after the end of a series, by id, [values, horizon].
        models: fitted to the panel, and not stored: fitting them again gives the same.
    """

    encoder: Encoder
    panel: Panel
    trained: TrainedNetwork
    calibrations: dict[str, Calibration]
    past: PastGains
    direct: dict[str, Array]
    models: LinearModels


def write_forecaster(folder: Path, settings: dict[str, Any], config: ForecastConfig, fitted: Fitted) -> Path:
    """Write all files of a forecaster; the JSON comes last and makes it valid."""
    panel, trained = fitted.panel, fitted.trained
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tensors: dict[str, Tensor] = {}
        for number, series in enumerate(panel.series):
            for key, name in _ARRAYS.items():
                tensors[f"series.{number}.{key}"] = torch.as_tensor(getattr(series, name))
            times = panel.times[series.uid]
            whole = times.astype("int64") if isinstance(times, pd.DatetimeIndex) else times
            tensors[f"series.{number}.times"] = torch.as_tensor(whole.to_numpy(copy=True))
            if series.uid in fitted.direct:
                tensors[f"direct.{number}"] = torch.as_tensor(fitted.direct[series.uid])
        if trained.network is not None:
            tensors |= {f"network.{name}": tensor for name, tensor in trained.network.state_dict().items()}
        data = tensors_to_bytes({name: tensor.contiguous().clone() for name, tensor in tensors.items()})
        network = {name: getattr(trained, name) for name in ("name", *_NUMBERS, "history")}
        network["verdicts"] = {
            uid: {"ridge": found.ridge_share, "stretch": found.stretch} for uid, found in fitted.calibrations.items()
        }
        network["past"] = fitted.past
        manifest = {
            "format": FORMAT,
            "sha256": hashlib.sha256(data).hexdigest(),
            "settings": settings,
            "config": config.model_dump(),
            "encoder": fitted.encoder.to_dict(),
            "ids": [series.uid for series in panel.series],
            "times": [str(panel.times[series.uid].dtype) for series in panel.series],
            "problems": panel.problems,
            "network": network | {"fitted": trained.network is not None},
        }
        sealed = json.dumps(manifest | {"seal": _seal(manifest)}, indent=1)
        # under a name of its own: an earlier forecaster stays valid until the JSON is replaced
        fresh = _fresh_tensors(folder, manifest)
        write_atomically(fresh, data)
        write_atomically(folder / MANIFEST, sealed)
        os.replace(fresh, folder / TENSORS)
        sync_folder(folder)
        remove_leftovers(folder)
        for abandoned in folder.glob("forecaster-*.safetensors"):
            abandoned.unlink()
    except OSError as error:
        message = f"the forecaster cannot be written to {folder} ({error.strerror}); choose another place"
        raise DataError(message) from None
    return folder


def read_forecaster(folder: Path) -> tuple[dict[str, Any], ForecastConfig, Fitted]:
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
            arrays = {name: tensors[f"series.{number}.{key}"].numpy() for key, name in _ARRAYS.items()}
            panel.append(Series(uid=uid, known=encoder.known, **arrays))
            stored = tensors[f"series.{number}.times"].numpy()
            times[uid] = pd.Index(stored).astype(dtype)
            encoder.timeline.phases(times[uid])  # fail now rather than in a forecast
        trained = _network(manifest["network"], tensors, config, encoder)
        calibrations = dict.fromkeys(manifest["ids"], Calibration()) | {
            str(uid): Calibration(float(found["ridge"]), float(found["stretch"]))
            for uid, found in manifest["network"]["verdicts"].items()
        }
        past = TypeAdapter(PastGains).validate_python(manifest["network"]["past"])
        stored_direct = {series.uid: tensors.get(f"direct.{number}") for number, series in enumerate(panel)}
        direct = {uid: values.numpy() for uid, values in stored_direct.items() if values is not None}
        problems = dict(manifest["problems"])
        settings = {name: manifest["settings"][name] for name in SETTINGS}
        check_horizon(settings["horizon"])
    except (ConfigError, SafetensorError, *_UNUSABLE):
        raise DataError(damaged) from None
    try:
        models = fit_linear_models(panel, encoder.seasonality, config)
    except (ValueError, IndexError, TypeError, ArithmeticError) as error:  # numpy's LinAlgError is a ValueError
        raise DataError(f"the data of the forecaster in {folder} are damaged ({error}); fit it again") from None
    fitted = Fitted(encoder, Panel(panel, times, problems), trained, calibrations, past, direct, models)
    return settings, config, fitted


def _fresh_tensors(folder: Path, manifest: Any) -> Path:
    """Name of new tensors until they have replaced earlier ones."""
    digest = str(manifest.get("sha256")) if isinstance(manifest, dict) else ""
    return folder / f"forecaster-{re.sub('[^0-9a-f]', '', digest)[:16]}.safetensors"


def _seal(manifest: dict[str, Any]) -> str:
    """Hash of everything else in the JSON, so that edits are noticed."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _network(
    stored: dict[str, Any], tensors: dict[str, Tensor], config: ForecastConfig, encoder: Encoder
) -> TrainedNetwork:
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
    return TrainedNetwork(network, stored["name"], history=history, **{name: stored[name] for name in _NUMBERS})

"""Checkpoints: tensors as safetensors with a JSON manifest that holds their SHA-256. No pickles."""

import hashlib
import json
import reprlib
import warnings
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from stochflow.core.errors import DataError
from stochflow.core.files import read_limited, write_atomically
from stochflow.core.ram import available

FORMAT = 2
NUM_KEPT = 2


def save_checkpoint(folder: Path, state: dict[str, Tensor], step: int) -> None:
    """Write a checkpoint and delete all but the last two. The manifest, which makes it valid, is written last."""
    folder.mkdir(exist_ok=True)
    data = tensors_to_bytes({name: tensor.detach().cpu().contiguous().clone() for name, tensor in state.items()})
    stem = f"step-{step:09d}"
    write_atomically(folder / f"{stem}.safetensors", data)
    manifest = {"format": FORMAT, "step": step, "sha256": hashlib.sha256(data).hexdigest()}
    write_atomically(folder / f"{stem}.json", json.dumps(manifest))
    # a higher step is from before the run was resumed at an earlier checkpoint
    for path in _manifests(folder):
        if path > folder / f"{stem}.json":
            path.unlink()
    remove_old(folder)


def remove_old(folder: Path, num_kept: int = NUM_KEPT) -> None:
    """Delete all but the last checkpoints, and tensors without a manifest, which an interruption leaves."""
    for old in _manifests(folder)[num_kept:]:
        old.unlink()
    for tensors in folder.glob("step-*.safetensors"):
        if not tensors.with_suffix(".json").exists():
            tensors.unlink()


def has_checkpoint(folder: Path) -> bool:
    """True when the folder has a manifest, whether its checkpoint is damaged or not."""
    return bool(_manifests(folder))


def load_checkpoint(folder: Path) -> dict[str, Tensor]:
    """State of the newest valid checkpoint; damaged newer ones are skipped with a warning."""
    manifests: list[Path] | None = None
    problems: list[str] = []
    # repeated while a training process replaces the checkpoints before they are read
    while manifests != (manifests := _manifests(folder)):
        problems.clear()
        for path in manifests:
            try:
                state = _load(path)
            except DataError as error:
                problems.append(str(error))
                continue
            if problems:
                warnings.warn(f"{problems[0]}; going on from {path.stem}, the checkpoint before it", stacklevel=2)
            return state
    if not manifests:
        raise DataError(f"{folder.parent} holds no checkpoint; train it first, or start again with --overwrite")
    raise DataError(f"{problems[0]}, and no other is left; start again with --overwrite")


def _manifests(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*.json"), reverse=True)


def _load(path: Path) -> dict[str, Tensor]:
    try:
        manifest = json.loads(read_limited(path, 2**20))
        # half of the memory, since bytes and tensors exist at the same time
        data = read_limited(path.with_suffix(".safetensors"), available() // 2)
        expected, found_format = manifest["sha256"], manifest["format"]
    except PermissionError as error:
        raise DataError(f"{error.filename} may not be read; change its permissions") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise DataError(f"the checkpoint {path.stem} in {path.parent} is incomplete") from None
    if found_format != FORMAT:
        raise DataError(
            f"the checkpoint {path.stem} has format {reprlib.repr(found_format)}, but this version reads {FORMAT}"
        )
    if hashlib.sha256(data).hexdigest() != expected:
        raise DataError(f"the checkpoint {path.stem} in {path.parent} is damaged (its SHA-256 differs)")
    try:
        return tensors_from_bytes(data)
    except SafetensorError:
        raise DataError(f"the checkpoint {path.stem} in {path.parent} is not a safetensors file") from None

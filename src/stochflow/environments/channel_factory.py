"""From settings and files to a channel."""

import io
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from stochflow.config.schema import ChannelConfig
from stochflow.config.yaml import parse_yaml, read_yaml_text
from stochflow.core.errors import ConfigError, DataError
from stochflow.core.files import check_columns, read_limited
from stochflow.environments import channels
from stochflow.environments.channels import Channel

_MAX_BYTES = 8 * 2**20


def make_channel(config: ChannelConfig, num_tokens: int, length: int) -> Channel:
    """The configured channel, checked against the task's alphabet and length."""
    for name in ("matrix", "matrices", "file"):
        if getattr(config, name) is not None and config.kind not in ("confusion", "positional"):
            raise ConfigError(
                f"channel.{name} is given but channel.kind is {config.kind}; set the kind to confusion or positional, "
                f"or remove the {name}"
            )
    channel = _build(config, num_tokens)
    if channel.num_tokens != num_tokens:
        raise ConfigError(
            f"the channel '{channel.name}' is {channel.num_tokens}×{channel.num_tokens} but the task has "
            f"{num_tokens} letters; give {num_tokens} rows of {num_tokens} probabilities"
        )
    channel.check_length(length)
    return channel


def with_matrix_inside(config: ChannelConfig) -> ChannelConfig:
    """The same channel with its file read into the settings: a run must not depend on a file that may change."""
    if config.file is None:
        return config
    table = read_matrix(Path(config.file))
    kind, field = ("confusion", "matrix") if table.ndim == 2 else ("positional", "matrices")
    edits = {"deletion": config.deletion, "duplication": config.duplication}
    return ChannelConfig.model_validate({"kind": kind, field: table.tolist(), **edits})


def _build(config: ChannelConfig, num_tokens: int) -> Channel:
    if config.file is not None and config.kind in ("confusion", "positional"):
        table = read_matrix(Path(config.file))
        return channels.confusion(table, config.file) if table.ndim == 2 else channels.positional(table, config.file)
    if config.kind == "none":
        return channels.noiseless(num_tokens)
    if config.kind == "confusion":
        if config.matrix is None:
            raise ConfigError("channel.kind is confusion but there is no matrix; set channel.matrix or channel.file")
        return channels.confusion(config.matrix)
    if config.kind == "positional" and config.matrices is not None:
        return channels.positional(config.matrices)
    if config.kind == "positional":
        if not isinstance(config.noise, list):
            raise ConfigError(
                "channel.kind is positional: set channel.matrices, channel.file or a list as channel.noise"
            )
        return channels.positional_slip(num_tokens, config.noise)
    if isinstance(config.noise, list):
        raise ConfigError(f"channel.noise is a list but channel.kind is {config.kind}; use kind positional")
    if config.kind == "dna-synthesis":
        return channels.dna_synthesis(config.noise)
    return channels.uniform_slip(num_tokens, config.noise)


def read_matrix(path: Path) -> torch.Tensor:
    """A K×K table from CSV without a header, or one or several from YAML; float64."""
    try:
        if path.suffix == ".csv":
            data = read_limited(path, _MAX_BYTES)
            check_columns(data)
            content: Any = pd.read_csv(io.BytesIO(data), header=None).to_numpy(dtype=float, copy=True)
        else:
            content = parse_yaml(read_yaml_text(path))
            content = content["matrix"] if isinstance(content, dict) else content
        table = torch.as_tensor(content, dtype=torch.float64)
    except FileNotFoundError:
        raise DataError(f"the channel file {path} does not exist; check the path") from None
    except (OSError, ValueError, TypeError, KeyError, RuntimeError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path} does not hold a table of probabilities ({reason}); give K rows of K numbers") from None
    if table.ndim not in (2, 3):
        raise DataError(f"{path} does not hold a table of probabilities; give K rows of K numbers")
    return table

"""From settings and files to a channel."""

import io
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch

from stochflow.config.environment import ChannelConfig
from stochflow.config.noise import EXAMPLES, SERIES
from stochflow.config.yaml import parse_yaml, read_yaml_text
from stochflow.core.errors import ConfigError, DataError
from stochflow.core.files import check_columns, read_limited
from stochflow.environments import channels
from stochflow.environments.channel_presets import PRESETS, preset
from stochflow.environments.channels import Channel, drift
from stochflow.environments.memory_channels import bursts, mixture

_MAX_BYTES = 8 * 2**20


class ChannelFile(NamedTuple):
    """Content of a matrix file.

    Attributes:
        table: float64, K rows of K numbers, or several such tables; not checked further.
        letters: of its rows and columns; None where the file does not say.
        deletion, duplication: how often a letter is lost or doubled.
        insertion: how often another letter follows one.
        kept: P(a|a) by the letter before, [K + 1][K], when the table is the mean over letters before.
    """

    table: torch.Tensor
    letters: str | None
    deletion: float = 0.0
    duplication: float = 0.0
    insertion: float = 0.0
    kept: list[list[float]] | None = None

    @property
    def intact(self) -> float:
        """Share of letters to which no edit happens."""
        return 1.0 - self.deletion - self.duplication - self.insertion

    def build(self, name: str) -> Channel:
        """The channel of the table, with the rates of edits."""
        channel = (channels.confusion if self.table.ndim == 2 else channels.positional)(self.table, name)
        channel.deletion, channel.duplication = self.deletion, self.duplication
        return _with_exactness(channel, self.intact, self.kept)


def make_channel(config: ChannelConfig, num_tokens: int, length: int, letters: str | None = None) -> Channel:
    """The configured channel, checked against the task's alphabet and length.

    Args:
        letters: of the task in token order; a channel that names letters is brought into that order.
    """
    for name in ("matrix", "matrices", "letters", "file"):
        if getattr(config, name) is not None and config.kind not in ("confusion", "positional"):
            raise ConfigError(
                f"channel.{name} is given but channel.kind is {config.kind}; set the kind to confusion or positional, "
                f"or remove the {name}"
            )
    channel, own = _build(config, num_tokens, length, letters)
    if own is not None and letters is not None:
        channel = _in_order(channel, own, letters)
    if channel.num_tokens != num_tokens:
        raise ConfigError(
            f"the channel '{channel.name}' is {channel.num_tokens}×{channel.num_tokens} but the task has "
            f"{num_tokens} letters; give {num_tokens} rows of {num_tokens} probabilities"
        )
    channel.check_length(length)
    return channel


def with_matrix_inside(config: ChannelConfig, variable_length: bool = False) -> ChannelConfig:
    """The same channel with its file read into the settings: a run must not depend on a file that may change."""
    if config.file is None:
        return config
    config = with_edits(config, variable_length)
    found = read_channel_file(Path(str(config.file)))
    kind, field = ("confusion", "matrix") if found.table.ndim == 2 else ("positional", "matrices")
    rest = {"letters": found.letters or config.letters, "deletion": config.deletion, "duplication": config.duplication}
    exactness = {"intact": found.intact, "kept": found.kept}
    return ChannelConfig.model_validate({"kind": kind, field: found.table.tolist(), **rest, **exactness})


def with_edits(config: ChannelConfig, variable_length: bool) -> ChannelConfig:
    """The channel with the deletions and duplications that its file or name stands for, where none are given.

    Designs of one length do without; a warning says what is not simulated.
    """
    name, (deletion, duplication) = config.file or f"{config.kind}:{config.noise}", _edits(config)
    if not deletion and not duplication:
        return config
    if variable_length:
        rates = {"deletion": config.deletion or deletion, "duplication": config.duplication or duplication}
        return ChannelConfig.model_validate(config.model_dump() | rates)
    warnings.warn(
        f"{name} deletes {deletion:.3g} and duplicates {duplication:.3g} of letters, which is not simulated in designs "
        "of one length; only its substitutions are, but the probability of an exact copy counts them",
        stacklevel=4,
    )
    return config


def _edits(config: ChannelConfig) -> tuple[float, float]:
    """Rates of deletion and duplication that the file or name of a channel stands for."""
    if config.file is not None:
        found = read_channel_file(Path(config.file))
        if found.kept is not None:
            warnings.warn(
                f"the errors of {config.file} depend on the letter before; the mean over these letters is used",
                stacklevel=5,
            )
        return found.deletion, found.duplication
    if config.kind in PRESETS and isinstance(config.noise, float):
        channel, _ = preset(config.kind, config.noise, None)
        return channel.deletion, channel.duplication
    return 0.0, 0.0


def _in_order(channel: Channel, own: str, letters: str) -> Channel:
    """A channel over its own letters, with rows and columns in the order of the task's."""
    if len(set(own)) < len(own) or len(own) != channel.num_tokens:
        raise ConfigError(
            f"the matrices of the noise have {channel.num_tokens} rows and name the letters {own}; name the letter of "
            "each row once"
        )
    if set(own) != set(letters):
        raise ConfigError(
            f"the matrices of the noise are for the letters {own} and the task has {letters}; give those of a channel "
            "of the same letters"
        )
    if own == letters:
        return channel
    order = [own.index(letter) for letter in letters]
    sorted_channel = Channel(channel.matrices[:, order][:, :, order], channel.name, channel.slip)
    sorted_channel.deletion, sorted_channel.duplication = channel.deletion, channel.duplication
    sorted_channel.intact = channel.intact
    if channel.kept is not None:
        sorted_channel.kept = channel.kept[[*order, len(order)]][:, order]
    return sorted_channel


def _with_exactness(channel: Channel, intact: float, kept: list[list[float]] | None) -> Channel:
    """The channel with what the probability of an exact copy needs beside its matrices."""
    channel.intact = intact
    if kept is not None:
        size = channel.num_tokens
        if [len(row) for row in kept] != [size] * (size + 1):
            raise ConfigError(f"channel.kept needs {size + 1} rows of {size} probabilities, one for each letter before")
        channel.kept = torch.tensor(kept, dtype=torch.float64)
    return channel


def _build(config: ChannelConfig, num_tokens: int, length: int, letters: str | None) -> tuple[Channel, str | None]:
    """The channel as it is configured, and the letters that it names."""
    if config.file is not None:
        found = read_channel_file(Path(config.file))
        return found.build(config.file), found.letters or config.letters
    if config.kind == "confusion":
        if config.matrix is None:
            raise ConfigError("channel.kind is confusion but there is no matrix; set channel.matrix or channel.file")
        return _with_exactness(channels.confusion(config.matrix), config.intact, config.kept), config.letters
    if config.kind == "positional" and config.matrices is not None:
        return _with_exactness(channels.positional(config.matrices), config.intact, config.kept), config.letters
    if config.kind in PRESETS:
        channel, own = preset(config.kind, _single(config), letters)
        return _with_exactness(channel, 1.0 - channel.deletion - channel.duplication, None), own
    if config.kind in SERIES:
        return _build_series(config, num_tokens, length), None
    return _build_slips(config, num_tokens), None


def _single(config: ChannelConfig) -> float:
    """The number of a channel that has one."""
    if isinstance(config.noise, list):
        raise ConfigError(f"channel.noise is a list but channel.kind is {config.kind}; use kind positional")
    return config.noise


def _build_series(config: ChannelConfig, num_tokens: int, length: int) -> Channel:
    """A channel of several numbers, with memory or with one slip per position."""
    numbers = config.noise if isinstance(config.noise, list) else [config.noise]
    meanings, optional = SERIES[config.kind]
    if config.kind == "mixture":
        return mixture(num_tokens, numbers)
    if not len(meanings) - optional <= len(numbers) <= len(meanings):
        raise ConfigError(
            f"channel.noise of kind {config.kind} needs its numbers ({', '.join(meanings)}), as in "
            f"{EXAMPLES[config.kind]}"
        )
    return drift(num_tokens, length, *numbers) if config.kind == "drift" else bursts(num_tokens, *numbers)


def _build_slips(config: ChannelConfig, num_tokens: int) -> Channel:
    """A channel that a few numbers describe."""
    if config.kind == "none":
        return channels.noiseless(num_tokens)
    if config.kind == "positional":
        if not isinstance(config.noise, list):
            raise ConfigError(
                "channel.kind is positional: set channel.matrices, channel.file or a list as channel.noise"
            )
        return channels.positional_slip(num_tokens, config.noise)
    return channels.uniform_slip(num_tokens, _single(config))


def read_matrix(path: Path) -> torch.Tensor:
    """A K×K table from CSV without a header, or one or several from YAML; float64."""
    return read_channel_file(path).table


def read_channel_file(path: Path) -> ChannelFile:
    """A matrix file: CSV without a header; or YAML, the tables alone, or a mapping with `matrix` or `matrices`."""
    letters, rates, kept = None, [0.0, 0.0, 0.0], None
    try:
        if path.suffix == ".csv":
            data = read_limited(path, _MAX_BYTES)
            check_columns(data)
            content: Any = pd.read_csv(io.BytesIO(data), header=None).to_numpy(dtype=float, copy=True)
        else:
            content = parse_yaml(read_yaml_text(path))
            if isinstance(content, dict):
                letters = content.get("letters")
                rates = [_rate(content.get(name)) for name in ("deletion", "duplication", "insertion")]
                if content.get("model") == "context":
                    contexts = torch.as_tensor(content["contexts"], dtype=torch.float64)
                    kept = contexts.diagonal(dim1=-2, dim2=-1).tolist()
                content = content["matrices"] if "matrices" in content else content["matrix"]
        table = torch.as_tensor(content, dtype=torch.float64)
    except FileNotFoundError:
        raise DataError(f"the channel file {path} does not exist; check the path") from None
    except (OSError, ValueError, TypeError, KeyError, RuntimeError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path} does not hold a table of probabilities ({reason}); give K rows of K numbers") from None
    if table.ndim not in (2, 3):
        raise DataError(f"{path} does not hold a table of probabilities; give K rows of K numbers")
    if letters is not None and not isinstance(letters, str):
        raise DataError(f"{path} names letters that are no text; write them in quotes, in the order of the rows")
    if sum(rates) >= 1.0:
        raise DataError(f"{path} has edits of every letter; correct deletion, duplication and insertion")
    deletion, duplication, insertion = rates
    return ChannelFile(table, letters, deletion, duplication, insertion, kept)


def _rate(content: Any) -> float:
    """Rate of an edit: a number, or with its interval as `stochflow channel fit` writes it."""
    rate = float(0.0 if content is None else content["rate"] if isinstance(content, dict) else content)
    if not 0.0 <= rate < 1.0:
        raise ValueError(f"{rate:g} is no rate of deletions or duplications")
    return rate

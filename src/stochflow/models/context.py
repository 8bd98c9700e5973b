"""The context encoder: a set or series of observations → a memory of each and one vector for all."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from stochflow.config.context import ContextConfig
from stochflow.core.errors import ConfigError
from stochflow.models.attention import Block
from stochflow.models.initialisation import initialise_embeddings, initialise_linears

__all__ = ["ContextConfig", "ContextEncoder", "ContextMemory"]

_SLOWEST = 1e4


class ContextMemory(NamedTuple):
    """What a context says.

    Attributes:
        memory: one vector per element, zero where it is absent, [batch, time, width].
        pooled: norm of the mean over the present elements, zero when there is none, [batch, width].
    """

    memory: Tensor
    pooled: Tensor


class ContextEncoder(nn.Module):
    """Embedding + position, then pre-norm self-attention blocks and a final norm.

    An element is a token, a vector of real features, or both (their embeddings are summed). Absent elements are
    never looked at, whatever they hold, NaN included. Without a position encoding the context is a set: permuting
    it permutes the memory and leaves `pooled` as it is.
    """

    frequencies: Tensor

    def __init__(self, settings: ContextConfig) -> None:
        super().__init__()
        self.settings = settings
        width = settings.width
        self.token_embedding = nn.Embedding(settings.num_tokens, width) if settings.num_tokens else None
        self.feature_embedding = nn.Linear(settings.num_features, width) if settings.num_features else None
        self.position_table = nn.Embedding(settings.max_length, width) if settings.position == "learned" else None
        self.register_buffer("frequencies", log_spaced_frequencies(width // 2), persistent=False)
        self.log_rates: nn.Parameter | None = None
        if settings.position == "continuous":
            self.log_rates = nn.Parameter(self.frequencies.log())
            self.time_embedding = nn.Linear(2 * len(self.frequencies), width)
        self.blocks = nn.ModuleList(Block(width, settings.heads, settings.dropout) for _ in range(settings.layers))
        self.norm = nn.LayerNorm(width)
        self.pooled_norm = nn.LayerNorm(width)

    def initialise(self, generator: torch.Generator) -> None:
        """Draw all weights from `generator`."""
        initialise_linears(self, generator)
        tables = (self.token_embedding, self.position_table)
        initialise_embeddings(generator, *(table.weight for table in tables if table is not None))

    def forward(
        self,
        features: Tensor | None = None,
        tokens: Tensor | None = None,
        times: Tensor | None = None,
        present: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> ContextMemory:
        """Encode a batch of contexts.

        Args:
            features: real vectors, [batch, time, num_features].
            tokens: int64, [batch, time].
            times: when each element was observed, for position "continuous", [batch, time]. Only their scale is
                learned, so give them in units of the usual gap and near zero: float32 cannot tell epoch seconds apart.
            present: True where the element is real, [batch, time]; all of them without it.
            generator: draws the dropout masks in training mode.
        """
        given = features if features is not None else tokens
        if given is None:
            raise ValueError("a context needs features, tokens or both")
        if present is None:
            present = torch.ones(given.shape[:2], dtype=torch.bool, device=given.device)
        hidden = self._embedded(features, tokens, present) + self._positions(times, present)
        # everybody sees itself: a row without any present element stays finite
        itself = torch.eye(present.shape[1], dtype=torch.bool, device=present.device)
        visible = (present.unsqueeze(-2) | itself).unsqueeze(-3)
        for block in self.blocks:
            hidden = block(hidden, visible, generator=generator)
        real = present.unsqueeze(-1)
        # normalised after the mean: an element that says more than the others keeps its weight
        pooled = self.pooled_norm((hidden * real).sum(dim=-2) / real.sum(dim=-2).clamp_min(1))
        return ContextMemory(self.norm(hidden) * real, pooled * real.any(dim=-2))

    def _embedded(self, features: Tensor | None, tokens: Tensor | None, present: Tensor) -> Tensor:
        """Sum of the embeddings of what was given, [batch, time, width]."""
        parts = []
        for kind, given, embedding in (
            ("features", features, self.feature_embedding),
            ("tokens", tokens, self.token_embedding),
        ):
            if (given is None) != (embedding is None):
                raise ValueError(
                    f"the encoder was built {'without' if given is not None else 'with'} {kind}; "
                    f"set num_{kind} to match what you pass"
                )
            if given is not None and embedding is not None:
                absent = ~present if given.ndim == 2 else ~present.unsqueeze(-1)
                parts.append(embedding(given.masked_fill(absent, 0)))
        return torch.stack(parts).sum(dim=0)

    def _positions(self, times: Tensor | None, present: Tensor) -> Tensor:
        """What tells the elements apart by their place, broadcastable to [batch, time, width]."""
        length = present.shape[1]
        places = torch.arange(length, device=present.device)
        if self.position_table is not None:
            if length > self.settings.max_length:
                raise ConfigError(
                    f"the context has {length} elements but learned positions end at {self.settings.max_length}; "
                    "raise max_length or use sinusoidal positions"
                )
            return self.position_table(places)
        if self.settings.position == "sinusoidal":
            return sinusoids(places.to(self.frequencies), self.frequencies)
        if self.log_rates is not None:
            if times is None:
                raise ValueError("position 'continuous' needs the time of every element; pass times")
            known = times.masked_fill(~present, 0).to(self.log_rates)
            return self.time_embedding(sinusoids(known, self.log_rates.exp()))
        return self.frequencies.new_zeros(())


def log_spaced_frequencies(num: int) -> Tensor:
    """1 … 1e-4 radians per unit of time with equal ratios, [num]."""
    return torch.exp(-math.log(_SLOWEST) * torch.arange(num) / max(num - 1, 1))


def sinusoids(times: Tensor, frequencies: Tensor) -> Tensor:
    """sin and cos of time × frequency; [...], [num] → [..., 2·num]."""
    angles = times.unsqueeze(-1) * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1)

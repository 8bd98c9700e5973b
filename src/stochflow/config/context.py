"""Settings of what reads a context: the encoder, and the sampler that is pre-trained on several tasks."""

from typing import Literal

from pydantic import Field, model_validator

from stochflow.config.base import Settings


class ContextConfig(Settings):
    """The context encoder: what the policy and the dynamics may know beyond the prefix."""

    width: int = Field(64, ge=2, le=2**14, description="Width of the memory and of the pooled vector.")
    heads: int = Field(4, ge=1, description="Attention heads; they divide the width.")
    layers: int = Field(2, ge=0, le=64, description="Self-attention blocks.")
    dropout: float = Field(0.0, ge=0, lt=1, description="Share of each residual branch that training sets to zero.")
    position: Literal["learned", "sinusoidal", "continuous", "none"] = Field(
        "none", description="A table, sinusoids of the index, sinusoids of real-valued times, or a set."
    )
    max_length: int = Field(512, ge=1, le=2**20, description="Rows of the table of learned positions.")
    num_tokens: int = Field(0, ge=0, le=2**20, description="Different tokens; 0 for contexts without tokens.")
    num_features: int = Field(0, ge=0, le=2**20, description="Real features per element; 0 for contexts without any.")

    @model_validator(mode="after")
    def _buildable(self) -> "ContextConfig":
        if self.width % self.heads or self.width % 2:
            raise ValueError("width must be even and a multiple of heads")
        if not self.num_tokens and not self.num_features:
            raise ValueError("set num_tokens, num_features or both, or there is nothing to encode")
        return self


class ReadingConfig(Settings):
    """What policy and P̂ read beyond the letters so far (`--context`)."""

    reads: Literal["none", "history", "support"] = Field(
        "none",
        description="Nothing, the pairs of intended and made letters so far, or a support set (with --from).",
    )
    width: int = Field(32, ge=2, le=2**14, description="Width of the encoder of the history.")
    heads: int = Field(4, ge=1, description="Attention heads of it; they divide the width.")
    layers: int = Field(1, ge=1, le=64, description="Self-attention blocks of it.")
    join: Literal["scale-shift", "concatenate"] = Field(
        "scale-shift", description="How the context meets the state: it scales and shifts it, or stands beside it."
    )

    @model_validator(mode="after")
    def _whole_heads(self) -> "ReadingConfig":
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of {self.heads} heads")
        return self


class PretrainingConfig(Settings):
    """One sampler for several tasks (`stochflow pretrain`), and runs that begin with it (`stochflow train --from`)."""

    tasks: list[str] = Field([], description="Tasks of the pre-training, of one alphabet and length; [] without one.")
    support_size: int = Field(256, ge=1, le=2**20, description="Measured sequences in a context.")
    context_width: int = Field(64, ge=2, le=2**14, description="Width of the encoded context.")
    context_heads: int = Field(4, ge=1, description="Attention heads of the context encoder; they divide the width.")
    context_layers: int = Field(
        0, ge=0, le=64, description="Self-attention blocks of the context encoder; 0: the context is a mean."
    )
    tasks_per_step: int = Field(4, ge=1, le=2**14, description="Tasks, each with a support of its own, per update.")
    rows_per_level: int = Field(64, ge=1, le=2**20, description="States per depth and task.")
    relabelled: float = Field(
        0.5, ge=0, le=1, description="Share of tasks with letters renamed at random, so that the context must be read."
    )
    source: str | None = Field(None, description="Run of the pre-trained sampler that this run began with; not read.")
    support: int | None = Field(
        None, ge=1, le=2**20, description="Measured sequences that this run began with, apart from its budget (--from)."
    )

    @model_validator(mode="after")
    def _whole_heads(self) -> "PretrainingConfig":
        if self.context_width % self.context_heads or self.context_width % 2:
            raise ValueError("context_width must be even and a multiple of context_heads")
        return self

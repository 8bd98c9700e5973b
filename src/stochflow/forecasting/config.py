"""Settings of a forecaster."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from stochflow.config.base import Settings
from stochflow.config.layers import sentence_of
from stochflow.core.errors import ConfigError

# attention heads of the context encoder
NUM_HEADS = 4


class ForecastConfig(Settings):
    """Everything that can be set; the defaults are what `docs/forecasting.md` measures."""

    network: Literal["auto", "none", "mlp", "transformer"] = Field(
        "auto", description="What refines the anchor; auto takes what the validation CRPS prefers, none included."
    )
    objective: Literal["forward-kl", "sgfn-db", "sgfn-kl"] = Field(
        "forward-kl", description="Likelihood of what happened, or balance or divergence from exp(−error/τ)."
    )
    point_loss: Literal["none", "mse", "mae"] = Field(
        "none", description="Extra term on the predictive mean (mse) or median (mae)."
    )
    point_weight: float = Field(0.1, ge=0, description="Weight of the extra term.")
    reward_scale: float = Field(1.0, gt=0, description="τ of the reward exp(−error/τ), in units of the anchor's noise.")
    entropy_weight: float = Field(0.0, ge=0, description="Weight of the log entropy ratio r_γ.")
    width: int = Field(64, ge=2, le=2**12, description="Width of the network.")
    learning_rate: float = Field(3e-3, gt=0, description="Adam's step.")
    weight_decay: float = Field(0.01, ge=0, description="Pull of the weights to zero.")
    prior_strength: float = Field(
        10.0, ge=0, description="How many time steps of data the anchor's own forecast is worth against the network's."
    )
    averaging: float = Field(0.95, ge=0, lt=1, description="Decay of the running mean of the weights that is kept.")
    max_steps: int = Field(2000, ge=0, le=10**9, description="Most updates of the network.")
    check_every: int = Field(50, ge=1, le=10**9, description="Updates between two looks at the validation CRPS.")
    patience: int = Field(6, ge=1, le=10**9, description="Looks without progress before training ends.")
    min_gain: float = Field(0.0, ge=0, lt=1, description="Share by which a network must beat the bare anchor.")
    batch_size: int = Field(512, ge=1, le=2**17, description="States per update.")
    num_bins: int = Field(129, ge=9, le=4097, description="Tokens of a value, both open ends included.")
    num_intentions: int = Field(
        17, ge=3, le=1025, description="Tokens the policy can intend, made odd; the middle one is the anchor."
    )
    train_members: int = Field(
        4, ge=1, le=1000, description="Anchors per series whose residuals the network learns from."
    )
    stride: int = Field(
        1, ge=1, le=10**9, description="Steps between two states of a series that the network learns from."
    )
    validation_origins: int = Field(32, ge=1, le=10**5, description="Origins on which training is judged.")
    validation_paths: int = Field(64, ge=2, le=2**16, description="Paths per origin for that.")
    calibration_origins: int = Field(
        64,
        ge=0,
        le=10**5,
        description="Held-out origins per series on which the spread of the paths is judged; 0 leaves it.",
    )
    context_min_values: int = Field(
        2000, ge=0, description="Observed values, of all series together, from which auto tries the transformer."
    )
    direct_share: float = Field(
        1 / 3, ge=0, le=0.5, description="Share of the paths of short series that take values of direct networks."
    )
    ridge_share: float = Field(
        0.3,
        ge=0,
        le=0.5,
        description="Most of a long series' paths that a ridge autoregression draws; held-out origins say how many.",
    )
    context_length: int = Field(64, ge=2, le=2**14, description="Steps of the past that the context encoder reads.")
    context_width: int = Field(32, ge=4, le=2**12, description="Width of the context encoder; a multiple of 4.")
    context_layers: int = Field(2, ge=1, le=64, description="Attention blocks of the context encoder.")
    position: Literal["learned", "sinusoidal", "continuous"] = Field(
        "continuous", description="How the context encoder knows when; continuous uses the real gaps."
    )
    num_paths: int = Field(1000, ge=2, le=2**20, description="Paths of a forecast when the caller does not say.")
    seed: int = Field(0, ge=0, lt=2**63, description="Seed of all random numbers.")

    @model_validator(mode="after")
    def _buildable(self) -> "ForecastConfig":
        if self.context_width % NUM_HEADS:
            raise ValueError(f"context_width is {self.context_width}; give a multiple of {NUM_HEADS}")
        return self

    @classmethod
    def checked(cls, settings: Mapping[str, Any]) -> "ForecastConfig":
        """A config from settings by name; a bad one raises a ConfigError that says what is allowed."""
        try:
            return cls.model_validate(dict(settings))
        except ValidationError as error:
            raise ConfigError(sentence_of(error, cls)) from None

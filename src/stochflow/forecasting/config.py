"""Settings of a forecaster."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from pydantic import Field, ValidationError, model_validator

from stochflow.config.base import Settings
from stochflow.config.layers import sentence_of
from stochflow.core.errors import ConfigError

# attention heads of the context encoder
NUM_HEADS = 4
MAX_HORIZON = 100_000


def is_whole(value: object) -> bool:
    """Whether a value is an integer; True and False are not."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def check_horizon(horizon: int) -> None:
    """Raise a ConfigError unless the horizon is a whole number of steps from one to MAX_HORIZON."""
    if not is_whole(horizon) or not 1 <= horizon <= MAX_HORIZON:
        raise ConfigError(
            f"horizon is {horizon!s:.40}; give the number of steps to forecast, 1 or more and at most {MAX_HORIZON}"
        )


class ForecastConfig(Settings):
    """Settings of a forecaster; the defaults are those that `docs/how-to/forecasting.md` evaluates."""

    network: Literal["auto", "none", "mlp", "transformer"] = Field(
        "auto", description="Network on the residuals; auto takes the one with the least validation CRPS, or none."
    )
    objective: Literal["forward-kl", "sgfn-db", "sgfn-kl"] = Field(
        "forward-kl", description="Likelihood, or balance with or divergence from the reward exp(−error/τ)."
    )
    point_loss: Literal["none", "mse", "mae"] = Field("none", description="Extra loss of the mean or the median.")
    point_weight: float = Field(0.1, ge=0, description="Weight of the extra loss.")
    reward_scale: float = Field(1.0, gt=0, description="τ of the reward exp(−error/τ), in units of the residuals.")
    entropy_weight: float = Field(0.0, ge=0, description="Weight of the log entropy ratio r_γ.")
    width: int = Field(64, ge=2, le=2**12, description="Width of the network.")
    learning_rate: float = Field(3e-3, gt=0, description="Learning rate of AdamW.")
    weight_decay: float = Field(0.01, ge=0, description="Weight decay of AdamW.")
    prior_strength: float = Field(10.0, ge=0, description="Weight of the linear forecast as a prior, in time steps.")
    averaging: float = Field(0.95, ge=0, lt=1, description="Decay of the moving average of the weights.")
    max_steps: int = Field(2000, ge=0, le=10**9, description="Maximum number of updates of the network.")
    check_every: int = Field(50, ge=1, le=10**9, description="Updates between two validations.")
    patience: int = Field(6, ge=1, le=10**9, description="Validations without improvement before training stops.")
    min_gain: float = Field(0.0, ge=0, lt=1, description="Least relative CRPS gain of a network that is kept.")
    batch_size: int = Field(512, ge=1, le=2**17, description="States per update.")
    num_bins: int = Field(129, ge=9, le=4097, description="Bins of a residual, both open ones included.")
    num_intentions: int = Field(17, ge=3, le=1025, description="Shifts that the policy can intend, made odd.")
    train_members: int = Field(4, ge=1, le=1000, description="Members per series that the network is trained on.")
    stride: int = Field(1, ge=1, le=10**9, description="Steps between two training states of a series.")
    validation_origins: int = Field(32, ge=1, le=10**5, description="Held-out origins per series for validation.")
    validation_paths: int = Field(64, ge=2, le=2**16, description="Paths per held-out origin.")
    calibration_origins: int = Field(64, ge=0, le=10**5, description="Origins per series for calibration; 0: none.")
    context_min_values: int = Field(2000, ge=0, description="Observed values from which auto tries the transformer.")
    direct_share: float = Field(1 / 3, ge=0, le=0.5, description="Share of direct networks in short series' paths.")
    ridge_share: float = Field(0.3, ge=0, le=0.5, description="Largest share of ridge paths of a long series.")
    context_length: int = Field(64, ge=2, le=2**14, description="Past steps that the context encoder reads.")
    context_width: int = Field(32, ge=4, le=2**12, description="Width of the context encoder; a multiple of 4.")
    context_layers: int = Field(2, ge=1, le=64, description="Attention blocks of the context encoder.")
    position: Literal["learned", "sinusoidal", "continuous"] = Field(
        "continuous", description="Position encoding of the context; continuous uses the real gaps."
    )
    num_paths: int = Field(1000, ge=2, le=2**20, description="Default number of paths of a forecast.")
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

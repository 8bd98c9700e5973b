"""What a campaign is about, as its file keeps it."""

from functools import cached_property
from typing import Any

from pydantic import Field, ValidationError

from stochflow.campaigns.design_space import DesignSpace
from stochflow.campaigns.goals import Goal
from stochflow.config.base import Settings
from stochflow.config.environment import ChannelConfig, ConstraintConfig
from stochflow.config.layers import sentence_of
from stochflow.config.noise import parse_noise
from stochflow.core.errors import ConfigError, DataError
from stochflow.environments.channel_factory import make_channel, with_edits, with_matrix_inside
from stochflow.environments.sequences.alphabets import named_alphabet

_MAX_LENGTH, _MAX_BATCH = 1000, 10_000


class CampaignSettings(Settings):
    """Alphabet, length, noise, goal, batch, constraints and seed of a campaign.

    >>> settings = checked_settings(alphabet="dna", length=8, noise=0.1)
    >>> settings.space.size, settings.goal.kind
    (65536, 'maximise')
    >>> stored_settings(settings.model_dump_json()) == settings
    True
    """

    alphabet: str = Field(description="dna, rna, protein, or the letters.")
    length: int = Field(ge=1, le=_MAX_LENGTH, description="Letters of a design.")
    noise: str = Field("none", description="The noise as it was given.")
    channel: ChannelConfig = Field(ChannelConfig(kind="none"), description="The noise between order and outcome.")
    purpose: str = Field("maximise", description="maximise, sample, or target:VALUE.")
    thresholds: list[str] = Field([], description="Bounds of measured properties.")
    batch: int = Field(96, ge=1, le=_MAX_BATCH, description="Wells of a round.")
    constraints: ConstraintConfig = Field(ConstraintConfig(), description="What every order must satisfy.")
    seed: int = Field(0, ge=0, lt=2**53, description="Of every random choice.")

    @cached_property
    def goal(self) -> Goal:
        return Goal.parse(self.purpose, self.thresholds)

    @cached_property
    def space(self) -> DesignSpace:
        alphabet = named_alphabet(self.alphabet)
        channel = make_channel(self.channel, len(alphabet), self.length, alphabet.letters)
        return DesignSpace(alphabet, self.length, channel, self.constraints)


def checked_settings(noise: float | str = "none", **values: Any) -> CampaignSettings:
    """Settings of a new campaign, or an error of one sentence; the content of a channel file goes inside."""
    try:
        given = ChannelConfig.model_validate(parse_noise(noise))
        channel = with_edits(given, variable_length=False) if given.file is None else with_matrix_inside(given)
        if channel.kind in ("bursts", "mixture"):
            raise ConfigError(
                f"a campaign orders whole plates, and '{noise}' has no matrix per position; choose another --noise"
            )
        settings = CampaignSettings.model_validate({"noise": str(noise), "channel": channel, **values})
    except ValidationError as error:
        raise ConfigError(sentence_of(error, CampaignSettings)) from None
    if settings.space.size == 0 or settings.goal is None:  # what cannot be built is refused now, not at the first ask
        raise ConfigError("no design satisfies the constraints; loosen one of them")
    return settings


def stored_settings(text: str) -> CampaignSettings:
    """Settings as a campaign's file keeps them."""
    try:
        return CampaignSettings.model_validate_json(text)
    except ValidationError:
        raise DataError("the settings of the campaign are damaged; restore its file from a copy") from None

"""What all models of settings share."""

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    # misspelt keys and text where a number belongs are errors, not surprises
    model_config = ConfigDict(extra="forbid", strict=True, validate_default=True, allow_inf_nan=False)

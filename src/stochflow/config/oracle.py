"""Settings of a user's own score function: what its designs are, and how it is called."""

from typing import Literal

from pydantic import Field

from stochflow.config.base import Settings


class OracleConfig(Settings):
    """A user's own function as the task (task oracle:package.module:function)."""

    length: int | None = Field(None, ge=1, le=4096, description="Letters of a design.")
    alphabet: str | None = Field(None, description="dna, rna, protein, or the letters themselves.")
    batch_size: int = Field(64, ge=1, le=2**20, description="Most designs per call.")
    workers: int = Field(1, ge=1, le=1024, description="Calls at the same time, each in a process of its own.")
    engine: Literal["local", "ray"] = Field("local", description="Processes on this machine, or a Ray cluster.")
    address: str | None = Field(
        None, min_length=1, description="Ray cluster to join; without one, Ray is started on this machine."
    )
    timeout: float | None = Field(600.0, gt=0, le=10**6, description="Seconds that a call may take; null waits on.")
    retries: int = Field(2, ge=0, le=100, description="How often a call that failed is made again.")
    backoff: float = Field(1.0, ge=0, le=3600, description="Seconds before the first retry, doubled for each further.")
    cache: str | None = Field(None, description="SQLite file of paid scores to share; null: in the run directory.")
    score_samples: bool = Field(False, description="Also pay for the designs drawn at the end.")

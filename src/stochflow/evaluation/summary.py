"""What every run reports in the end."""

from typing import Annotated

from pydantic import BaseModel, Field

Count = Annotated[int, Field(ge=0, lt=2**63)]


class Summary(BaseModel):
    """What `summary.json` and `--json` hold; docs/reference/metrics.md defines every key. None: cannot be computed."""

    task: str
    method: str
    noise: float | str
    beta: float
    seed: Count
    steps: Count
    trajectories: Count
    oracle_calls: Count
    kl: float | None
    min_kl: float | None
    regret: float | None
    tv: float | None
    min_tv: float | None
    mean_score: float | None
    attainable_score: float | None
    top100_mean: float | None
    top100_hamming: float | None
    num_modes: Count
    log_z: float
    log_z_true: float | None
    dynamics_ce: float | None
    dynamics_ce_floor: float
    seconds: float
    top100_edit: float | None
    unique_fraction: float
    novelty: float | None
    scored_fraction: float = 1.0
    feasible_fraction: float | None = None
    status: str
    reward_noise: str = "none"
    reward_mean: str | None = None
    known_modes: Count | None = None
    entropy_gap: float | None = None
    support: Count | None = None
    j: float | None = None
    j_se: float | None = None
    regret_se: float | None = None
    feedback: str = "step"
    value_of_feedback: float | None = None
    world: str | None = None
    measured: Count | None = None
    surrogate: str | None = None
    surrogate_r2: float | None = None
    surrogate_rank_correlation: float | None = None
    surrogate_coverage: float | None = None
    surrogate_reach: Count | None = None

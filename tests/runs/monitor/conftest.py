"""Courses of runs made up for the rules that read them."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from stochflow.config.layers import resolve
from stochflow.config.methods import method_settings
from stochflow.config.schema import Config

Records = list[dict[str, Any]]
MakeRecords = Callable[..., Records]
NUM_STEPS = 100
EVERY_STEP = ("batch_score", "loss", "kl_loss", "imitation_loss")


def config_of(method: str = "sgfn-kl", **settings: Any) -> Config:
    """Settings of a run of a hundred steps."""
    return resolve([method_settings(method), {"method": method, "budget": {"steps": NUM_STEPS}}, settings])


@pytest.fixture
def make_records() -> MakeRecords:
    """Records of a hundred steps, evaluated after every fifth, with columns that are numbers or one number per step."""

    def make(
        steps: int = NUM_STEPS,
        start: float | None = 0.6,
        start_j: float | None = None,
        **columns: float | Sequence[float] | None,
    ) -> Records:
        records = []
        for step in range(1, steps + 1):
            now = {
                name: column[step - 1] if isinstance(column, Sequence) else column for name, column in columns.items()
            }
            record = {"step": step, "trajectories": 64 * step, "oracle_calls": 60 * step, "seconds": 0.1 * step}
            record |= {"batch_score": 0.5, "loss": 1.0} | {
                name: value for name, value in now.items() if name in EVERY_STEP or step % 5 == 0
            }
            if step == 1 and start is not None:
                record["start_regret"] = start
            if step == 1 and start_j is not None:
                record |= {"start_j": start_j, "start_j_se": columns["j_se"]}
            records.append({name: value for name, value in record.items() if value is not None})
        return records

    return make

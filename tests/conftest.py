"""Fixtures that several test modules share."""

import pytest
import torch
from hypothesis import settings
from torch import Tensor

from stochflow.tasks.base import Reward
from stochflow.tasks.tfbind8 import TFBind8
from tests.fuzz import counts

# small tensors: a second thread costs more than it brings, and the suite may run on two processes
torch.set_num_threads(1)
# the same examples on every machine and every day: a red test stays red until the code is mended
settings.register_profile("stochflow", derandomize=True, deadline=None, database=None, max_examples=30)
settings.load_profile("stochflow")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(counts)


@pytest.fixture
def generator() -> torch.Generator:
    """A fresh stream of random numbers, the same one for every test."""
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="session")
def tfbind8() -> TFBind8:
    """The SIX6 task, read once."""
    return TFBind8()


@pytest.fixture(scope="session")
def six6_log_reward(tfbind8: TFBind8) -> Tensor:
    """log R = log max(score³, 1e-6) of all 65,536 sequences: the target of the check values in the method."""
    return Reward(beta=3.0, floor=1e-6, ramp=0.0).log_reward(tfbind8.all_scores)

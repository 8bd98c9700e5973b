"""Fixtures of the conditional sampler."""

from collections.abc import Iterator

import pytest

from stochflow.environments.registry import TASKS
from stochflow.experiments.experiment import Experiment
from tests.training.conditional.favourites import Favourite, pretraining


@pytest.fixture(scope="module", autouse=True)
def known_tasks() -> Iterator[None]:
    """The tasks by name."""
    with pytest.MonkeyPatch.context() as patch:
        for letter in range(3):
            patch.setitem(TASKS, f"favourite-{letter}", lambda letter=letter: Favourite(letter))
        yield


@pytest.fixture(scope="module")
def pretrained() -> Experiment:
    """One that has ended."""
    experiment = pretraining()
    while not experiment.trainer.finished:
        experiment.trainer.train_step()
    return experiment

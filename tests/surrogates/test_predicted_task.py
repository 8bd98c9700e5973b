"""A task whose scores are predicted: what its score means, and what it costs."""

import pytest
import torch

from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.lookup_task import Measurements
from stochflow.environments.sequences.task import Alphabet
from stochflow.surrogates.base import Prediction
from stochflow.surrogates.predicted_task import PredictedTask

DNA = Alphabet("ACGT")
REWARD = Reward(beta=4.0, floor=1e-6, ramp=0.0)


@pytest.fixture(scope="module")
def task() -> PredictedTask:
    tokens = torch.cartesian_prod(*[torch.arange(4)] * 4)[::3]
    scores = (tokens == 2).double().sum(dim=1, keepdim=True) * 7.0 - 50.0
    return PredictedTask("guanines", DNA, Measurements(tokens, scores), REWARD)


def test_the_score_is_worth_the_expected_log_reward(task: PredictedTask) -> None:
    tokens = task.all_sequences
    prediction = task.surrogate.predict(tokens)
    expected = prediction.expected_log_reward(REWARD)
    torch.testing.assert_close(task.log_reward(tokens, task.score(tokens), REWARD), expected)
    assert bool((expected <= REWARD.log_reward(prediction.mean.clamp(min=0.0)) + 1e-9).any())


def test_of_two_equal_means_the_better_known_is_preferred() -> None:
    prediction = Prediction(torch.tensor([0.5, 0.5]).double(), torch.tensor([0.05, 0.2]).double())
    known, unknown = prediction.expected_log_reward(REWARD).tolist()
    assert unknown < known < float(REWARD.log_reward(torch.tensor([0.5]).double()))


def test_predictions_are_free_and_never_negative(task: PredictedTask) -> None:
    assert bool(task.free(task.all_sequences).all())
    assert float(task.all_scores.min()) >= 0.0
    assert task.num_measured is None

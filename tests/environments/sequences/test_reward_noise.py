"""A noisy oracle: what it answers, and the mean reward that is the target."""

import math

import pytest
import torch

from stochflow.core.errors import ConfigError
from stochflow.environments.registry import make_task
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.lookup_task import MeasuredTask, Measurements
from stochflow.environments.sequences.reward_noise import with_noise
from stochflow.environments.sequences.task import Alphabet, Task

REWARD = Reward(beta=3.0, floor=1e-6, ramp=0.0)
TOKENS = torch.tensor([[0], [1], [2]])


@pytest.fixture
def task() -> MeasuredTask:
    """Three letters, the last of them not measured."""
    scores = torch.tensor([[0.2, 0.6], [0.5, 0.5]], dtype=torch.float64)
    variances = torch.tensor([0.04, 0.0], dtype=torch.float64)
    return MeasuredTask("toy", Alphabet("abc"), Measurements(TOKENS[:2], scores, variances), "for tests", "made up")


def log_rewards(task: Task) -> list[float]:
    return task.log_reward(TOKENS, task.score(TOKENS), REWARD).exp().tolist()


def test_without_noise_the_task_is_itself(task: MeasuredTask) -> None:
    assert with_noise(task, "none") is task


def test_a_replicate_is_drawn_per_measurement(task: MeasuredTask, generator: torch.Generator) -> None:
    noisy = with_noise(task, "replicate")
    drawn = noisy.measure(torch.zeros(4000, 1, dtype=torch.int64), generator)
    assert set(drawn.tolist()) == {0.2, 0.6}
    assert int((drawn == 0.2).sum()) == pytest.approx(2000, abs=5 * math.sqrt(1000))
    assert noisy.score(TOKENS).tolist() == pytest.approx([0.4, 0.5, 0.0])


def test_the_same_generator_gives_the_same_measurements(task: MeasuredTask) -> None:
    for noise in ("replicate", "gaussian", "gaussian:0.1"):
        tokens = torch.zeros(50, 1, dtype=torch.int64)
        first, again = (with_noise(task, noise).measure(tokens, torch.Generator().manual_seed(3)) for _ in range(2))
        assert torch.equal(first, again)


def test_the_target_of_replicates_is_their_mean_reward(task: MeasuredTask) -> None:
    expected = [(0.2**3 + 0.6**3) / 2, 0.5**3, 1e-6]
    assert log_rewards(with_noise(task, "replicate")) == pytest.approx(expected)


def test_gaussian_noise_takes_its_size_from_the_table(task: MeasuredTask, generator: torch.Generator) -> None:
    noisy = with_noise(task, "gaussian")
    drawn = noisy.measure(torch.zeros(20_000, 1, dtype=torch.int64), generator)
    assert float(drawn.min()) == 0.0
    # 0.4 + 0.2·z cut at zero, two deviations away: E = 0.4·Φ(2) + 0.2·φ(2)
    mean = 0.4 * 0.9772498680518208 + 0.2 * 0.05399096651318806
    assert float(drawn.mean()) == pytest.approx(mean, abs=5 * 0.2 / math.sqrt(20_000))
    assert noisy.score(TOKENS).tolist() == pytest.approx([mean, 0.5, 0.0], abs=5e-4)


def test_the_target_of_gaussian_noise_is_the_mean_reward_of_its_measurements(
    task: MeasuredTask, generator: torch.Generator
) -> None:
    noisy = with_noise(task, "gaussian:0.1")
    rewards = noisy.measure(torch.zeros(200_000, 1, dtype=torch.int64), generator) ** 3
    error = float(rewards.std()) / math.sqrt(len(rewards))
    assert log_rewards(noisy)[0] == pytest.approx(float(rewards.mean()), abs=5 * error)
    assert log_rewards(noisy)[1] == pytest.approx(0.5**3 + 3 * 0.5 * 0.01, rel=1e-3)  # E[(m + σz)³] = m³ + 3mσ²


@pytest.mark.parametrize(
    ("noise", "message"),
    [
        ("often", "'often' is not understood; choose none, replicate"),
        ("none:1", "is not understood"),
        ("replicate:2", "is not understood"),
        ("gaussian:much", "needs a standard deviation above 0"),
        ("gaussian:-1", "needs a standard deviation above 0"),
        ("gaussian:nan", "needs a standard deviation above 0"),
        ("gaussian:inf", "needs a standard deviation above 0"),
    ],
)
def test_a_noise_that_is_not_understood_is_named(task: MeasuredTask, noise: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        with_noise(task, noise)


def test_noise_that_a_table_does_not_know_is_refused() -> None:
    with pytest.raises(ConfigError, match="'dmsc' has no replicates"):
        with_noise(make_task("dmsc"), "replicate")
    with pytest.raises(ConfigError, match="'tfbind8' has no variances"):
        with_noise(make_task("tfbind8"), "gaussian")

"""Several tasks as one environment, and the truth of task and sequence together."""

import pytest
import torch

from stochflow.core.errors import ConfigError
from stochflow.environments.channels import uniform_slip
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.environment import SequenceEnvironment
from stochflow.environments.sequences.multi_task import MultiTaskEnvironment, tasks_of_rows
from stochflow.environments.sequences.task import Alphabet
from stochflow.truth.truth import truth_of
from tests.training.conditional.favourites import Favourite

CHANNEL = uniform_slip(3, 0.2)
REWARD = Reward(beta=2.0, floor=1e-6, ramp=0.0)


@pytest.fixture
def environment() -> MultiTaskEnvironment:
    return MultiTaskEnvironment([Favourite(letter) for letter in range(3)], CHANNEL)


@pytest.mark.parametrize(("num", "expected"), [(6, [0, 0, 1, 1, 2, 2]), (4, [0, 0, 1, 2]), (0, [])])
def test_rows_are_shared_out_evenly_and_in_order(num: int, expected: list[int]) -> None:
    assert tasks_of_rows(num, 3).tolist() == expected


def test_an_object_is_scored_by_its_own_task(environment: MultiTaskEnvironment) -> None:
    outcomes = torch.zeros(6, 4, dtype=torch.int64)
    made = environment.made(outcomes, outcomes == 0)
    assert environment.score(made).tolist() == pytest.approx([1.0, 1.0, 0.05, 0.05, 0.05, 0.05])
    # wherever its row stands
    assert environment.score(made[[4, 0]]).tolist() == pytest.approx([0.05, 1.0])
    scores = environment.score(made)
    assert torch.equal(environment.log_reward(made, scores, REWARD), REWARD.log_reward(scores))
    assert torch.equal(environment.designs(made), outcomes)
    frame = environment.frame(outcomes, outcomes, outcomes == 0)
    assert frame["task"].tolist() == [f"favourite-{letter}" for letter in (0, 0, 1, 1, 2, 2)]
    assert set(frame["sequence"]) == {"AAAA"}


def test_the_optimum_is_the_mean_over_the_tasks(environment: MultiTaskEnvironment) -> None:
    # one with another Z: it counts no more than the others
    environment.tasks[0].score = lambda tokens: 3.0 * Favourite(0).score(tokens)  # type: ignore[method-assign]
    joint = truth_of(environment, REWARD)
    assert joint is not None
    apart = [truth_of(SequenceEnvironment(task, CHANNEL), REWARD) for task in environment.tasks]
    optima = [truth.optimum() for truth in apart if truth is not None]
    for name, value in joint.optimum().items():
        assert value == pytest.approx(sum(best[name] for best in optima) / 3, rel=1e-6), name
    assert joint.attainable.log_probs.exp().sum().item() == pytest.approx(1.0)
    assert joint.log_rewards.exp().sum().item() == pytest.approx(3.0)


def test_tasks_that_share_no_space_are_refused() -> None:
    class Longer(Favourite):
        length = 5

    class Other(Favourite):
        alphabet = Alphabet("XYZ")

    for stranger in (Longer(1), Other(1)):
        with pytest.raises(ConfigError, match="enumerable tasks of one alphabet and length"):
            MultiTaskEnvironment([Favourite(0), stranger], CHANNEL)

"""A task and a channel as one environment."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from stochflow.config.environment import ConstraintConfig
from stochflow.core.random import RandomStreams
from stochflow.environments.channels import noiseless, positional, uniform_slip
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.constraints import ConstrainedTask, PrefixMask
from stochflow.environments.sequences.environment import SequenceEnvironment
from stochflow.environments.sequences.reward_noise import with_noise
from stochflow.environments.sequences.tfbind8 import TFBind8

# asymmetric: a transposed matrix or the wrong position would be noticed
SKEWED = torch.tensor(
    [[0.7, 0.1, 0.1, 0.1], [0.3, 0.5, 0.1, 0.1], [0.0, 0.2, 0.8, 0.0], [0.25, 0.25, 0.25, 0.25]], dtype=torch.float64
)
MATRICES = torch.stack([SKEWED, SKEWED.flip(0, 1)] * 4)


def test_it_says_of_itself_what_task_and_channel_say(tfbind8: TFBind8) -> None:
    environment = SequenceEnvironment(tfbind8, uniform_slip(4, 0.25))
    assert environment.describe() == {"task": tfbind8.name, "noise": 0.25}
    assert (environment.num_actions, environment.num_outcomes, environment.max_steps) == (4, 4, 8)
    assert environment.is_tree
    assert environment.enumerable
    assert environment.mode_threshold == tfbind8.mode_threshold
    assert (environment.noisy, environment.padding, environment.mask, environment.rules) == (False, None, None, None)
    assert SequenceEnvironment(with_noise(tfbind8, "gaussian:0.1"), uniform_slip(4, 0.25)).noisy


def test_its_dynamics_are_the_matrices_of_the_channel(tfbind8: TFBind8) -> None:
    found = SequenceEnvironment(tfbind8, positional(MATRICES)).dynamics
    torch.testing.assert_close(found, MATRICES, atol=1e-12, rtol=0)


def test_outcomes_come_as_often_as_the_dynamics_say(tfbind8: TFBind8) -> None:
    environment, num = SequenceEnvironment(tfbind8, positional(MATRICES)), 20_000
    episodes = environment.begin(num, RandomStreams(0))
    assert episodes.going is None
    for time in range(8):
        intended = time % 4
        outcomes = episodes.step(np.full(num, intended), time)
        found = np.bincount(outcomes, minlength=4) / num
        for share, expected in zip(found, environment.dynamics[time, intended].tolist(), strict=True):
            assert abs(share - expected) <= 5 * math.sqrt(expected * (1 - expected) / num)


def test_without_noise_nothing_is_drawn_and_what_is_intended_comes(tfbind8: TFBind8) -> None:
    generators = RandomStreams(0)
    before = generators["channel"].get_state()
    episodes = SequenceEnvironment(tfbind8, noiseless(4)).begin(5, generators)
    intended = np.array([0, 1, 2, 3, 0])
    assert episodes.step(intended, 0).tolist() == intended.tolist()
    assert torch.equal(generators["channel"].get_state(), before)


def test_objects_are_what_came_and_a_row_spells_them_out(tfbind8: TFBind8, generator: torch.Generator) -> None:
    environment = SequenceEnvironment(tfbind8, uniform_slip(4, 0.25))
    outcomes, valid = tfbind8.alphabet.encode(["ACGTACGT", "TTTTTTTT"]), torch.ones(2, 8, dtype=torch.bool)
    made = environment.made(outcomes, valid)
    assert torch.equal(environment.designs(made), outcomes)
    assert torch.equal(environment.score(made), tfbind8.score(outcomes))
    assert torch.equal(environment.measure(made, generator), tfbind8.score(outcomes))
    reward = Reward(beta=3.0, floor=1e-6, ramp=0.0)
    assert torch.equal(
        environment.log_reward(made, tfbind8.score(outcomes), reward), reward.log_reward(tfbind8.score(outcomes))
    )
    frame = environment.frame(outcomes.flip(0), outcomes, valid)
    assert frame.to_dict("list") == {"sequence": ["ACGTACGT", "TTTTTTTT"], "intended": ["TTTTTTTT", "ACGTACGT"]}
    assert environment.object_column in frame


def test_constraints_bring_a_mask_and_scores_that_are_free(tfbind8: TFBind8) -> None:
    plain = SequenceEnvironment(tfbind8, uniform_slip(4, 0.25))
    task = ConstrainedTask(tfbind8, ConstraintConfig(forbid=["AA"]))
    environment = SequenceEnvironment(task, uniform_slip(4, 0.25))
    made = tfbind8.alphabet.encode(["AACCCCCC", "ACCCCCCC"])
    assert isinstance(environment.mask, PrefixMask)
    assert environment.mask is environment.mask  # made once
    assert (plain.has_free, environment.has_free) == (False, True)
    assert environment.free(made).tolist() == [True, False]
    assert environment.known(made).tolist() == task.known(made).tolist()
    feasible = environment.feasible(made)
    assert feasible is not None
    assert feasible.tolist() == [False, True]
    assert plain.feasible(made) is None


@pytest.mark.parametrize("name", ["check", "open", "close"])
def test_what_an_oracle_needs_is_passed_on_to_the_task(name: str, tfbind8: TFBind8, tmp_path: Path) -> None:
    called: list[tuple[object, ...]] = []

    class Noted(TFBind8):
        def __init__(self) -> None:
            pass

    setattr(Noted, name, lambda self, *given: called.append(given))
    Noted.name, task = tfbind8.name, Noted()
    given = (tmp_path,) if name == "open" else ()
    getattr(SequenceEnvironment(task, noiseless(4)), name)(*given)
    assert called == [given]

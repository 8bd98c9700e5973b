"""What every environment has by default."""

from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from stochflow.environments.base import Environment, Episodes, Ints, Streams
from stochflow.environments.rewards import Reward
from stochflow.sampling.rollout import rollout


class CoinEpisodes(Episodes):
    """Outcomes are a sum modulo two of the intention and a coin."""

    def __init__(self, coins: Ints) -> None:
        self._coins = coins

    def step(self, intentions: Ints, time: int) -> Ints:
        return (intentions + self._coins[time]) % 2


class Coins(Environment):
    """Three coins that are turned or left: an environment that is neither of the two families."""

    name, noise = "coins", "a coin"
    num_actions = num_outcomes = 2
    max_steps = 3
    is_tree = enumerable = False
    mode_threshold = 2.5

    @property
    def dynamics(self) -> Tensor:
        return torch.full((3, 2, 2), 0.5, dtype=torch.float64)

    def begin(self, num: int, streams: Streams) -> Episodes:
        return CoinEpisodes(torch.randint(2, (3, num), generator=streams["channel"]).numpy())

    def made(self, outcomes: Tensor, valid: Tensor) -> Tensor:
        return outcomes.sum(dim=1)

    def measure(self, made: Tensor, generator: torch.Generator) -> Tensor:
        return self.score(made)

    def score(self, made: Tensor) -> Tensor:
        return made.double()

    def frame(self, intentions: Tensor, outcomes: Tensor, valid: Tensor) -> pd.DataFrame:
        return pd.DataFrame({"object": outcomes.sum(dim=1)})


class Always:
    """Intends 0 and knows nothing."""

    def log_policy(self) -> np.ndarray:
        return np.log(np.tile([1.0, 1e-30], (64, 1)))

    def allowed(self) -> None:
        return None

    def advance(self, outcomes: Ints) -> None:
        pass


def test_defaults_are_those_of_scores_that_cost_nothing_and_objects_without_letters(tmp_path: Path) -> None:
    coins, made = Coins(), torch.tensor([0, 3])
    assert coins.known(made).tolist() == [True, True]
    assert coins.free(made).tolist() == [False, False]
    assert coins.feasible(made) is coins.designs(made) is coins.modes_reached(made) is None
    assert (coins.noisy, coins.has_free, coins.padding, coins.object_column) == (False, False, None, "object")
    assert coins.describe() == {"task": "coins", "noise": "a coin"}
    reward = Reward(beta=2.0, floor=0.1, ramp=0.0)
    torch.testing.assert_close(
        coins.log_reward(made, coins.score(made), reward).exp(), torch.tensor([0.1, 9.0]).double()
    )
    coins.check()
    coins.open(tmp_path)
    coins.close()
    assert list(tmp_path.iterdir()) == []


def test_an_environment_of_ones_own_is_walked_by_the_same_rollout() -> None:
    streams = {name: torch.Generator().manual_seed(seed) for seed, name in enumerate(("policy", "channel"))}
    walk = rollout(Coins(), Always(), 64, streams)
    coins = torch.randint(2, (3, 64), generator=torch.Generator().manual_seed(1))
    assert not bool(walk.intentions.any())
    assert torch.equal(walk.outcomes, coins.T)
    assert bool(walk.valid.all())

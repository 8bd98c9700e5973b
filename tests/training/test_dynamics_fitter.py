"""What the settings of the fitting of P̂ say is what it does."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from stochflow.config.schema import DynamicsConfig
from stochflow.models.dynamics.tabular import DynamicsModel
from stochflow.sampling.trajectories import Trajectories
from stochflow.training.dynamics_fitter import GradientFitter

K, LENGTH = 3, 4


class Replay:
    """Remembers how many trajectories were asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def encode(self, num_tokens: int) -> None:
        pass

    def sample_codes(self, rounds: int, num: int, generator: torch.Generator) -> Any:
        self.asked += [num] * rounds
        drawn = torch.randint(K * K, (rounds, num, LENGTH), generator=generator)
        return drawn.numpy(), None

    def sample(self, num: int, generator: torch.Generator) -> Trajectories:
        self.asked.append(num)
        return batch(num, generator)


def batch(num: int, generator: torch.Generator) -> Trajectories:
    intentions = torch.randint(K, (num, LENGTH), generator=generator)
    valid = torch.ones(num, LENGTH, dtype=torch.bool)
    return Trajectories(intentions, intentions, valid, torch.zeros(num, dtype=torch.float64), torch.zeros(num, LENGTH))


def fitter(depends_on: str, config: DynamicsConfig) -> tuple[GradientFitter, Replay]:
    torch.manual_seed(0)
    learner = SimpleNamespace(
        dynamics=DynamicsModel(K, LENGTH, depends_on),  # type: ignore[arg-type]
        network=SimpleNamespace(num_tokens=K, length=LENGTH, reads_history=False),
        replay=Replay(),
        generators={"replay": torch.Generator().manual_seed(1)},
        device=torch.device("cpu"),
    )
    return GradientFitter(learner, config), learner.replay  # type: ignore[arg-type]


@pytest.mark.parametrize("depends_on", ["intention", "state"])
def test_so_many_trajectories_are_drawn_as_the_settings_say(depends_on: str) -> None:
    config = DynamicsConfig(off_policy=True, sample_size=37, rounds=2)
    made, replay = fitter(depends_on, config)
    made.fit(batch(8, torch.Generator().manual_seed(2)), 0.0)
    assert replay.asked == [37, 37]


@pytest.mark.parametrize("depends_on", ["intention", "state"])
def test_gradients_are_clipped_where_the_settings_say(depends_on: str) -> None:
    def moved(clip: float) -> torch.Tensor:
        made, _ = fitter(depends_on, DynamicsConfig(off_policy=False, clip=clip, learning_rate=1e-3))
        made._learner.dynamics.start(0.9)  # type: ignore[union-attr]  # or the first batch would say where P̂ begins
        before = torch.cat([weight.detach().flatten().clone() for weight in made._learner.dynamics.parameters()])  # type: ignore[union-attr]
        made.fit(batch(64, torch.Generator().manual_seed(2)), 0.0)
        after = torch.cat([weight.detach().flatten() for weight in made._learner.dynamics.parameters()])  # type: ignore[union-attr]
        return after - before

    # Adam divides by the size of gradients: only one that is clipped below its epsilon moves weights less
    free, clipped = moved(1e6), moved(1e-12)
    assert clipped.abs().max() < 0.1 * free.abs().max()

"""The genetic algorithm: only survivors have children."""

from collections.abc import Callable

import torch

from stochflow.experiments.experiment import Experiment
from stochflow.objectives.baselines.genetic import Genetic


def test_only_the_best_have_children(tiny: Callable[..., Experiment], generator: torch.Generator) -> None:
    trainer = tiny("genetic", population={"survivors": 2, "mutations": 1e-9, "crossover": 0.5}).trainer
    assert isinstance(trainer.objective, Genetic)
    paid = torch.tensor([[0, 0, 0], [1, 1, 1], [2, 2, 2]])
    trainer.learner.memory.pay(paid, lambda made: 1.0 + (made[:, 0] % 2) + (made[:, 0] == 2))
    children = trainer.objective.propose(200, generator)
    assert children.shape == (200, 3)
    assert set(children.unique().tolist()) == {1, 2}
    assert len(children.unique(dim=0)) == 8  # all that two parents can recombine to

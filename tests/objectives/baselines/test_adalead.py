"""AdaLead: parents near the best, rollouts while the surrogate expects no less, and the best predictions first."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from stochflow.core.errors import ConfigError
from stochflow.experiments.experiment import Experiment
from stochflow.objectives.baselines.adalead import AdaLead, paired
from stochflow.surrogates.kmer_ridge import KmerRidge

RIDGE = {"surrogate": "kmer-ridge"}


class Counted(KmerRidge):
    """Expects the sum of the letters, and remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__(3, 3)
        self.fitted, self.asked = 0, [torch.empty(0, 3, dtype=torch.int64)]

    def fit(self, tokens: Tensor, scores: Tensor, variances: Tensor | None = None) -> None:
        self.fitted = len(tokens)

    def predict_mean(self, tokens: Tensor) -> Tensor:
        self.asked.append(tokens)
        return tokens.sum(dim=1).double()


def adalead_of(experiment: Experiment) -> AdaLead:
    objective = experiment.trainer.objective
    assert isinstance(objective, AdaLead)
    return objective


def pay(experiment: Experiment, paid: list[list[int]], scores: list[float]) -> None:
    for design, score in zip(paid, scores, strict=True):
        experiment.trainer.learner.memory.pay(torch.tensor([design]), lambda made, score=score: torch.tensor([score]))


def test_pairs_exchange_letters_and_lose_none(generator: torch.Generator) -> None:
    parents = torch.arange(5).unsqueeze(1).expand(5, 40)
    children = paired(parents, 0.3, generator)
    assert torch.equal(children.sort(dim=0).values, parents)
    kinds = sorted(len(child.unique()) for child in children)
    assert kinds == [1, 2, 2, 2, 2]


def test_parents_score_nearly_as_much_as_the_best(tiny: Callable[..., Experiment], generator: torch.Generator) -> None:
    experiment = tiny("adalead", population={**RIDGE, "threshold": 0.1, "crossover": 0.0, "mutations": 1e-9})
    pay(experiment, [[0, 0, 0], [1, 1, 1], [2, 2, 2]], [1.0, 0.91, 0.89])
    # without mutations there is nothing new, and what is left to make are the parents
    proposed = adalead_of(experiment).propose(7, generator)
    assert proposed[:, 0].bincount(minlength=3).sort().values.tolist() == [0, 3, 4]
    assert 2 not in proposed


def test_the_best_predicted_new_designs_are_made(
    tiny: Callable[..., Experiment], monkeypatch: pytest.MonkeyPatch, generator: torch.Generator
) -> None:
    experiment = tiny("adalead", population={**RIDGE, "screened": 30})
    pay(experiment, [[0, 0, 0], [2, 2, 2]], [1.0, 0.1])
    surrogate = Counted()
    monkeypatch.setattr(AdaLead, "_surrogate", lambda self: surrogate)
    proposed = adalead_of(experiment).propose(4, generator)
    assert surrogate.fitted == 2
    # the best design was paid for; the three next to it have one letter less
    assert sorted(proposed.sum(dim=1).tolist()) == [4, 5, 5, 5]
    assert len(proposed.unique(dim=0)) == 4
    num_asked = sum(map(len, surrogate.asked))
    assert 4 * 30 <= num_asked < 4 * 30 + 2 * 20  # a step of all rollouts is not divided


def test_a_rollout_ends_where_less_is_expected(
    tiny: Callable[..., Experiment], monkeypatch: pytest.MonkeyPatch, generator: torch.Generator
) -> None:
    experiment = tiny("adalead", population={**RIDGE, "screened": 10, "mutations": 1.0})
    pay(experiment, [[1, 1, 1], [0, 0, 0]], [1.0, 0.1])
    surrogate, followed = Counted(), []
    population = adalead_of(experiment)
    mutants = population.mutants

    def watched(parents: Tensor, *given: object) -> tuple[Tensor, Tensor]:
        followed.append(parents)
        return mutants(parents, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(AdaLead, "_surrogate", lambda self: surrogate)
    monkeypatch.setattr(population, "mutants", watched)
    population.propose(8, generator)
    nodes = torch.cat(followed)
    assert int(nodes.sum(dim=1).min()) == 3  # as much as the root, and never less
    assert int(nodes.sum(dim=1).max()) > 3


def test_an_unknown_surrogate_is_refused_at_once(tiny: Callable[..., Experiment]) -> None:
    with pytest.raises(ConfigError, match="unknown surrogate 'oak'; choose one of: kmer-ridge"):
        tiny("adalead", population={"surrogate": "oak"})

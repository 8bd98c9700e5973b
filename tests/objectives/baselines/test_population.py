"""Populations: children of two parents, mutants that are new, and a list of designs in proportion to their rewards."""

import math
from collections.abc import Callable

import pytest
import torch

from stochflow.experiments.experiment import Experiment
from stochflow.objectives.baselines.population import Known, Population, crossed, mutated
from stochflow.objectives.learners import SequenceLearner
from stochflow.sampling.policies import NetworkPolicy, OpenLoopPolicy

METHODS = ["genetic", "adalead"]
RIDGE = {"surrogate": "kmer-ridge"}  # which is fitted in no time


def population_of(experiment: Experiment) -> Population:
    objective = experiment.trainer.objective
    assert isinstance(objective, Population)
    return objective


def test_a_child_changes_parents_at_the_given_rate(generator: torch.Generator) -> None:
    first, second = torch.zeros(4000, 5), torch.ones(4000, 5)
    child = crossed(first, second, 0.2, generator)
    # it is with the other parent after an odd number of changes: (1 − (1 − 2·0.2)^n)/2
    expected = torch.tensor([(1.0 - 0.6**n) / 2.0 for n in range(1, 6)])
    assert (child.mean(dim=0) - expected).abs().max() < 5.0 * 0.5 / 4000**0.5
    assert torch.equal(crossed(first, second, 0.0, generator), first)


def test_every_letter_is_replaced_by_another_one_at_the_given_rate(generator: torch.Generator) -> None:
    parents = torch.randint(4, (2000, 6), generator=generator)
    shifts = (mutated(parents, 4, 0.3, generator) - parents) % 4
    shares = shifts.flatten().bincount(minlength=4) / shifts.numel()
    assert (shares - torch.tensor([0.7, 0.1, 0.1, 0.1])).abs().max() < 5.0 * 0.5 / shifts.numel() ** 0.5
    assert bool((mutated(parents, 4, 1.0, generator) != parents).all())


def test_what_was_paid_for_or_added_is_not_new() -> None:
    known = Known(torch.tensor([[0, 1, 2]]))
    assert known.added(torch.tensor([[0, 1, 2], [2, 2, 2], [2, 2, 2]])).tolist() == [False, True, False]
    assert known.added(torch.tensor([[2, 2, 2], [0, 0, 0]])).tolist() == [False, True]


def test_mutants_are_new_as_long_as_there_are_new_ones(
    tiny: Callable[..., Experiment], generator: torch.Generator
) -> None:
    population = population_of(tiny("genetic"))
    parents = torch.zeros(40, 3, dtype=torch.int64)
    children, new = population.mutants(parents, Known(parents[:1]), generator)
    assert len(children[new].unique(dim=0)) == int(new.sum()) <= 26
    assert int(new.sum()) > 15
    everything = torch.cartesian_prod(*[torch.arange(3)] * 3)
    assert not population.mutants(parents, Known(everything), generator)[1].any()


@pytest.mark.parametrize("method", METHODS)
def test_a_first_batch_is_anything_and_the_next_has_children_of_it(
    method: str, tiny: Callable[..., Experiment]
) -> None:
    experiment = tiny(method, optimiser={"batch_size": 4}, channel={"kind": "none"}, population=RIDGE)
    assert isinstance(experiment.policy, NetworkPolicy)
    trainer = experiment.trainer
    first = trainer.collect()
    assert torch.equal(first.intentions, first.outcomes)
    second = trainer.collect()
    assert trainer.learner.memory.num_calls == len(torch.cat([first.outcomes, second.outcomes]).unique(dim=0))
    assert not (second.outcomes.unsqueeze(1) == first.outcomes).all(dim=-1).any()  # none is paid for twice
    assert "loss" not in trainer.train_step()


def test_where_all_designs_are_known_some_are_made_again(tiny: Callable[..., Experiment]) -> None:
    for method in METHODS:
        trainer = tiny(method, optimiser={"batch_size": 40}, channel={"kind": "none"}, population=RIDGE).trainer
        assert isinstance(trainer.learner, SequenceLearner)
        everything = torch.cartesian_prod(*[torch.arange(3)] * 3)
        trainer.learner.memory.pay(everything, trainer.learner.environment.score)
        assert trainer.collect().outcomes.shape == (40, 3)


@pytest.mark.parametrize("method", METHODS)
def test_a_few_generations_score_more_than_the_first(method: str, trained: Callable[..., Experiment]) -> None:
    settings = {"task": "tfbind8", "channel": {"noise": 0.1}, "budget": {"oracle_calls": 160}}
    learner = trained(method, **settings, optimiser={"batch_size": 40}).trainer.learner
    assert isinstance(learner, SequenceLearner)
    scores = learner.memory.scores
    # means of 40 uniform designs differ by 0.02 or so
    assert float(scores[-40:].mean()) > float(scores[:40].mean()) + 0.1


def test_paid_designs_are_listed_in_proportion_to_their_rewards(tiny: Callable[..., Experiment]) -> None:
    experiment = tiny("genetic", channel={"kind": "none"}, population={"kept": 5}, optimiser={"batch_size": 12})
    experiment.trainer.train_step()
    memory, reward = experiment.trainer.learner.memory, experiment.trainer.learner.reward
    policy = experiment.policy
    assert isinstance(policy, OpenLoopPolicy)
    assert len(policy.sequences) == 5
    scores = memory.lookup(policy.sequences)
    rewards = reward.log_reward(scores).exp()
    torch.testing.assert_close(policy.counts, rewards / rewards.sum())
    population = population_of(experiment)
    best = population.best(100)[1]
    assert torch.equal(best[:5].sort().values, scores.sort().values)
    assert population.log_z() == pytest.approx(float(reward.log_reward(best).logsumexp(dim=0)))


def test_without_noise_the_policy_has_the_largest_j_that_a_list_can_have(tiny: Callable[..., Experiment]) -> None:
    experiment = tiny("genetic", channel={"kind": "none"}, optimiser={"batch_size": 10}).train()
    assert experiment.truth is not None
    verdict = experiment.truth.evaluate(experiment.policy)
    assert experiment.truth.attainable.log_z - verdict["kl"] == pytest.approx(population_of(experiment).log_z())
    assert math.isfinite(verdict["regret"])


def test_of_equal_designs_the_latest_come_first(tiny: Callable[..., Experiment]) -> None:
    experiment = tiny("genetic")
    memory = experiment.trainer.learner.memory
    for letter, score in ((0, 1.0), (1, 2.0), (2, 1.0)):
        memory.pay(torch.full((1, 3), letter), lambda made, score=score: torch.full((len(made),), score))
    designs, scores = population_of(experiment).best(3)
    assert (designs[:, 0].tolist(), scores.tolist()) == ([1, 2, 0], [2.0, 1.0, 1.0])

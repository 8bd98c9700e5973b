"""The plan on k-mers: nearly the optimum where log R is a sum over k-mers, and its state."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from stochflow.core.errors import ConfigError
from stochflow.environments.registry import TASKS
from stochflow.environments.sequences.task import Alphabet, Task
from stochflow.experiments.experiment import Experiment
from stochflow.objectives.baselines.kmer_plan import KmerPlan
from stochflow.sampling.policies import MarkovPolicy, NetworkPolicy

PAIRS = torch.randn(6, 3, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


class Pairs(Task):
    """log score is a sum over pairs of neighbours."""

    name = "pairs"
    alphabet = Alphabet("ABC")
    length = 7
    mode_threshold = 0.9
    description = "neighbours"

    def score(self, tokens: Tensor) -> Tensor:
        terms = [PAIRS[t, tokens[:, t], tokens[:, t + 1]] for t in range(6)]
        return torch.stack(terms).sum(dim=0).sub(6.0).exp()


def plan_of(experiment: Experiment) -> KmerPlan:
    objective = experiment.trainer.objective
    assert isinstance(objective, KmerPlan)
    return objective


def regret_of(experiment: Experiment) -> float:
    assert experiment.truth is not None
    return experiment.truth.evaluate(experiment.policy)["regret"]


@pytest.fixture
def pairs(monkeypatch: pytest.MonkeyPatch, trained: Callable[..., Experiment]) -> Callable[..., Experiment]:
    """A trained experiment on neighbours; R is the score, and the floor is out of the way."""
    monkeypatch.setitem(TASKS, "pairs", Pairs)
    settings: dict[str, Any] = {"task": "pairs", "reward": {"beta": 1.0, "floor": 1e-30}}
    budget = {"optimiser": {"batch_size": 100}, "budget": {"trajectories": 1000}}
    return lambda **changes: trained("kmer-plan", **{**settings, **budget, **changes})


def test_the_plan_is_nearly_the_optimum_where_log_r_is_a_sum_over_kmers(pairs: Callable[..., Experiment]) -> None:
    experiment = pairs()
    assert experiment.truth is not None
    assert 0.0 <= regret_of(experiment) < 0.005
    best = experiment.truth.attainable
    assert plan_of(experiment).log_z() == pytest.approx(best.log_z - best.min_kl, abs=0.05)
    # single letters cannot say it
    assert regret_of(pairs(plan={"kmer": 1})) > 0.3


def test_a_learned_channel_is_planned_with(pairs: Callable[..., Experiment]) -> None:
    assert regret_of(pairs(dynamics={"kind": "learned"})) < 0.02


def test_the_policy_is_the_plan_and_batches_follow_it(tiny: Callable[..., Experiment]) -> None:
    experiment = tiny("kmer-plan")
    assert isinstance(experiment.policy, NetworkPolicy)  # uniform before the first plan
    experiment.trainer.train_step()
    policy = experiment.policy
    assert isinstance(policy, MarkovPolicy)
    assert [len(table) for table in policy.tables] == [1, 3, 9]
    plan_of(experiment).policies[0] = torch.tensor([[0.9, 0.1, 0.0]], dtype=torch.float64)
    intended = torch.from_numpy(experiment.trainer.objective.sampler(2).log_policy()).exp()
    torch.testing.assert_close(intended, torch.tensor([[0.9, 0.1, 0.0]]).double().expand(2, 3))


def test_a_plan_is_made_when_enough_was_paid_for(tiny: Callable[..., Experiment]) -> None:
    experiment = tiny("kmer-plan", plan={"growth": 1.5, "every": 1.0}, budget={"steps": 1000})
    trainer, objective = experiment.trainer, plan_of(experiment)
    objective.replan = lambda: made.append(len(trainer.learner.memory))  # type: ignore[method-assign]
    made: list[int] = []
    everything = torch.cartesian_prod(*[torch.arange(3)] * 3)
    for num in (4, 5, 7, 8, 11):
        trainer.learner.memory.pay(everything[:num], experiment.environment.score)
        list(objective.updates(trainer.learner.replay.newest(0), 0, 0.0))  # type: ignore[arg-type]
    assert made == [4, 7, 11]


def test_dynamics_of_whole_prefixes_are_refused(tiny: Callable[..., Experiment]) -> None:
    with pytest.raises(ConfigError, match=r"set dynamics\.depends_on to position"):
        tiny("kmer-plan", dynamics={"kind": "learned", "depends_on": "state"})


def test_a_plan_is_kept_with_its_state_whatever_the_channel_is_now(tiny: Callable[..., Experiment]) -> None:
    experiment = tiny("kmer-plan")
    experiment.trainer.train_step()
    noisier = tiny("kmer-plan", channel={"noise": 0.9})
    noisier.trainer.load_state_dict(experiment.trainer.state_dict())
    for found, expected in zip(plan_of(noisier).policies, plan_of(experiment).policies, strict=True):
        assert torch.equal(found, expected)
    assert plan_of(noisier).log_z() == plan_of(experiment).log_z()
    empty = tiny("kmer-plan")
    empty.trainer.load_state_dict(tiny("kmer-plan").trainer.state_dict())
    assert isinstance(empty.policy, NetworkPolicy)

"""Forward and reverse KL to a surrogate: gradients, minimum, and which share of the updates they have."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from stochflow.config.layers import resolve
from stochflow.core.codes import decode
from stochflow.core.logspace import log_marginal, pick
from stochflow.environments.registry import TASKS
from stochflow.environments.sequences.task import Alphabet, Task
from stochflow.experiments.build import build
from stochflow.experiments.experiment import Experiment
from stochflow.models.evaluation import AlongPaths
from stochflow.objectives import imagined_kl
from stochflow.objectives.imagined_kl import ImaginedKL
from stochflow.objectives.planned_kl import PlannedKL

LOG_REWARDS = 2.0 * torch.randn(27, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
EVERYTHING = decode(torch.arange(27), 3, 3)
SETTINGS: dict[str, Any] = {
    "seed": 2,
    "device": "cpu",
    "channel": {"kind": "uniform-slip", "noise": 0.25},
    "reward": {"beta": 1.0},
    "model": {"width": 32},
    "dynamics": {"kind": "known"},
    "imagination": {"updates": 8, "num_chains": 16, "moves": 10, "rows": 16, "candidates": 4},
    "optimiser": {"batch_size": 32, "updates": 4, "learning_rate": 5e-3},
    "budget": {"steps": 4},
}


class Tiny(Task):
    """Three letters, three steps, random rewards."""

    name, alphabet, length, mode_threshold = "tiny", Alphabet("ABC"), 3, 0.9
    description = "27 random scores."

    def score(self, tokens: Tensor) -> Tensor:
        return LOG_REWARDS[(tokens * torch.tensor([9, 3, 1])).sum(dim=-1)].exp()


class Long(Task):
    """Twenty letters and a score for every A among them."""

    name, alphabet, length, mode_threshold = "long", Alphabet("ACGT"), 20, 0.9
    description = "Share of A."

    def score(self, tokens: Tensor) -> Tensor:
        return (tokens == 0).double().mean(dim=-1) + 0.01


class Wide(Long):
    """The same with forty letters."""

    name, alphabet, length = "wide", Alphabet("".join(chr(ord("0") + number) for number in range(40))), 12


@pytest.fixture(autouse=True)
def _tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASKS, "tiny", Tiny)
    monkeypatch.setitem(TASKS, "long", Long)
    monkeypatch.setitem(TASKS, "wide", Wide)


def made(task: str, **settings: Any) -> Experiment:
    return build(resolve([SETTINGS, {"task": task}, settings]))


def imagined_of(experiment: Experiment, log_rewards: Tensor | None = None) -> ImaginedKL:
    objective = experiment.trainer.objective
    assert isinstance(objective, PlannedKL)
    found = objective.imagined
    if log_rewards is not None:
        found.log_reward = lambda tokens: log_rewards[(tokens * torch.tensor([9, 3, 1])).sum(dim=-1)]  # type: ignore[method-assign]
    return found


def gradients(experiment: Experiment) -> Tensor:
    weights = list(experiment.trainer.learner.network.parameters())
    found = torch.cat([torch.zeros_like(w).flatten() if w.grad is None else w.grad.flatten() for w in weights])
    for weight in weights:
        weight.grad = None
    return found.clone()


def shaken(experiment: Experiment, generator: torch.Generator) -> None:
    """Weights at which nothing is zero by symmetry."""
    with torch.no_grad():
        for weight in experiment.trainer.learner.network.parameters():
            weight.add_(0.2 * torch.randn(weight.shape, generator=generator))


def log_probs(experiment: Experiment, tokens: Tensor) -> Tensor:
    """log M(x_t|s_t) by autograd, whose sum is log P_π(x); [n, L]."""
    learner = experiment.trainer.learner
    heads = learner.network.evaluate(AlongPaths(tokens, torch.ones_like(tokens, dtype=torch.bool))).heads()
    matrices = learner.log_dynamics_of(tokens)  # type: ignore[attr-defined]
    return pick(log_marginal(heads.log_policy, matrices), tokens)


def test_the_gradient_of_forward_kl_is_that_of_the_likelihood(
    generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imagined_kl, "_STRAYING", 0.0)
    experiment = made("tiny")
    shaken(experiment, generator)
    designs = torch.randint(3, (40, 3), generator=generator)
    given = torch.randint(3, (40,), generator=generator)
    terms = imagined_of(experiment).forward_terms(designs, given)
    terms["loss"].backward()
    found = gradients(experiment)
    drawn = torch.arange(3) >= given.unsqueeze(1)
    expected = -(log_probs(experiment, designs) * drawn).sum(dim=-1).mean()
    expected.backward()
    assert math.isclose(float(terms["loss"]), expected.item(), rel_tol=1e-5)
    torch.testing.assert_close(found, gradients(experiment), atol=1e-6, rtol=1e-4)


def test_the_gradient_of_reverse_kl_points_where_the_exact_one_does(generator: torch.Generator) -> None:
    experiment = made("tiny")
    shaken(experiment, generator)
    imagined = imagined_of(experiment, LOG_REWARDS)
    total = torch.zeros(())
    for _ in range(20):
        imagined.reverse_terms(2000)["loss"].backward()
        total = total + gradients(experiment)
    logs = log_probs(experiment, EVERYTHING).sum(dim=-1)
    (logs.exp() * (logs - LOG_REWARDS.float())).sum().backward()
    exact = gradients(experiment)
    # the flow head has a loss of its own
    moved = exact != 0
    cosine = torch.nn.functional.cosine_similarity(total[moved], exact[moved], dim=0)
    assert float(cosine) > 0.95


def test_imagined_updates_alone_reach_the_attainable_optimum(generator: torch.Generator) -> None:
    experiment = made("tiny")
    imagined, trainer = imagined_of(experiment, LOG_REWARDS), experiment.trainer
    assert experiment.truth is not None
    before = experiment.truth.evaluate(experiment.policy)["regret"]
    for update in range(300):
        trainer.optimizer.step(imagined.reverse_terms(256)["loss"], 1e-2 * (1 - update / 300))
    after = experiment.truth.evaluate(experiment.policy)["regret"]
    assert after < 0.02 < before


def test_a_small_world_is_planned_alone() -> None:
    experiment = made("tiny")
    experiment.trainer.train_step()
    objective = experiment.trainer.objective
    assert isinstance(objective, PlannedKL)
    assert objective.planned_share == 1.0
    assert not len(objective.imagined.chains.states)


def test_a_long_world_is_learned_from_the_surrogate() -> None:
    experiment = made("long")
    experiment.trainer.train_step()
    record = experiment.trainer.train_step()
    objective = experiment.trainer.objective
    assert isinstance(objective, PlannedKL)
    assert objective.planned_share == 0.0
    assert "forward_kl_loss" in record
    assert "kl_loss" not in record


def test_the_surrogate_can_be_turned_off() -> None:
    experiment = made("long", imagination={"updates": 0})
    record = experiment.trainer.train_step()
    assert "forward_kl_loss" not in record
    assert "kl_loss" in record


def test_a_plan_that_cannot_count_is_not_made_and_nothing_else_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    without = made("wide")
    records = [without.trainer.train_step() for _ in range(3)]
    monkeypatch.setattr("stochflow.objectives.planned_kl.least_unplanned_nats", lambda *_: 0.0)
    planned = made("wide")
    for record in records:
        expected = planned.trainer.train_step()
        assert {**record, "seconds": 0.0} == {**expected, "seconds": 0.0}
    plans = [experiment.trainer.objective.plan is not None for experiment in (without, planned)]  # type: ignore[attr-defined]
    assert plans == [False, True]
    memories = [experiment.trainer.learner.memory.sequences for experiment in (without, planned)]  # type: ignore[attr-defined]
    assert torch.equal(*memories)


def test_many_letters_are_planned_where_nothing_else_is_learned_from() -> None:
    experiment = made("wide", imagination={"updates": 0})
    experiment.trainer.train_step()
    assert experiment.trainer.objective.plan is not None  # type: ignore[attr-defined]


@pytest.mark.parametrize("task", ["long", "wide"])
def test_a_long_world_goes_on_where_a_checkpoint_was_written(task: str) -> None:
    ahead = made(task)
    for _ in range(2):
        ahead.trainer.train_step()
    state = {name: tensor.clone() for name, tensor in ahead.trainer.state_dict().items()}
    behind = made(task)
    behind.trainer.load_state_dict(state)
    for _ in range(2):
        first, second = ahead.trainer.train_step(), behind.trainer.train_step()
        first.pop("seconds"), second.pop("seconds")
        assert first == second
    assert torch.equal(ahead.trainer.learner.memory.sequences, behind.trainer.learner.memory.sequences)  # type: ignore[attr-defined]


def test_half_of_the_designs_are_intended_near_the_best(generator: torch.Generator) -> None:
    experiment = made("long", imagination={"near": 0.5, **SETTINGS["imagination"]})
    experiment.trainer.train_step()
    objective = experiment.trainer.objective
    assert isinstance(objective, PlannedKL)
    parents = objective.imagined.chains.parents
    sampler = objective.sampler(32)
    intended = []
    for _ in range(20):
        intended.append(torch.from_numpy(sampler.log_policy()).argmax(dim=-1))
        sampler.advance(intended[-1].numpy())
    distances = (torch.stack(intended, dim=1)[:16].unsqueeze(1) != parents).sum(dim=-1).amin(dim=1)
    # two crossed parents and 1.5 letters drawn anew: far from twenty random letters, 15 of which would differ
    assert float(distances.double().mean()) < 11


def test_what_other_surrogates_believe_is_tested_too(monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = made("long", imagination={"doubt": 0.25, **SETTINGS["imagination"]})
    experiment.trainer.train_step()
    imagined, judges = imagined_of(experiment), []
    others = imagined.surrogate.unused
    assert others == [imagined.surrogate.members[name] for name in ("convolution", "position-pairs")]

    def near_parents(
        num: int, predicted: partial[Tensor], promise: partial[Tensor], generator: torch.Generator
    ) -> Tensor:
        assert predicted.keywords == promise.keywords
        judges.append((num, promise.keywords["surrogate"]))
        return torch.zeros(num, 20, dtype=torch.int64)

    monkeypatch.setattr(imagined.chains, "near_parents", near_parents)
    imagined.sampler(21, experiment.trainer.learner.network.sampler(30))
    assert judges == [(17, imagined.surrogate), *((2, other) for other in others)]


def test_a_small_budget_is_spent_in_rounds() -> None:
    optimiser = {"batch_size": 512}

    def batch_size(trajectories: int) -> int:
        budget = {"trajectories": trajectories, "steps": None}
        return made("long", budget=budget, optimiser=optimiser).trainer.batch_size

    assert [batch_size(num) for num in (50, 2000, 8000, 32_000)] == [50, 64, 250, 512]


def test_what_is_uncertain_is_worth_a_call(generator: torch.Generator) -> None:
    experiment = made("long", imagination={"optimism": 2.0})
    imagined, designs = imagined_of(experiment), torch.randint(4, (20, 20), generator=generator)
    imagined.surrogate.fit(designs, Long().score(designs))
    prediction = imagined.surrogate.predict(torch.cat([designs[:1], 3 - designs[:1]]))
    torch.testing.assert_close(imagined.promise(torch.cat([designs[:1], 3 - designs[:1]])), prediction.at(2.0))
    assert float(prediction.deviation[1]) > 2.0 * float(prediction.deviation[0])


@pytest.mark.parametrize(("letter", "num_reverse"), [(0, 2), (1, 0)])
def test_reverse_kl_waits_while_the_policy_leaves_out_what_the_chains_visit(letter: int, num_reverse: int) -> None:
    experiment = made("tiny")
    imagined = imagined_of(experiment)
    with torch.no_grad():  # nearly all draws of the policy are A
        experiment.trainer.learner.network.get_parameter("policy_head.bias")[0] = 8.0
    imagined.chains.visited = torch.full((20, 3), letter)
    imagined.chains.given = torch.zeros(20, dtype=torch.int64)
    imagined.chains.held_out = imagined.chains.visited
    terms = list(imagined.updates(8))
    assert sum("imagined_j" in each for each in terms) == num_reverse
    assert sum("forward_kl_loss" in each for each in terms) == 8 - num_reverse


def test_an_intention_that_was_ruled_out_comes_back() -> None:
    experiment = made("tiny")
    imagined, trainer = imagined_of(experiment), experiment.trainer
    bias = trainer.learner.network.get_parameter("policy_head.bias")
    with torch.no_grad():  # A alone is intended; noise excuses that B comes
        bias[0] = 40.0
    designs, given = torch.ones(64, 3, dtype=torch.int64), torch.zeros(64, dtype=torch.int64)
    before = log_probs(experiment, designs).detach().sum(dim=1).mean()
    for _ in range(200):
        trainer.optimizer.step(imagined.forward_terms(designs, given)["loss"], 5e-2)
    after = log_probs(experiment, designs).detach().sum(dim=1).mean()
    assert before < 3 * math.log(0.1)
    assert after > 3 * math.log(0.7)


def test_updates_end_when_held_out_chains_become_less_probable() -> None:
    experiment = made("tiny")
    imagined, trainer = imagined_of(experiment), experiment.trainer
    imagined.chains.visited, imagined.chains.held_out = torch.zeros(20, 3, dtype=torch.int64), torch.ones(4, 3).long()
    imagined.chains.given = torch.zeros(20, dtype=torch.int64)
    imagined._reverse = 0.0
    held_out = []
    for terms in imagined.updates(400):
        held_out.append(float(terms["held_out_cross_entropy"]))
        trainer.optimizer.step(terms["loss"], 1e-3)
    assert 8 < len(held_out) < 400  # several measurements before the end
    assert len(held_out) % 8 == 0
    assert held_out[-1] < min(held_out) + 0.5
    assert float(-log_probs(experiment, torch.ones(1, 3).long()).detach().sum()) > min(held_out) + 0.5

"""Planned values: the targets of the plan, the behaviour that follows it, and a tiny task solved to the end."""

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from stochflow.config.layers import resolve
from stochflow.environments.registry import TASKS
from stochflow.environments.sequences.task import Alphabet, Task
from stochflow.experiments.build import build
from stochflow.experiments.experiment import Experiment
from stochflow.models.evaluation import AtPrefixes, ClosedFormLoss
from stochflow.models.flow_network import FlowNetwork
from stochflow.models.prefix_sampler import NetworkSampler
from stochflow.objectives.entropy import entropy_terms
from stochflow.objectives.planned_kl import PlannedKL
from stochflow.objectives.planning.plan_prefixes import PlanSampler
from stochflow.objectives.planning.plan_states import PlannedStates, draw_states
from stochflow.sampling.prefix_trie import PrefixTrie
from stochflow.training.optimizer import require_finite
from stochflow.truth.prefix_tree import attainable_optimum

SCORES = torch.rand(27, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
SETTINGS = {
    "task": "tiny",
    "seed": 2,
    "device": "cpu",
    "channel": {"kind": "uniform-slip", "noise": 0.25},
    "reward": {"beta": 3.0},
    "model": {"width": 32, "kmers": [1, 2, 3]},
    "dynamics": {"sample_size": 128},
    "optimiser": {"batch_size": 32, "updates": 16},
    "budget": {"steps": 16},
}


class Tiny(Task):
    """Three letters, three steps, random scores; remembers what it was asked."""

    name = "tiny"
    alphabet = Alphabet("ABC")
    length = 3
    mode_threshold = 0.9
    description = "27 random scores."

    def __init__(self) -> None:
        self.asked: Counter[tuple[int, ...]] = Counter()

    def score(self, tokens: Tensor) -> Tensor:
        self.asked.update(tuple(row) for row in tokens.tolist())
        return SCORES[(tokens * torch.tensor([9, 3, 1])).sum(dim=-1)]


@pytest.fixture(autouse=True)
def _tiny_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASKS, "tiny", Tiny)


def tiny_experiment(**changes: Any) -> tuple[Experiment, PlannedKL]:
    experiment = build(resolve([SETTINGS, changes]))
    objective = experiment.trainer.objective
    assert isinstance(objective, PlannedKL)
    return experiment, objective


def pay(experiment: Experiment, tokens: Tensor) -> None:
    experiment.trainer.learner.memory.pay(tokens, experiment.environment.task.score)


def scramble(network: FlowNetwork) -> None:
    """No two prefixes alike, as after training."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for head in (network.policy_head, network.flow_head):
            head.weight.normal_(std=0.3, generator=generator)


# -- states of a level


def test_a_small_level_is_taken_whole_with_its_visits(generator: torch.Generator) -> None:
    visits = torch.tensor([0.5, 0.0, 0.3], dtype=torch.float64)
    for num_rows in (3, 4):
        nodes, weights = draw_states(visits, num_rows, generator)
        assert nodes.tolist() == [0, 1, 2]
        assert torch.equal(weights, visits)


def test_a_large_level_is_drawn_in_proportion_to_visits(generator: torch.Generator) -> None:
    visits = torch.rand(30, dtype=torch.float64, generator=generator)
    visits[7] = 0.0
    visits *= 0.8 / visits.sum()
    num_rounds, num_rows = 400, 25
    counts = torch.zeros(30)
    for _ in range(num_rounds):
        nodes, weights = draw_states(visits, num_rows, generator)
        assert len(nodes) == num_rows
        torch.testing.assert_close(weights, torch.full((num_rows,), 0.8 / num_rows, dtype=torch.float64))
        counts += nodes.bincount(minlength=30)
    num_draws = num_rounds * num_rows
    shares = visits / visits.sum()
    five_sigma = 5.0 * (shares * (1.0 - shares) / num_draws).sqrt()
    assert bool(((counts / num_draws - shares).abs() <= five_sigma).all())
    assert counts[7] == 0


# -- the behaviour


def test_the_behaviour_is_the_plan_where_there_is_one_and_the_network_beyond(generator: torch.Generator) -> None:
    network = build(resolve([SETTINGS])).network
    scramble(network)
    trie = PrefixTrie(3, 3)
    trie.insert(torch.tensor([[0, 0, 0], [0, 1, 2], [2, 2, 2]]))
    logits = [torch.randn(len(table), 3, dtype=torch.float64, generator=generator) for table in trie.children]
    policies = [level.softmax(dim=-1) for level in logits]
    trie.insert(torch.tensor([[0, 2, 1]]))  # after the plan: its nodes have no row in it
    paths = torch.tensor([[0, 1, 2], [1, 0, 0], [0, 2, 1], [2, 2, 0]])
    planned = [[True] * 4, [True, False, True, True], [True, False, False, True]]
    with torch.no_grad():
        beyond = network.evaluate(AtPrefixes(paths)).heads().log_policy.double()
    sampler = PlanSampler(trie, policies, NetworkSampler(network, 4), 4)
    for depth, flags in enumerate(planned):
        log_policy = torch.from_numpy(sampler.log_policy())
        nodes = trie.find(paths[:, :depth])
        for row, in_plan in enumerate(flags):
            expected = policies[depth][nodes[row]].log() if in_plan else beyond[row, depth]
            torch.testing.assert_close(log_policy[row], expected, atol=1e-5, rtol=0)
        sampler.advance(paths[:, depth].numpy())


def test_the_network_is_not_asked_where_all_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    network = build(resolve([SETTINGS])).network
    trie = PrefixTrie(3, 3)
    trie.insert(torch.tensor([[0, 1, 2], [2, 2, 2]]))
    policies = [torch.full((len(table), 3), 1 / 3, dtype=torch.float64) for table in trie.children]
    beyond = NetworkSampler(network, 2)
    asked: list[int] = []
    monkeypatch.setattr(beyond, "log_policy", lambda: asked.append(1) or np.zeros((2, 3), np.float32))
    sampler = PlanSampler(trie, policies, beyond, 2)
    for column in ([0, 2], [1, 1]):  # the second row leaves the plan
        assert np.allclose(sampler.log_policy(), math.log(1 / 3))
        sampler.advance(np.array(column))
    assert not asked
    assert np.allclose(sampler.log_policy(), [[math.log(1 / 3)] * 3, [0.0] * 3])
    assert asked


def test_an_action_that_the_plan_rules_out_stays_finite() -> None:
    experiment, _ = tiny_experiment()
    trie = PrefixTrie(3, 3)
    trie.insert(torch.tensor([[0, 0, 0]]))
    certain = [torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64)] * 3
    log_policy = torch.from_numpy(PlanSampler(trie, certain, NetworkSampler(experiment.network, 2), 2).log_policy())
    assert bool(torch.isfinite(log_policy).all())
    torch.testing.assert_close(log_policy.exp(), certain[0].expand(2, -1))


def test_the_network_samples_until_there_is_a_plan() -> None:
    experiment, objective = tiny_experiment()
    assert isinstance(objective.sampler(4), NetworkSampler)
    pay(experiment, torch.tensor([[0, 1, 2], [2, 2, 1]]))
    objective.replan(step=0)
    assert isinstance(objective.sampler(4), PlanSampler)


def test_the_behaviour_prefers_what_was_not_paid_for_and_the_targets_do_not() -> None:
    experiment, objective = tiny_experiment(plan={"bonus": 3.0}, dynamics={"kind": "known"})
    paid = torch.tensor([[0, 0, 0], [0, 0, 1]])
    pay(experiment, paid)
    objective.replan(step=0)
    assert objective.plan is not None
    node = objective.trie.find(torch.tensor([[0, 0]]))
    eager, sober = objective.behaviour_policies[2][node], objective.plan.policies[2][node]
    assert eager[0, 2] > sober[0, 2] + 0.1
    _, without = tiny_experiment(plan={"bonus": 0.0}, dynamics={"kind": "known"})
    without.learner.memory.pay(paid, Tiny().score)
    without.replan(step=0)
    assert without.plan is not None
    torch.testing.assert_close(without.behaviour_policies, without.plan.policies)


# -- the targets


def test_a_small_tree_is_planned_as_a_whole() -> None:
    experiment, objective = tiny_experiment(dynamics={"kind": "known"})
    learner = experiment.trainer.learner
    scramble(learner.network)
    pay(experiment, torch.tensor([[0, 1, 2], [0, 1, 0], [2, 2, 2]]))
    objective.replan(step=0)
    assert objective.plan is not None
    every = torch.cartesian_prod(*[torch.arange(3)] * 3)
    believed = objective.leaf_model.expected_log_reward(every, learner.reward, 0)
    believed[[3, 5, 26]] = learner.reward.log_reward(SCORES[[3, 5, 26]])
    optimum = attainable_optimum(believed, experiment.environment.channel, 3)
    assert math.isclose(float(objective.plan.values[0]), optimum.value, abs_tol=1e-3)
    assert [len(visits) for visits in objective.plan.visits] == [1, 3, 9]


def test_values_come_from_rewards_the_model_and_the_flow_head() -> None:
    experiment, objective = tiny_experiment(plan={"whole": 0})
    learner = experiment.trainer.learner
    scramble(learner.network)
    pay(experiment, torch.tensor([[0, 1, 2], [0, 1, 0], [2, 2, 2]]))
    objective.replan(step=0)
    assert objective.plan is not None
    trie, values = learner.memory.trie, objective.plan.child_values
    leaf_parent = int(trie.find(torch.tensor([[0, 1]])))
    paid = learner.reward.log_reward(SCORES[[3, 5]])
    torch.testing.assert_close(values[2][leaf_parent, [0, 2]], paid)
    unpaid = objective.leaf_model.expected_log_reward(torch.tensor([[0, 1, 1]]), learner.reward, 0)
    torch.testing.assert_close(values[2][leaf_parent, [1]], unpaid)
    with torch.no_grad():
        flow = learner.network.evaluate(AtPrefixes(torch.tensor([[1]]))).heads().log_flow[0, -1].double()
    torch.testing.assert_close(values[0][0, 1], flow, atol=1e-5, rtol=0)


def test_what_was_paid_counts_also_where_a_small_plan_leaves_it_out() -> None:
    experiment, objective = tiny_experiment(plan={"whole": 0, "max_entries": 18})
    every = torch.cartesian_prod(*[torch.arange(3)] * 3)
    pay(experiment, every)
    objective.replan(step=0)
    assert objective.plan is not None
    assert len(objective.trie.sequences) == 2  # the best and the newest
    parent = int(objective.trie.find(torch.tensor([[2, 2]])))
    paid = experiment.trainer.learner.reward.log_reward(SCORES[24:])
    torch.testing.assert_close(objective.plan.child_values[2][parent], paid)


def test_the_loss_is_the_mean_over_depths_of_the_divergence_at_planned_visits() -> None:
    weights = {"flow_weight": 0.2, "imitation_weight": 0.3}
    experiment, objective = tiny_experiment(dynamics={"kind": "known"}, objective=weights)
    pay(experiment, torch.tensor([[0, 1, 2], [0, 1, 0], [2, 2, 2], [1, 0, 0]]))
    objective.replan(step=0)
    terms, plan = objective.terms(progress=0.0), objective.plan
    assert plan is not None
    # an untrained network is uniform, and so is M; its flows are (3 − t)·log 3
    divergence = flow_error = imitation = 0.0
    for depth in range(3):
        log_targets = torch.log_softmax(plan.child_values[depth], dim=-1)
        gaps = (-math.log(3) - log_targets).mean(dim=-1)
        errors = ((3 - depth) * math.log(3) - plan.values[depth]).square()
        entropies = torch.distributions.Categorical(plan.policies[depth]).entropy()
        divergence += float((plan.visits[depth] * gaps).sum()) / 3
        imitation += float((plan.visits[depth] * (math.log(3) - entropies)).sum()) / 3
        flow_error += float((plan.visits[depth] * errors).sum()) / 3
    assert terms["kl_loss"] == pytest.approx(divergence, rel=1e-5)
    assert terms["flow_loss"] == pytest.approx(flow_error, rel=1e-5)
    assert terms["imitation_loss"] == pytest.approx(imitation, rel=1e-5)
    assert terms["loss"] == pytest.approx(divergence + 0.2 * flow_error + 0.3 * imitation, rel=1e-5)


def test_a_table_per_state_and_a_table_per_depth_give_the_same_loss_and_gradient(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    experiment, objective = tiny_experiment()
    dynamics, network = experiment.trainer.learner.dynamics, experiment.trainer.learner.network
    with torch.no_grad():  # another channel at every depth
        for table in dynamics.parameters():
            table.normal_(generator=torch.Generator().manual_seed(4))
    scramble(network)
    pay(experiment, torch.tensor([[0, 1, 2], [0, 1, 0], [2, 2, 2], [1, 0, 0]]))
    objective.replan(step=0)
    results = []
    monkeypatch.setattr(PlannedKL, "_closed_form_terms", PlannedKL._autograd_terms)
    for limit in (2**20, 0):
        monkeypatch.setattr("stochflow.objectives.planned_kl._MAX_ENTRIES", limit)
        network.zero_grad()
        loss = objective.terms(0.0)["loss"]
        loss.backward()
        weight = network.policy_head.weight.grad
        assert weight is not None
        results.append((loss.detach(), weight.clone()))
    torch.testing.assert_close(*results, atol=1e-6, rtol=0)
    assert float(results[0][1].abs().max()) > 1e-3


@pytest.mark.parametrize("lambdas", [(0.0, 0.0), (0.3, 0.2)])
@pytest.mark.parametrize("num_sequences", [4, 200])  # a few rows, and more than a softmax goes through one by one
def test_the_closed_form_is_the_gradient_of_autograd(
    num_sequences: int, lambdas: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    ratio, dynamics = lambdas
    experiment, objective = tiny_experiment(
        task="tfbind8",
        plan={"rows_per_level": 3 if num_sequences == 4 else 150},
        objective={
            "flow_weight": 0.2,
            "imitation_weight": 0.3,
            "lambda_ratio": ratio,
            "lambda_dynamics": dynamics,
        },
    )
    network = experiment.network
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():  # another channel at every depth
        for weight in (*network.parameters(), *experiment.trainer.learner.dynamics.parameters()):
            weight.add_(0.3 * torch.randn(weight.shape, generator=generator))
        network.get_parameter("body.embedding.weight")[0] = 0.0  # pads
    network.double()
    pay(experiment, torch.randint(4, (num_sequences, 8), generator=generator))
    objective.replan(step=0)
    results = []
    for closed, use_engine in ((True, True), (True, False), (False, True)):
        network.use_engine = use_engine
        if not closed:
            monkeypatch.setattr(PlannedKL, "_closed_form_terms", PlannedKL._autograd_terms)
        objective.learner.generators["replay"].manual_seed(3)
        network.zero_grad()
        terms = objective.terms(progress=0.3)
        loss = terms["loss"]
        assert isinstance(loss, ClosedFormLoss if closed else Tensor)
        loss.backward()
        gradients = {name: weight.grad for name, weight in network.named_parameters() if "backward" not in name}
        results.append((require_finite(terms), gradients))
    for figures, gradients in results[:2]:
        assert figures == pytest.approx(results[2][0], rel=1e-5)
        torch.testing.assert_close(gradients, results[2][1], atol=1e-7, rtol=1e-5)
    assert all(gradient is not None and bool(gradient.any()) for gradient in results[2][1].values())


def test_states_that_are_drawn_several_times_count_as_often(generator: torch.Generator) -> None:
    _, objective = tiny_experiment()
    objective.learner.memory.pay(torch.cartesian_prod(*[torch.arange(3)] * 3), Tiny().score)
    objective.replan(step=0)
    assert objective.plan is not None
    states, num_rows = PlannedStates(objective.plan, objective.trie), 7
    state = generator.get_state()
    drawn = states.draw(num_rows, generator)
    generator.set_state(state)
    firsts = [0, 1, 4]
    for depth, visits in enumerate(objective.plan.visits):
        nodes, weights = draw_states(visits, num_rows, generator)
        here = drawn.depths == depth
        assert drawn.sizes[depth] == int(here.sum()) == len(nodes.unique())
        together = torch.zeros(len(visits)).index_add_(0, nodes, weights.float() / 3)
        torch.testing.assert_close(drawn.weights[here], together[drawn.nodes[here] - firsts[depth]])
        assert torch.equal(drawn.counts[here], nodes.bincount()[drawn.nodes[here] - firsts[depth]])
        prefixes = objective.trie.find(drawn.tokens[here][:, :depth])
        assert torch.equal(prefixes, drawn.nodes[here] - firsts[depth])
    assert drawn.sizes[2] < num_rows  # some were drawn twice
    assert int(drawn.counts.sum()) == 1 + 3 + num_rows


def test_the_entropy_sees_every_draw() -> None:
    experiment, objective = tiny_experiment()
    scramble(experiment.network)
    pay(experiment, torch.cartesian_prod(*[torch.arange(3)] * 3))
    objective.replan(step=0)
    assert objective.plan is not None
    drawn = PlannedStates(objective.plan, objective.trie).draw(7, torch.Generator().manual_seed(1))
    assert int(drawn.counts.max()) > 1
    log_policy = experiment.network.evaluate(AtPrefixes(drawn.tokens, drawn.depths)).heads().log_policy.detach()
    levels = zip(*(column.split(drawn.sizes) for column in (log_policy, drawn.weights, drawn.counts)), strict=True)
    policies, visits = torch.zeros(7, 3, 3), torch.zeros(7, 3)
    for depth, (rows, weights, counts) in enumerate(levels):
        for place, row in enumerate([row for row, count in enumerate(counts.tolist()) for _ in range(count)]):
            policies[place, depth], visits[place, depth] = rows[row], weights[row] / counts[row]
    expected = entropy_terms(policies, visits, objective.learner.config.objective, 0.0)
    torch.testing.assert_close(objective._entropy(log_policy, drawn, 0.0), expected)


def test_neither_the_targets_nor_the_dynamics_are_bent_by_the_policy() -> None:
    experiment, objective = tiny_experiment(dynamics={"depends_on": "state"})
    pay(experiment, torch.tensor([[0, 1, 2], [2, 2, 2]]))
    objective.replan(step=0)
    objective.terms(0.0)["loss"].backward()
    learner = experiment.trainer.learner
    assert all(parameter.grad is None or not parameter.grad.any() for parameter in learner.dynamics.parameters())
    for head in (learner.network.policy_head, learner.network.flow_head):
        assert head.weight.grad is not None
        assert bool(head.weight.grad.any())


def test_terms_need_a_plan() -> None:
    _, objective = tiny_experiment()
    with pytest.raises(RuntimeError, match="replan"):
        objective.terms(0.0)


def test_learning_never_asks_the_oracle() -> None:
    experiment, objective = tiny_experiment()
    task, trainer = experiment.environment.task, experiment.trainer
    assert isinstance(task, Tiny)
    for _ in range(2):
        fresh = trainer.collect()
        before = task.asked.copy()
        assert len(list(objective.updates(fresh, step=0, progress=0.0))) == 16
        assert task.asked == before
    assert set(before.values()) == {1}  # nor is any sequence paid for twice
    assert len(before) == len(trainer.learner.memory)


def test_it_plans_again_when_the_memory_has_grown_or_time_has_passed() -> None:
    experiment, objective = tiny_experiment(
        plan={"growth": 1.5, "every": 0.1}, optimiser={"updates": 1, "batch_size": 8}
    )
    fresh = experiment.trainer.collect()
    plans = []

    def plan_at(progress: float) -> None:
        list(objective.updates(fresh, 0, progress))
        plans.append(objective.plan)

    plan_at(0.0)
    plan_at(0.09)
    assert plans[1] is plans[0]
    plan_at(0.11)
    assert plans[2] is not plans[1]
    plan_at(0.2)
    assert plans[3] is plans[2]
    pay(experiment, experiment.environment.task.all_sequences)
    plan_at(0.2)
    assert plans[4] is not plans[3]


def test_the_tiny_task_is_solved() -> None:
    experiment, objective = tiny_experiment()
    assert experiment.truth is not None
    assert experiment.truth.evaluate(experiment.policy)["regret"] > 0.5
    while not experiment.trainer.finished:
        experiment.trainer.train_step()
    assert -1e-6 < experiment.truth.evaluate(experiment.policy)["regret"] < 0.01
    assert objective.log_z() == pytest.approx(experiment.truth.attainable.value, abs=0.02)


def test_a_restored_objective_goes_on_exactly() -> None:
    # rows are drawn, not all taken; the third step plans again, so that the fourth is not due
    changes = {
        "plan": {"rows_per_level": 2, "growth": 100.0, "every": 0.12},
        "objective": {"lambda_ratio": 0.1},
    }
    experiment, objective = tiny_experiment(**changes)
    for _ in range(3):
        experiment.trainer.train_step()
    saved = {name: tensor.detach().clone() for name, tensor in experiment.trainer.state_dict().items()}
    copy, restored = tiny_experiment(seed=9, **changes)
    copy.trainer.load_state_dict({name: tensor.clone() for name, tensor in saved.items()})
    for _ in range(2):
        expected, terms = objective.terms(0.2), restored.terms(0.2)
        assert terms.keys() == expected.keys()
        assert terms == expected
    assert restored.log_z() == objective.log_z()
    # the next step too: behaviour, fit of the reward model, the decision to plan again
    records = [trainer.train_step() for trainer in (experiment.trainer, copy.trainer)]
    for record in records:
        del record["seconds"]
    assert records[0] == records[1]
    assert restored.log_z() == objective.log_z()


def test_an_objective_without_a_plan_can_be_saved_too() -> None:
    _, objective = tiny_experiment()
    _, restored = tiny_experiment()
    restored.load_state_dict(objective.state_dict())
    assert restored.plan is None
    assert not restored.behaviour_policies
    assert restored.log_z() == pytest.approx(3 * math.log(3), abs=1e-6)

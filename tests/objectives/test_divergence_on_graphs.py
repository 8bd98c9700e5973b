"""The KL objectives where states have several parents: the divergence over episodes, with p_B in its place."""

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from stochflow.core.logspace import masked_log_softmax, safe_log
from stochflow.environments.graphs.environment import nodes_on
from stochflow.environments.graphs.graph import Graph
from stochflow.environments.graphs.hypergrid import hypergrid
from stochflow.objectives.divergence import BootstrappedKL, TrajectoryKL
from stochflow.objectives.entropy import entropy_terms
from stochflow.objectives.planned_graph_kl import PlannedGraphKL
from stochflow.sampling.trajectories import Trajectories
from stochflow.truth.dag import graph_optimum, node_visits, outcome_marginals
from tests.objectives.graph_flows import (
    LOG_Z,
    Tables,
    balanced_learner,
    flow_down,
    flow_up,
    padded,
    posterior_pairs,
    random_pairs,
    scramble,
)
from tests.small_tasks import graph_experiment, graph_learner

TRAJECTORY = {"scope": "trajectory"}
BOOTSTRAPPED = {"scope": "state", "values": "bootstrapped"}


# -- zero at a constructed solution


@pytest.mark.parametrize("noise", [0.0, 0.25])
def test_at_the_optimum_the_residual_of_every_episode_is_log_z(noise: float) -> None:
    graph = hypergrid("2,4", slip=noise)
    best = graph_optimum(graph, graph.scores.log())
    assert best.min_kl < 1e-6  # within reach
    policies = best.log_policy.exp() * graph.valid_actions
    flows = best.visits * math.exp(best.log_z)
    network = Tables(graph, policies, flows, posterior_pairs(graph, policies, graph.dynamics))
    learner, batch = balanced_learner(network, noise, objective=TRAJECTORY)
    objective = TrajectoryKL(learner)
    (terms,) = objective.updates(batch, 0, 0.5)
    assert float(terms["reward_adjusted_diff_std"]) < 1e-3
    assert float(terms["kl_loss"]) < 1e-6
    assert objective.log_z() == pytest.approx(best.log_z, abs=1e-3)
    network.tables = policies, flows, random_pairs(graph)  # with another p_B episodes differ
    (terms,) = objective.updates(batch, 0, 0.5)
    assert float(terms["reward_adjusted_diff_std"]) > 0.05


@pytest.mark.parametrize("way", ["up", "down"])
def test_the_state_scope_costs_nothing_at_balance_and_an_excess_something(way: str) -> None:
    noise = 0.0 if way == "up" else 0.4
    graph = hypergrid("2,4", slip=noise)
    network = flow_up(graph, random_pairs(graph)) if way == "up" else flow_down(graph, realised=False)
    learner, batch = balanced_learner(network, noise, objective=BOOTSTRAPPED)
    objective = BootstrappedKL(learner)
    terms = objective.terms(batch, 0, 0.5)
    assert float(terms["kl_loss"]) == pytest.approx(0.0, abs=1e-6)
    assert float(terms["flow_loss"]) == pytest.approx(0.0, abs=1e-9)
    if way == "down":
        assert objective.log_z() == pytest.approx(LOG_Z)
    network.tables[1][0] *= math.e
    share = len(batch) / float(batch.valid.sum())  # of the steps that leave the root
    terms = objective.terms(batch, 0, 0.5)
    assert float(terms["kl_loss"]) == pytest.approx(share, abs=1e-6)
    assert float(terms["flow_loss"]) == pytest.approx(share, abs=1e-6)


# -- the gradient of the divergence


SMALL = hypergrid("2,2", slip=0.5)
STOP = 2


def every_episode() -> Trajectories:
    """Every way through the small grid, each as often as the world brings it about, four times over.

    At the root a move comes true three times out of four; at the border there is one move left, and nothing slips.
    """
    rows = [([STOP], [STOP])] * 4
    for meant, came in itertools.product(range(2), repeat=2):
        for rest in ([STOP], [1 - came, STOP]):
            rows += [([meant, *rest], [came, *rest])] * (3 if meant == came else 1)
    intentions, outcomes = (
        torch.tensor([row + [0] * (3 - len(row)) for row in part]) for part in zip(*rows, strict=True)
    )
    valid = torch.tensor([[True] * len(meant) + [False] * (3 - len(meant)) for meant, _ in rows])
    made = nodes_on(SMALL, outcomes, valid)[:, -1] - SMALL.num_states
    return Trajectories(intentions, outcomes, valid, SMALL.scores[made], torch.zeros(outcomes.shape))


class Logits(Tables):
    """Tables with a gradient: logits of π, [S, A], and of π_B, [S + X, parents, A]."""

    def __init__(self, graph: Graph, logits: Tensor, pair_logits: Tensor) -> None:
        super().__init__(graph, logits, torch.ones(graph.num_nodes).double(), pair_logits)
        self.logits, self.pair_logits = logits.requires_grad_(), pair_logits.requires_grad_()

    def log_policy(self, hidden: Tensor, states: Tensor) -> Tensor:
        return masked_log_softmax(self.logits[states], self.valid_actions[states])

    def log_backward(self, hidden: Tensor, nodes: Tensor, uniform: bool = False) -> Tensor:
        flat = masked_log_softmax(self.pair_logits.flatten(1)[nodes], self.valid_pairs[nodes])
        return flat.unflatten(-1, (-1, self.num_actions))


def test_the_gradient_is_that_of_the_exact_divergence_where_p_b_is_the_posterior(generator: torch.Generator) -> None:
    assert SMALL.dynamics[0, 0, 0] == 0.75
    logits = torch.randn(SMALL.valid_actions.shape, dtype=torch.float64, generator=generator)
    policies = masked_log_softmax(logits, SMALL.valid_actions).exp() * SMALL.valid_actions
    network = Logits(SMALL, logits, safe_log(posterior_pairs(SMALL, policies, SMALL.dynamics)))
    settings: dict[str, Any] = {"channel": {"noise": 0.5}, "dynamics": {"kind": "known"}}
    # any behaviour will do where it is known: here all intentions are equally frequent
    settings |= {"objective": TRAJECTORY, "exploration": {"epsilon": 1.0}}
    learner = replace(graph_learner(graph_experiment("hypergrid:2,2", **settings)), network=network)
    batch = every_episode()
    (terms,) = TrajectoryKL(learner).updates(batch, 0, 0.5)
    unbiased = (len(batch) - 1) / len(batch)
    found = torch.autograd.grad(terms["kl_loss"], logits, retain_graph=True)[0] * unbiased
    visits = node_visits(SMALL, outcome_marginals(SMALL.dynamics, network.log_policy(logits, torch.arange(4)).exp()))
    log_probs = visits[SMALL.num_states :].log()
    exact = torch.autograd.grad((log_probs.exp() * (log_probs - SMALL.scores.log())).sum(), logits)[0]
    assert exact.abs().max() > 0.05
    torch.testing.assert_close(found, exact, atol=1e-6, rtol=0)
    # and in p_B the divergence is smallest at this posterior
    of_posterior = torch.autograd.grad(terms["backward_loss"], network.pair_logits)[0]
    assert float(of_posterior.abs().max()) < 1e-6


def test_p_b_learns_from_its_own_term_alone(generator: torch.Generator) -> None:
    graph = hypergrid("2,4", slip=0.3)
    logits = torch.randn(graph.valid_actions.shape, dtype=torch.float64, generator=generator)
    pairs = torch.randn(graph.num_nodes, graph.parents.shape[1], graph.num_actions, dtype=torch.float64)
    for kind, objective in ((TrajectoryKL, TRAJECTORY), (BootstrappedKL, BOOTSTRAPPED)):
        experiment = graph_experiment(channel={"noise": 0.3}, objective=objective, optimiser={"updates": 1})
        network = Logits(graph, logits.clone(), pairs.clone())
        learner = replace(graph_learner(experiment), network=network)
        (terms,) = kind(learner).updates(experiment.trainer.collect(), 0, 0.5)
        grad = torch.autograd.grad
        assert not bool(grad(terms["kl_loss"], network.pair_logits, retain_graph=True)[0].any())
        assert not bool(grad(terms["backward_loss"], network.logits, retain_graph=True)[0].any())
        assert float(grad(terms["loss"], network.pair_logits)[0].abs().max()) > 1e-3


# -- a short training


@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize(("method", "steps"), [("sgfn-kl-trajectory", 80), ("sgfn-kl-bootstrap", 60)])
def test_a_short_training_comes_close_to_the_optimum(method: str, steps: int, noise: float) -> None:
    experiment = graph_experiment(method=method, channel={"noise": noise}, budget={"steps": steps})
    assert experiment.evaluate()["regret"] > 2.0
    while not experiment.trainer.finished:
        experiment.trainer.train_step()
    assert -1e-6 < experiment.evaluate()["regret"] < 0.1
    assert experiment.truth is not None
    assert experiment.trainer.objective.log_z() == pytest.approx(experiment.truth.attainable.log_z, abs=0.2)


# -- episodes that end early, and the entropy terms


@pytest.mark.parametrize("kind", [TrajectoryKL, BootstrappedKL])
def test_padded_equals_unpadded(kind: type[TrajectoryKL | BootstrappedKL]) -> None:
    scope = TRAJECTORY if kind is TrajectoryKL else BOOTSTRAPPED
    weights = {"lambda_ratio": 0.3, "lambda_dynamics": 0.7, "lambda_schedule": "constant"}
    settings: dict[str, Any] = {"objective": scope | weights, "optimiser": {"updates": 1}}
    experiment = graph_experiment(channel={"noise": 0.3}, exploration={"epsilon": 0.1}, **settings)
    learner, batch = graph_learner(experiment), experiment.trainer.collect()
    scramble(learner.network)
    assert len(batch.valid.sum(dim=1).unique()) > 3
    (whole,), (wider,) = (kind(learner).updates(each, 0, 0.5) for each in (batch.trimmed(), padded(batch, 4)))
    for name, value in whole.items():
        torch.testing.assert_close(torch.as_tensor(wider[name]), torch.as_tensor(value), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", [TrajectoryKL, BootstrappedKL])
def test_openness_is_relative_to_what_is_possible_in_a_state(kind: type[TrajectoryKL | BootstrappedKL]) -> None:
    scope = TRAJECTORY if kind is TrajectoryKL else BOOTSTRAPPED
    weights = {"lambda_ratio": 0.3, "lambda_dynamics": 0.7, "lambda_schedule": "linear", "flow_weight": 0.2}
    experiment = graph_experiment(objective=scope | weights, optimiser={"updates": 1, "batch_size": 256})
    learner, batch = graph_learner(experiment), experiment.trainer.collect()
    (terms,) = kind(learner).updates(batch, 0, 0.75)
    # a uniform policy is as open as it can be in every state, the last corner with its single intention not at all
    heads = learner.evaluate(batch).heads()
    assert heads.choices is not None
    assert set(heads.choices[batch.valid].tolist()) >= {2, 3}
    is_open, closed = torch.tensor([0.5, 0.5]).double(), torch.tensor([1.0, 1e-30]).double()
    by_hand = torch.where((heads.choices > 1).unsqueeze(-1), is_open, closed).log()
    expected = entropy_terms(by_hand, batch.valid.double(), learner.config.objective, 0.75)
    assert terms["dynamics_loss"].item() == pytest.approx(expected.dynamics.item(), abs=1e-5)
    assert terms["log_entropy_ratio"].item() == pytest.approx(expected.log_ratio.item(), abs=1e-5)
    penalty = 0.25 * (0.7 * terms["dynamics_loss"] - 0.3 * terms["log_entropy_ratio"])
    whole = terms["kl_loss"] + penalty + terms["backward_loss"] + 0.2 * terms.get("flow_loss", torch.zeros(()))
    torch.testing.assert_close(terms["loss"], whole)


def planned_terms(**objective: Any) -> tuple[PlannedGraphKL, dict[str, Any]]:
    """The planned objective with some policy, after a first plan, and its terms at half of the budget."""
    experiment = graph_experiment(channel={"noise": 0.25}, objective=objective)
    learner, planned = graph_learner(experiment), experiment.trainer.objective
    assert isinstance(planned, PlannedGraphKL)
    experiment.trainer.collect()
    scramble(learner.network)
    planned.replan(step=0)
    return planned, dict(planned.terms(0, 0.5))


def test_the_planned_objective_takes_the_entropy_terms_into_its_loss() -> None:
    _, plain = planned_terms()
    weights = {"lambda_ratio": 0.3, "lambda_dynamics": 0.7, "lambda_schedule": "linear"}
    planned, terms = planned_terms(**weights)
    assert "log_entropy_ratio" not in plain
    penalty = 0.5 * (0.7 * terms["dynamics_loss"] - 0.3 * terms["log_entropy_ratio"])
    assert abs(penalty.item()) > 1e-3
    torch.testing.assert_close(terms["loss"], plain["loss"] + penalty)
    gradients = [
        torch.autograd.grad(each["loss"], owner.learner.network.policy_head.weight)[0]
        for owner, each in ((planned, terms), planned_terms())
    ]
    assert float((gradients[0] - gradients[1]).abs().max()) > 1e-4


def test_the_planned_objective_compares_states_of_one_depth_by_their_visits() -> None:
    weights = {"lambda_ratio": 0.3, "lambda_schedule": "constant", "gammas": [0.5]}
    planned, terms = planned_terms(**weights)
    graph, network, plan = planned.learner.environment.graph, planned.learner.network, planned.plan
    assert plan is not None
    with torch.no_grad():
        policies = network.policy_table().float()
    ratios = []
    for level in graph.levels:  # every depth alone
        choices, visits = graph.valid_actions[level.states].sum(dim=-1), plan.visits[level.states].float()
        column = policies[level.states].unsqueeze(1), visits.unsqueeze(1)
        alone = entropy_terms(*column, planned.learner.config.objective, 0.5, choices.unsqueeze(1))
        ratios.append(float(alone.log_ratio))
    assert float(terms["log_entropy_ratio"].detach()) == pytest.approx(sum(ratios) / len(ratios), abs=1e-5)


def test_a_run_with_entropy_terms_on_a_graph_ends_near_the_optimum() -> None:
    settings = {"optimiser": {"batch_size": 128, "updates": 8}, "plan": {"every": 0.2}, "budget": {"steps": 12}}
    experiment = graph_experiment(method="sgfn-kl-gamma", channel={"noise": 0.25}, **settings)
    while not experiment.trainer.finished:
        record = experiment.trainer.train_step()
    assert math.isfinite(record["log_entropy_ratio"])
    assert experiment.evaluate()["regret"] < 0.1

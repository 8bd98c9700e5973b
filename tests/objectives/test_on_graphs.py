"""Balance where states have several parents: zero exactly where flows, policies and dynamics agree."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from stochflow.config.methods import METHODS
from stochflow.config.schema import LossShape
from stochflow.core.errors import ConfigError
from stochflow.environments.base import Environment
from stochflow.environments.graphs.environment import GraphEnvironment, nodes_on
from stochflow.environments.graphs.hypergrid import hypergrid
from stochflow.environments.rewards import Reward
from stochflow.experiments.build import make_graph_learner, make_objective
from stochflow.experiments.launch import resolve_config
from stochflow.objectives.path_terms import Balance, PathBalance, path_steps
from stochflow.sampling.trajectories import Trajectories
from tests.objectives.graph_flows import (
    Tables,
    balanced_learner,
    flow_down,
    flow_up,
    padded,
    random_pairs,
    scored,
    scramble,
    uniform_pairs,
)
from tests.small_tasks import graph_experiment, graph_learner

ALONG_A_PATH = ["detailed-balance", "trajectory-balance", "subtrajectory-balance"]
SHAPES: list[LossShape] = ["squared", "linex", "linex-half", "linex-reversed", "shifted-cosh"]


def balanced(network: Tables, noise: float, objective: dict[str, Any]) -> tuple[Balance, Trajectories]:
    """An objective whose network is balanced, and a batch with the rewards that arrive."""
    learner, batch = balanced_learner(network, noise, objective=objective)
    found = make_objective(learner)
    assert isinstance(found, Balance)
    return found, batch


def assert_balanced(objective: Balance, batch: Trajectories) -> None:
    """Nothing is to pay, and three times the reward costs something; P̂ and paid rewards are kept in float32."""
    assert float(objective.terms(batch, 0)["loss"]) == pytest.approx(0.0, abs=1e-9)
    assert float(objective.terms(replace(batch, scores=3.0 * batch.scores), 0)["loss"]) > 0.05


@pytest.mark.parametrize("backward", ["learned", "uniform", "posterior"])
@pytest.mark.parametrize("kind", ALONG_A_PATH)
def test_without_noise_flows_that_come_up_from_the_rewards_cost_nothing(kind: str, backward: str) -> None:
    graph = hypergrid("2,4", slip=0.0)
    network = flow_up(graph, uniform_pairs(graph) if backward == "uniform" else random_pairs(graph))
    assert_balanced(*balanced(network, 0.0, {"kind": kind, "backward": backward}))


@pytest.mark.parametrize("kind", ALONG_A_PATH)
def test_without_noise_the_realised_path_is_balanced_by_the_same_flows(kind: str) -> None:
    graph = hypergrid("2,4", slip=0.0)
    assert_balanced(*balanced(flow_up(graph, random_pairs(graph)), 0.0, {"kind": kind, "path": "realised"}))


@pytest.mark.parametrize("kind", ALONG_A_PATH)
def test_another_backward_policy_than_that_of_the_flows_is_out_of_balance(kind: str) -> None:
    graph = hypergrid("2,4", slip=0.0)
    objective, batch = balanced(flow_up(graph, random_pairs(graph)), 0.0, {"kind": kind, "backward": "uniform"})
    assert float(objective.terms(batch, 0)["loss"]) > 0.01


@pytest.mark.parametrize("settings", [{"backward": "learned"}, {"backward": "posterior"}, {"path": "realised"}])
@pytest.mark.parametrize("kind", ALONG_A_PATH)
def test_with_noise_flows_that_go_down_with_the_policy_cost_nothing(kind: str, settings: dict[str, str]) -> None:
    network = flow_down(hypergrid("2,4", slip=0.4), realised="path" in settings)
    assert_balanced(*balanced(network, 0.4, {"kind": kind, **settings}))


@pytest.mark.parametrize("noise", [0.0, 0.4])
def test_expected_balance_is_met_by_the_mean_of_the_flows_that_an_intention_leads_to(noise: float) -> None:
    graph = hypergrid("2,4", slip=noise)
    objective, batch = balanced(flow_up(graph, random_pairs(graph)), noise, {"kind": "expected-balance"})
    assert_balanced(objective, batch)
    if noise:  # which is not the balance of what comes
        steps = path_steps(objective.learner, batch, 0)
        assert float((steps.log_flow + steps.log_ratio - steps.log_next_flow)[batch.valid].abs().max()) > 0.01


def test_expected_balance_counts_the_intentions_that_are_possible() -> None:
    graph = hypergrid("2,4", slip=0.0)
    network = flow_up(graph, random_pairs(graph))
    objective, batch = balanced(network, 0.0, {"kind": "expected-balance"})
    network.tables[1][0] *= math.e  # one nat too much for each of the three intentions of the root
    states = nodes_on(graph, batch.outcomes, batch.valid)[:, :-1][batch.valid]
    share = 3 * len(batch) / float(graph.valid_actions[states].sum())
    assert float(objective.terms(batch, 0)["balance_loss"]) == pytest.approx(share, abs=1e-6)


# -- loss shapes


@pytest.mark.parametrize("kind", [*ALONG_A_PATH, "expected-balance"])
def test_every_loss_shape_has_its_own_slope_and_the_same_balance(kind: str) -> None:
    graph = hypergrid("2,4", slip=0.0)
    values = set()
    for shape in SHAPES:
        objective, batch = balanced(flow_up(graph, random_pairs(graph)), 0.0, {"kind": kind, "loss": shape})
        assert_balanced(objective, batch)
        learner = graph_learner(graph_experiment(objective={"kind": kind, "loss": shape}))
        terms = make_objective(learner).terms(scored(learner, batch), 0)
        terms["loss"].backward()
        gradient = learner.network.policy_head.weight.grad
        assert gradient is not None
        assert bool(gradient.isfinite().all())
        assert float(gradient.abs().max()) > 1e-4
        values.add(float(gradient.abs().sum()))
    assert len(values) == len(SHAPES)


# -- episodes that end early


PATH_SETTINGS = [{}, {"backward": "posterior"}, {"backward": "uniform"}, {"path": "realised"}]
PADDED = [({"kind": kind} | settings) for kind in ALONG_A_PATH for settings in PATH_SETTINGS]


@pytest.mark.parametrize(
    "settings", [*PADDED, {"kind": "expected-balance"}], ids=lambda given: "-".join(given.values())
)
def test_padded_equals_unpadded(settings: dict[str, str]) -> None:
    experiment = graph_experiment(channel={"noise": 0.3}, objective=settings)
    learner, batch = graph_learner(experiment), experiment.trainer.collect()
    scramble(learner.network)
    objective = make_objective(learner)
    assert isinstance(objective, Balance)
    lengths = batch.valid.sum(dim=1)
    assert len(lengths.unique()) > 3
    whole = objective.terms(batch, 0)
    for name, value in objective.terms(padded(batch, 4), 0).items():
        torch.testing.assert_close(torch.as_tensor(value), torch.as_tensor(whole[name]), atol=1e-5, rtol=1e-5)
    if isinstance(objective, PathBalance):
        alone = [objective.terms(one(batch, row, int(length)), 0) for row, length in enumerate(lengths)]
        torch.testing.assert_close(whole["loss"], weighted(settings["kind"], lengths, alone), atol=1e-5, rtol=1e-5)


def one(batch: Trajectories, row: int, length: int) -> Trajectories:
    """One episode without anything after its end."""
    rows = slice(row, row + 1)
    columns = (batch.intentions, batch.outcomes, batch.valid)
    intentions, outcomes, valid = (column[rows, :length] for column in columns)
    return Trajectories(intentions, outcomes, valid, batch.scores[rows], batch.log_behaviour[rows, :length])


def weighted(kind: str, lengths: Tensor, alone: list[Any]) -> Tensor:
    """The loss of a batch from the losses of its episodes: means over steps, episodes or weighted stretches."""
    weights = torch.ones(len(lengths))
    if kind == "detailed-balance":
        weights = lengths.float()
    if kind == "subtrajectory-balance":  # Σ over stretches of k steps: (length + 1 − k)·λ^k
        decay = resolve_config([{"objective": {"kind": kind}}]).objective.decay
        weights = torch.tensor([sum((n + 1 - k) * decay**k for k in range(1, n + 1)) for n in lengths.tolist()])
    return (weights * torch.stack([terms["loss"] for terms in alone])).sum() / weights.sum()


def test_what_stands_after_the_end_changes_nothing() -> None:
    experiment = graph_experiment(method="sgfn-db", optimiser={"batch_size": 16})
    objective, batch = experiment.trainer.objective, experiment.trainer.collect()
    assert isinstance(objective, Balance)
    assert not bool(batch.valid.all())
    outcomes, intentions = torch.where(batch.valid, batch.outcomes, 0), torch.where(batch.valid, batch.intentions, 1)
    other = replace(batch, outcomes=outcomes, intentions=intentions)
    losses = [float(objective.terms(each, 0)["loss"].detach()) for each in (batch, other)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


# -- what a graph allows


def refused(method: str, task: str = "hypergrid:2,4") -> str:
    """What is said of a method on a graph."""
    with pytest.raises(ConfigError) as error:
        resolve_config([{"task": task, "method": method}])
    return str(error.value)


@pytest.mark.parametrize(
    "method",
    ["ppo", "sac", "soft-q", "mcmc", "mars", "genetic", "adalead", "kmer-plan", "gfn-ls", "gfn-delta-cs", "gfn-al"],
)
def test_methods_that_need_letters_are_refused(method: str) -> None:
    told = refused(method)
    assert told.startswith(f"{method} cannot be trained on hypergrid:2,4")
    assert "choose a balance (sgfn-db, sgfn-tb, …), sgfn-kl or random" in told


def test_methods_that_are_blind_to_noise_need_outcomes_that_can_be_intended() -> None:
    told = refused("gfn-tb", "gym:FrozenLake-v1:horizon=6")
    assert "it takes outcomes for intentions" in told
    assert "choose a method that knows of noise (sgfn-db, sgfn-tb, sgfn-kl)" in told


def test_a_state_may_not_have_more_outcomes_than_a_byte_can_number() -> None:
    small = hypergrid("1,2", slip=0.0)
    wide = replace(small, dynamics=small.dynamics.repeat(1, 1, 200))
    config = resolve_config([{"task": "hypergrid:1,2"}])
    with pytest.raises(ConfigError, match="more than 256 outcomes; choose a smaller one"):
        make_graph_learner(config, GraphEnvironment(wide))


def test_all_else_runs_on_a_graph_and_everything_on_sequences() -> None:
    environment: Environment = GraphEnvironment(hypergrid("2,4", slip=0.1))
    on_graphs = [name for name, method in METHODS.items() if method.objective.graphs]
    assert set(METHODS) - set(on_graphs) == {
        "ppo",
        "sac",
        "soft-q",
        "mcmc",
        "mars",
        "genetic",
        "adalead",
        "kmer-plan",
        "gfn-ls",
        "gfn-delta-cs",
        "gfn-al",
    }
    for method in on_graphs:
        environment.check_method(resolve_config([{"task": "hypergrid:2,4", "method": method}]))


def test_a_reward_schedule_reaches_the_loss_on_a_graph() -> None:
    experiment = graph_experiment(method="sgfn-db", reward={"beta": 3.0})
    learner, batch = graph_learner(experiment), experiment.trainer.collect()
    ramped = make_objective(replace(learner, reward=Reward(3.0, 1e-6, ramp=10.0)))
    assert isinstance(ramped, Balance)
    early, late = (float(ramped.terms(batch, step)["loss"].detach()) for step in (0, 10**6))
    plain = make_objective(learner)
    assert isinstance(plain, Balance)
    assert late == pytest.approx(float(plain.terms(batch, 0)["loss"].detach()), rel=1e-3)
    assert abs(early - late) > 1e-3

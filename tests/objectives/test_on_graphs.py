"""Balance where states have several parents: zero exactly where flows, policies and dynamics agree."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from stochflow.config.methods import METHODS
from stochflow.config.schema import LossShape
from stochflow.core.errors import ConfigError
from stochflow.core.logspace import safe_log
from stochflow.environments.base import Environment
from stochflow.environments.graphs.environment import GraphEnvironment
from stochflow.environments.graphs.graph import Graph
from stochflow.environments.graphs.hypergrid import hypergrid
from stochflow.environments.rewards import Reward
from stochflow.experiments.build import check_objective, make_objective
from stochflow.experiments.launch import resolve_config
from stochflow.models.graph_network import GraphNetwork
from stochflow.objectives.learners import GraphLearner
from stochflow.objectives.path_terms import Balance, PathBalance, path_steps
from stochflow.sampling.trajectories import Trajectories
from stochflow.truth.dag import node_visits, outcome_marginals
from tests.small_tasks import graph_experiment, graph_learner

LOG_Z = 1.5
ALONG_A_PATH = ["detailed-balance", "trajectory-balance", "subtrajectory-balance"]
SHAPES: list[LossShape] = ["squared", "linex", "linex-half", "linex-reversed", "shifted-cosh"]


class Tables(GraphNetwork):
    """Stands in for a network: a policy, flows and a backward policy over parents and intentions, as tables.

    Args:
        policies: π(a|s), [S, A].
        flows: F of every node, [S + X].
        pairs: π_B(s,a|s'), [S + X, parents, A].
    """

    dtype = torch.float64

    def __init__(self, graph: Graph, policies: Tensor, flows: Tensor, pairs: Tensor) -> None:
        super().__init__(graph, 1, 0)
        self.tables = policies, flows, pairs

    def hidden(self, nodes: Tensor) -> Tensor:
        return nodes

    def log_policy(self, hidden: Tensor, states: Tensor) -> Tensor:
        return safe_log(self.tables[0][states])

    def log_flow(self, hidden: Tensor, nodes: Tensor) -> Tensor:
        return safe_log(self.tables[1][nodes])

    def log_backward(self, hidden: Tensor, nodes: Tensor, uniform: bool = False) -> Tensor:
        pairs = uniform_pairs(self.graph) if uniform else self.tables[2]
        return safe_log(pairs[nodes])


def parents_of(graph: Graph) -> tuple[Tensor, Tensor, Tensor]:
    """States and outcomes that lead to every node, and which of them exist; [S + X, parents] each."""
    steps = graph.parents.clamp_min(0)
    return steps // graph.num_outcomes, steps % graph.num_outcomes, graph.parents >= 0


def normalised(pairs: Tensor) -> Tensor:
    """π_B of given weights, [S + X, parents, A]; the root has none."""
    return pairs / pairs.sum(dim=(-2, -1), keepdim=True).clamp_min(1e-12)


def uniform_pairs(graph: Graph) -> Tensor:
    """The same share for every parent and intention that may have led to a node."""
    states, outcomes, exist = parents_of(graph)
    return normalised((graph.support[states, :, outcomes] & exist.unsqueeze(-1)).double())


def random_pairs(graph: Graph) -> Tensor:
    weights = uniform_pairs(graph)
    return normalised(
        weights * torch.rand(weights.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
    )


def flow_up(graph: Graph, pairs: Tensor) -> Tables:
    """Random rewards, the flows that π_B sends up from them through the true dynamics, and the policy of these flows.

    Without noise it is balanced for every π_B; with noise it is the solution of expected balance.
    """
    flows = torch.zeros(graph.num_nodes, dtype=torch.float64)
    rewards = 0.1 + torch.rand(graph.num_objects, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    flows[graph.num_states :] = rewards
    policies = torch.zeros(graph.valid_actions.shape, dtype=torch.float64)
    for level in reversed(graph.levels):
        states = level.states
        shares = pairs.sum(dim=-1)[level.children, graph.parent_places[states]]
        carried = (graph.dynamics[states] @ (flows[level.children] * shares * level.possible).unsqueeze(-1)).squeeze(-1)
        flows[states] = carried.sum(dim=-1)
        policies[states] = carried / carried.sum(dim=-1, keepdim=True)
    return Tables(graph, policies, flows, pairs)


def flow_down(graph: Graph, realised: bool) -> Tables:
    """Random intentions, the flows that they carry down, and the posterior of who carried them.

    Args:
        realised: blind to noise, every intention is believed to come true.
    """
    generator = torch.Generator().manual_seed(3)
    policies = torch.rand(graph.valid_actions.shape, dtype=torch.float64, generator=generator) * graph.valid_actions
    policies = policies / policies.sum(dim=-1, keepdim=True)
    believed = torch.eye(graph.num_actions).double() * graph.valid_actions.unsqueeze(-1)
    dynamics = believed if realised else graph.dynamics
    visits = node_visits(graph, outcome_marginals(dynamics, policies))
    states, outcomes, exist = parents_of(graph)
    joint = visits[states].unsqueeze(-1) * policies[states] * dynamics[states, :, outcomes]
    return Tables(graph, policies, visits * torch.tensor(LOG_Z).exp(), normalised(joint * exist.unsqueeze(-1)))


def balanced(network: Tables, noise: float, objective: dict[str, Any]) -> tuple[Balance, Trajectories]:
    """An objective whose network is balanced, all objects paid for, and a batch with the rewards that arrive."""
    settings = {"channel": {"noise": noise}, "dynamics": {"kind": "known"}, "objective": objective}
    experiment = graph_experiment("hypergrid:2,4", reward={"floor": 1e-12}, **settings)
    scores = network.tables[1][network.graph.num_states :]
    learner = graph_learner(experiment)
    batch = experiment.trainer.collect()
    environment = GraphEnvironment(replace(learner.environment.graph, scores=scores))
    learner = replace(learner, network=network, environment=environment, memory=type(learner.memory)(scores))
    learner.memory.pay(torch.arange(len(scores)), environment.score)
    found = make_objective(learner)
    assert isinstance(found, Balance)
    return found, scored(learner, batch)


def scored(learner: GraphLearner, batch: Trajectories) -> Trajectories:
    """Episodes with the scores of the learner's own graph."""
    return replace(batch, scores=learner.environment.score(learner.environment.made(batch.outcomes, batch.valid)))


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


def padded(batch: Trajectories, num: int) -> Trajectories:
    """The same with so many steps after the end in which anything stands."""
    size = (len(batch), num)

    def wider(column: Tensor, filling: Tensor) -> Tensor:
        return torch.cat([torch.where(batch.valid, column, filling[:, : column.shape[1]]), filling[:, :num]], dim=1)

    anything = torch.randint(3, (len(batch), 20), generator=torch.Generator().manual_seed(2))
    valid = torch.cat([batch.valid, torch.zeros(size, dtype=torch.bool)], dim=1)
    log_behaviour = torch.nn.functional.pad(batch.log_behaviour, (0, num))
    intentions, outcomes = wider(batch.intentions, anything), wider(batch.outcomes, anything.flip(1))
    return Trajectories(intentions, outcomes, valid, batch.scores, log_behaviour)


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


def scramble(network: GraphNetwork) -> None:
    """No two nodes alike, as after training."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for head in (network.policy_head, network.backward_head, network.flow_head):
            head.weight.normal_(std=0.3, generator=generator)


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


@pytest.mark.parametrize("method", ["ppo", "sac", "soft-q", "mcmc", "mars"])
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
        check_objective(config, GraphEnvironment(wide))


def test_all_else_runs_on_a_graph_and_everything_on_sequences() -> None:
    environment: Environment = GraphEnvironment(hypergrid("2,4", slip=0.1))
    on_graphs = [name for name, method in METHODS.items() if "graphs" in method.runs_on]
    assert set(METHODS) - set(on_graphs) == {"ppo", "sac", "soft-q", "mcmc", "mars"}
    for method in on_graphs:
        check_objective(resolve_config([{"task": "hypergrid:2,4", "method": method}]), environment)


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

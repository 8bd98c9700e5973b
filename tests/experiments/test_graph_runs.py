"""Runs on graphs, from settings to files."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

import stochflow
from stochflow.core.errors import ConfigError
from stochflow.environments.graphs.environment import GraphEnvironment
from stochflow.environments.graphs.graph import Graph
from stochflow.experiments.build import build
from stochflow.experiments.experiment import Experiment
from stochflow.experiments.launch import resolve_config
from stochflow.models.graph_network import GraphNetwork
from stochflow.objectives.base import Objective
from stochflow.objectives.planned_graph_kl import PlannedGraphKL
from stochflow.truth.dag import expected_values, object_log_probs

SMALL = {"model": {"width": 32}, "optimiser": {"batch_size": 128, "updates": 8}, "plan": {"every": 0.2}}


def trained(settings: dict[str, object], trajectories: int) -> Experiment:
    experiment = build(resolve_config([SMALL, settings, {"budget": {"trajectories": trajectories}}]))
    while not experiment.trainer.finished:
        experiment.trainer.train_step()
    return experiment


def graph_of(experiment: Experiment) -> Graph:
    assert isinstance(experiment.environment, GraphEnvironment)
    return experiment.environment.graph


def table_of(experiment: Experiment) -> Tensor:
    """log π(a|s) of every state, [S, A]."""
    assert isinstance(experiment.network, GraphNetwork)
    return experiment.network.policy_table()


def behaviour(objective: Objective, graph: Graph) -> Tensor:
    """log π(a|s) of what the objective samples with, one episode led to every state, [S, A]."""
    ways: dict[int, list[int]] = {0: []}
    for state in range(graph.num_states):  # parents come before their children
        for outcome, child in enumerate(graph.children[state].tolist()):
            if 0 <= child < graph.num_states:
                ways.setdefault(child, [*ways[state], outcome])
    rows = []
    for state in range(graph.num_states):
        sampler = objective.sampler(1)
        for outcome in ways[state]:
            sampler.advance(np.array([outcome]))
        rows.append(torch.from_numpy(sampler.log_policy()[0]))
    return torch.stack(rows)


def test_planned_kl_comes_close_to_the_target_on_a_small_grid() -> None:
    experiment = trained({"task": "hypergrid:2,4", "channel": {"noise": 0.25}}, 2048)
    found = experiment.evaluate()
    assert found["tv"] < 0.06
    assert 0.0 <= found["regret"] < 0.05
    assert experiment.trainer.objective.log_z() == pytest.approx(experiment.truth.attainable.log_z, abs=0.02)


def test_balance_learns_too_and_is_better_than_random() -> None:
    results = {
        method: trained({"task": "hypergrid:2,3", "method": method, "channel": {"noise": 0.1}}, 2560).evaluate()["tv"]
        for method in ("sgfn-db", "gfn-tb", "random")
    }
    assert max(results["sgfn-db"], results["gfn-tb"]) < results["random"] / 2


def test_the_slippery_lake_is_crossed_almost_as_often_as_can_be() -> None:
    """P(goal) of the learned policy beside the best of any policy, by dynamic programming, and random intentions."""
    task = {"task": "gym:FrozenLake-v1:horizon=12"}
    often = {"plan": {"every": 0.04}, "optimiser": {"batch_size": 256, "updates": 24}}
    experiment = trained(task | often, 2560)
    graph = graph_of(experiment)
    best = float(expected_values(graph, graph.dynamics, graph.scores)[0][0])
    random = trained(task | {"method": "random"}, 128).evaluate()["mean_score"]
    learned = experiment.evaluate()["mean_score"]
    assert random < 0.2 * best
    assert 0.8 * best < learned <= best


def test_missing_entropy_is_counted_from_the_attainable_optimum() -> None:
    experiment = build(resolve_config([SMALL, {"task": "hypergrid:2,4"}]))
    best, found = experiment.truth.attainable.log_probs, object_log_probs(graph_of(experiment), table_of(experiment))
    expected = float(found.exp() @ found - best.exp() @ best)
    assert abs(expected) > 0.01
    assert experiment.evaluate()["entropy_gap"] == pytest.approx(expected, abs=1e-6)


def test_a_plan_under_the_true_world_is_the_optimum() -> None:
    settings = {"task": "hypergrid:2,4", "dynamics": {"kind": "known"}}
    experiment = build(resolve_config([SMALL, settings]))
    objective = experiment.trainer.objective
    assert isinstance(objective, PlannedGraphKL)
    experiment.trainer.learner.memory.paid.fill_(True)
    objective.replan(step=0)
    assert objective.plan is not None
    assert objective.plan.kl == pytest.approx(experiment.truth.attainable.kl, abs=2e-4)
    assert torch.equal(behaviour(objective, graph_of(experiment)), objective.plan.log_policy)


def test_the_behaviour_prefers_what_was_never_paid_for() -> None:
    settings = {"task": "hypergrid:2,4", "dynamics": {"kind": "known"}}
    experiment = build(resolve_config([SMALL, settings]))
    objective, memory, graph = experiment.trainer.objective, experiment.trainer.learner.memory, graph_of(experiment)
    assert isinstance(objective, PlannedGraphKL)
    memory.paid.fill_(True)
    far = graph.labels.index("2,2")
    memory.paid[far] = False
    objective.replan(step=0)
    assert objective.plan is not None
    tables = (behaviour(objective, graph), objective.plan.log_policy)
    eager, planned = (object_log_probs(graph, table) for table in tables)
    assert float(eager[far] - planned[far]) > 0.5


def test_a_budget_of_oracle_calls_counts_objects_once() -> None:
    experiment = build(
        resolve_config([SMALL, {"task": "hypergrid:2,6", "method": "random", "budget": {"oracle_calls": 9}}])
    )
    while not experiment.trainer.finished:
        experiment.trainer.train_step()
    assert experiment.trainer.calls == 9 == int(experiment.trainer.learner.memory.paid.sum())


def test_a_run_on_a_graph_has_the_files_of_every_run(tmp_path: Path) -> None:
    run = stochflow.train("hypergrid:2,4", noise=0.2, trajectories=512, config=SMALL, out=tmp_path / "run")
    assert {path.name for path in run.path.iterdir()} == {
        *("config.yaml", "versions.json", "metrics.jsonl", "samples.csv", "summary.json", "checkpoint", ".lock")
    }
    assert run.summary.task == "hypergrid:2,4"
    assert run.summary.noise == 0.2
    assert run.summary.beta == 1.0
    again = run.evaluate()
    assert again.model_dump() == run.summary.model_dump()
    assert run.evaluate(noise=0.6).min_kl != again.min_kl
    written = pd.read_csv(run.path / "samples.csv")
    pd.testing.assert_frame_equal(run.sample(), written, check_exact=False, atol=1e-12)
    assert run.sample(500, unique=True)["object"].is_unique
    page = stochflow.report(run.path).read_text(encoding="utf-8")
    assert "a state of a graph has several ways into it" in page
    assert "Sequence logo" not in page


def test_a_resumed_run_ends_as_one_that_was_never_disturbed(tmp_path: Path) -> None:
    options = {"noise": 0.3, "trajectories": 640, "config": SMALL}
    whole = stochflow.train("hypergrid:2,4", out=tmp_path / "whole", **options)  # type: ignore[arg-type]
    steps = iter(range(100))
    stochflow.train("hypergrid:2,4", out=tmp_path / "cut", stop=lambda: next(steps) >= 3, **options)  # type: ignore[arg-type]
    resumed = stochflow.train(out=tmp_path / "cut", resume=True)
    assert json.loads((whole.path / "summary.json").read_text()) | {"seconds": 0} == json.loads(
        (resumed.path / "summary.json").read_text()
    ) | {"seconds": 0}
    assert whole.metrics["loss"].tolist() == resumed.metrics["loss"].tolist()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"method": "ppo"}, "ppo cannot be trained on hypergrid: it changes or reads sequences of letters"),
        ({"method": "mcmc"}, "mcmc cannot be trained on hypergrid: it changes or reads sequences of letters"),
        ({"method": "soft-q"}, r"choose a balance \(sgfn-db, sgfn-tb, …\), sgfn-kl or random"),
        ({"constraints": {"max_homopolymer": 2}}, "constraints cannot be had"),
        ({"reward_noise": "gaussian:0.1"}, "noise in the reward cannot be had"),
        (
            {"channel": {"kind": "dna-synthesis", "noise": 0.1}},
            "knows no noise of the kind 'dna-synthesis'; give --noise α",
        ),
        ({"channel": {"noise": 1.0}}, "below 1"),
        ({"lengths": {"min_length": 2}}, "variable length cannot be had"),
        ({"channel": {"deletion": 0.1}}, "deletion and duplication cannot be had"),
        ({"channel": {"duplication": 0.1}}, "deletion and duplication cannot be had"),
        ({"table": {"sequence_column": "seq"}}, "a table cannot be had"),
        ({"oracle": {"length": 5, "alphabet": "dna"}}, "an oracle cannot be had"),
        ({"reward": {"floor": 5.0}}, "not above reward.floor"),
        ({"reward": {"beta": 999.0}}, "not below 1e300; lower reward.floor or reward.beta"),
    ],
)
def test_what_only_sequences_have_is_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        resolve_config([{"task": "hypergrid", **settings}])


def test_methods_that_are_blind_to_noise_need_outcomes_that_can_be_intended() -> None:
    with pytest.raises(ConfigError, match="gfn-tb cannot be trained on gym:FrozenLake-v1:horizon=6: it takes outcomes"):
        resolve_config([{"task": "gym:FrozenLake-v1:horizon=6", "method": "gfn-tb"}])


@pytest.mark.parametrize("channel", [{"noise": 0.1}, {"kind": "dna-synthesis"}, {"kind": "positional", "noise": [0.1]}])
def test_an_environment_takes_no_noise_and_says_what_to_give(channel: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"give --noise none$"):
        resolve_config([{"task": "gym:FrozenLake-v1:horizon=6", "channel": {"kind": "uniform-slip"} | channel}])


def test_a_world_in_which_all_ends_are_alike_is_refused() -> None:
    with pytest.raises(ConfigError, match="nothing to prefer; give it more steps"):
        resolve_config([{"task": "gym:FrozenLake-v1:horizon=4"}])  # the goal is six steps away


def test_exact_knows_graphs() -> None:
    found = stochflow.exact("hypergrid:2,4", noise=0.7)
    assert found["beta"] == 1.0
    assert found["min_kl"] > 0.0
    assert "infeasible_share" not in found


def test_the_dynamics_kind_and_the_seed_change_what_is_learned() -> None:
    base = {"task": "hypergrid:2,4", "channel": {"noise": 0.4}}
    variants: list[dict[str, object]] = [{}, {"seed": 1}, {"dynamics": {"kind": "known"}}]
    policies = [table_of(trained(base | variant, 512)) for variant in variants]
    assert not torch.equal(policies[0], policies[1])
    assert not torch.equal(policies[0], policies[2])
    assert torch.equal(policies[0], table_of(trained(dict(base), 512)))

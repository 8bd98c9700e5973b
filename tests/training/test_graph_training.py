"""Runs on graphs, from settings to files."""

import json
from pathlib import Path

import pandas as pd
import pytest
import torch
from stochflow.experiments.graph_build import GraphExperiment, build_graph_experiment

import stochflow
from stochflow.core.errors import ConfigError
from stochflow.experiments.launch import resolve_config
from stochflow.objectives.planned_graph_kl import PlannedGraphKL
from stochflow.truth.dag import expected_values, terminal_log_probs

SMALL = {"model": {"width": 32}, "optimiser": {"batch_size": 128, "updates": 8}, "plan": {"every": 0.2}}


def trained(settings: dict[str, object], trajectories: int) -> GraphExperiment:
    experiment = build_graph_experiment(resolve_config([SMALL, settings, {"budget": {"trajectories": trajectories}}]))
    while not experiment.trainer.finished:
        experiment.trainer.train_step()
    return experiment


def test_planned_kl_comes_close_to_the_target_on_a_small_grid() -> None:
    experiment = trained({"task": "hypergrid:2,4", "channel": {"noise": 0.25}}, 2048)
    judged = experiment.judge()
    assert judged["tv"] < 0.06
    assert 0.0 <= judged["regret"] < 0.05
    assert experiment.trainer.objective.log_z() == pytest.approx(experiment.truth.attainable.log_z, abs=0.02)


def test_balance_learns_too_and_is_better_than_random() -> None:
    results = {
        method: trained({"task": "hypergrid:2,3", "method": method, "channel": {"noise": 0.1}}, 2560).judge()["tv"]
        for method in ("sgfn-db", "gfn-tb", "random")
    }
    assert max(results["sgfn-db"], results["gfn-tb"]) < results["random"] / 2


def test_the_slippery_lake_is_crossed_almost_as_often_as_can_be() -> None:
    """P(goal) of the learned policy beside the best of any policy, by dynamic programming, and random intentions."""
    task = {"task": "gym:FrozenLake-v1:horizon=12"}
    often = {"plan": {"every": 0.04}, "optimiser": {"batch_size": 256, "updates": 24}}
    experiment = trained(task | often, 4096)
    graph = experiment.graph
    best = float(expected_values(graph, graph.dynamics, graph.scores)[0][0])
    random = trained(task | {"method": "random"}, 128).judge()["mean_score"]
    learned = experiment.judge()["mean_score"]
    assert random < 0.2 * best
    assert 0.8 * best < learned <= best


def test_missing_entropy_is_counted_from_the_attainable_optimum() -> None:
    experiment = build_graph_experiment(resolve_config([SMALL, {"task": "hypergrid:2,4"}]))
    best, found = experiment.truth.attainable.log_probs, terminal_log_probs(experiment.graph, experiment.log_policy)
    expected = float(found.exp() @ found - best.exp() @ best)
    assert abs(expected) > 0.01
    assert experiment.judge()["entropy_gap"] == pytest.approx(expected, abs=1e-6)


def test_a_plan_under_the_true_world_is_the_optimum() -> None:
    settings = {"task": "hypergrid:2,4", "dynamics": {"kind": "known"}}
    experiment = build_graph_experiment(resolve_config([SMALL, settings]))
    objective = experiment.trainer.objective
    assert isinstance(objective, PlannedGraphKL)
    experiment.trainer.learner.memory.paid.fill_(True)
    objective.replan(step=0)
    assert objective.plan is not None
    assert objective.plan.kl == pytest.approx(experiment.truth.attainable.kl, abs=2e-4)
    assert torch.equal(objective.behaviour(), objective.plan.log_policy)


def test_the_behaviour_prefers_what_was_never_paid_for() -> None:
    settings = {"task": "hypergrid:2,4", "dynamics": {"kind": "known"}}
    experiment = build_graph_experiment(resolve_config([SMALL, settings]))
    objective, memory, graph = experiment.trainer.objective, experiment.trainer.learner.memory, experiment.graph
    assert isinstance(objective, PlannedGraphKL)
    memory.paid.fill_(True)
    far = graph.labels.index("2,2")
    memory.paid[far] = False
    objective.replan(step=0)
    assert objective.plan is not None
    eager, planned = (terminal_log_probs(graph, table) for table in (objective.behaviour(), objective.plan.log_policy))
    assert float(eager[far] - planned[far]) > 0.5


def test_a_budget_of_oracle_calls_counts_objects_once() -> None:
    experiment = build_graph_experiment(
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
    options = {"noise": 0.3, "trajectories": 1024, "config": SMALL}
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
        ({"method": "ppo"}, "ppo cannot be trained on hypergrid; possible are: sgfn-kl, sgfn-db"),
        ({"method": "sgfn-kl-trajectory"}, "possible are"),
        ({"method": "gfn-subtb"}, "possible are"),
        ({"constraints": {"max_homopolymer": 2}}, "constraints cannot be had"),
        ({"reward_noise": "gaussian:0.1"}, "noise in the reward cannot be had"),
        (
            {"channel": {"kind": "dna-synthesis", "noise": 0.1}},
            "knows no noise of the kind 'dna-synthesis'; give --noise α",
        ),
        ({"channel": {"noise": 1.0}}, "below 1"),
        ({"objective": {"lambda_ratio": 0.1}}, "entropy terms"),
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
    with pytest.raises(ConfigError, match="possible are: sgfn-kl, sgfn-db, sgfn-tb, random"):
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
    policies = [trained(base | variant, 512).log_policy for variant in variants]
    assert not torch.equal(policies[0], policies[1])
    assert not torch.equal(policies[0], policies[2])
    assert torch.equal(policies[0], trained(dict(base), 512).log_policy)

"""J from draws is log Z minus the exact KL, on every task and for every kind of policy; and nothing is paid for it."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import stochflow
from stochflow.config.methods import PRETRAINING
from stochflow.environments.channels import uniform_slip
from stochflow.environments.registry import PRETRAINING_TASK, TASKS, make_task
from stochflow.environments.rewards import Reward
from stochflow.evaluation.elbo import elbo
from stochflow.evaluation.samples import draw
from stochflow.experiments.build import build
from stochflow.experiments.experiment import Experiment, summarise
from stochflow.experiments.launch import resolve_config
from stochflow.models.flow_network import FlowNetwork
from stochflow.models.graph_network import GraphNetwork
from stochflow.truth.prefix_tree import kl_to_target
from stochflow.truth.truth import SequenceTruth
from tests.small_tasks import scored_environment

TINY: dict[str, Any] = {
    "model": {"width": 8, "num_layers": 0},
    "optimiser": {"batch_size": 64, "updates": 1, "replay_size": 64},
    "dynamics": {"rounds": 1},
    "budget": {"steps": 3},
}
NUM_DRAWS = 400
# five standard errors: one false alarm in two million
NUM_ERRORS = 5.0

MIXED = "sequence,score\nA,0.1\nAB,0.9\nBA,0.2\nBB,0.4\nAAB,0.8\nBBA,0.3\nABAB,1.0\nBBBB,0.6\n"
VARIABLE = {"task": "table", "lengths": {"variable": True}}
CASES: dict[str, dict[str, Any]] = {
    **{name: {"task": name} for name in TASKS if make_task(name).enumerable},
    "without noise": {"channel": {"kind": "none"}},
    "asymmetric noise": {"channel": {"kind": "dna-synthesis", "noise": 0.2}, "task": "tfbind8:PAX4"},
    "noise by position": {"channel": {"kind": "positional", "noise": [0.1, 0.5] * 4}},
    "constraints": {"constraints": {"forbid": ["AA"], "gc": [0.25, 0.75], "max_homopolymer": 3}},
    "constraints without noise": {"constraints": {"fixed": "..TA...."}, "channel": {"kind": "none"}},
    "replicates": {"reward_noise": "replicate"},
    "gaussian measurements": {"reward_noise": "gaussian:0.2", "task": "tfbind8:ARX"},
    "chains": {"method": "mcmc"},
    "chains without noise": {"method": "mcmc", "channel": {"kind": "none"}},
    "learned chains": {"method": "mars"},
    "a population": {"method": "genetic"},
    "chains over many letters": {"method": "mcmc", "task": "gb1"},
    "a grid": {"task": "hypergrid:2,5"},
    "a noiseless grid": {"task": "hypergrid:3,3", "channel": {"kind": "none"}},
    "a lake": {"task": "gym:FrozenLake-v1:horizon=6"},
    "several tasks": {"pretraining": {"tasks": ["tfbind8:ARX", "tfbind8:PAX4"]}},
    "variable length": VARIABLE,
    "deletions": VARIABLE | {"channel": {"deletion": 0.3}},
    "duplications": VARIABLE | {"channel": {"duplication": 0.3}},
    "both edits": VARIABLE | {"channel": {"deletion": 0.2, "duplication": 0.2}},
}
EDITED = ("deletions", "duplications", "both edits")


def randomised(network: Any) -> None:
    """Weights of a policy that differs clearly from state to state."""
    generator = torch.Generator().manual_seed(3)
    assert isinstance(network, FlowNetwork | GraphNetwork)
    with torch.no_grad():
        for weight in network.policy_head.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator) / math.sqrt(weight.shape[-1]))


def experiment_of(name: str, folder: Path) -> Experiment:
    settings = CASES[name]
    if settings.get("task") == "table":
        (folder / "mixed.csv").write_text(MIXED, encoding="utf-8")
        settings = settings | {"table": {"file": str(folder / "mixed.csv"), "alphabet": "AB", "gap_score": 0.0}}
    if "pretraining" in settings:
        settings = settings | {"task": PRETRAINING_TASK, "method": PRETRAINING}
    experiment = build(resolve_config([TINY, settings]))
    if settings.get("method") in ("mcmc", "mars", "genetic"):
        return experiment.train()
    randomised(experiment.network)
    return experiment


def exact_j(experiment: Experiment) -> float:
    """log Z − KL over everything; over histories, against the rewards that they share, where several write a design."""
    truth, policy = experiment.truth, experiment.policy
    assert truth is not None
    if isinstance(truth, SequenceTruth) and truth.histories is not None:
        histories = truth.histories
        log_probs = policy.terminal_log_probs(experiment.environment)
        targets = histories.spread(truth.log_rewards, 0.0) + histories.log_shares
        return float((log_probs.exp() * (targets - log_probs))[histories.possible].sum())
    kl = kl_to_target(truth.log_probs(policy), truth.log_rewards)
    joint = experiment.config.task == PRETRAINING_TASK
    return (truth.attainable.log_z if joint else float(truth.log_rewards.logsumexp(dim=0))) - kl


@pytest.mark.parametrize("name", CASES)
def test_j_is_log_z_minus_the_exact_kl(name: str, tmp_path: Path) -> None:
    experiment = experiment_of(name, tmp_path)
    environment, reward = experiment.environment, experiment.trainer.learner.reward
    sampled = draw(experiment.policy, environment, NUM_DRAWS, torch.Generator().manual_seed(0))
    found = elbo(sampled, environment, reward)
    assert found["j"] is not None
    assert found["j_se"] is not None
    assert found["j_se"] > 0.0
    assert found["j"] == pytest.approx(exact_j(experiment), abs=NUM_ERRORS * found["j_se"] + 1e-6)


@pytest.mark.parametrize("name", EDITED)
def test_where_histories_write_designs_it_is_a_lower_bound(name: str, tmp_path: Path) -> None:
    experiment = experiment_of(name, tmp_path)
    truth = experiment.truth
    assert isinstance(truth, SequenceTruth)
    kl = kl_to_target(truth.log_probs(experiment.policy), truth.log_rewards)
    assert exact_j(experiment) < float(truth.log_rewards.logsumexp(dim=0)) - kl - 1e-3


SCORES = torch.tensor([0.5, 1.0, 0.25, 1.0], dtype=torch.float64)
REWARD = Reward(beta=2.0, floor=1e-6, ramp=0.0)


def small_environment(scores: Tensor | None = None) -> Any:
    environment = scored_environment(uniform_slip(2, 0.0), 2, SCORES if scores is None else scores)
    environment.enumerable = False
    return environment


def small_experiment(**settings: Any) -> Experiment:
    """3⁴ sequences that nobody may list."""
    scores = torch.rand(3**4, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.01
    environment = scored_environment(uniform_slip(3, 0.2), 4, scores)
    environment.enumerable = False
    given = ["model.width=8", "optimiser.batch_size=32", "optimiser.updates=2", "dynamics.rounds=1"]
    return stochflow.build(environment, steps=4, settings=[*given, *(f"{key}={settings[key]}" for key in settings)])


def test_mean_and_standard_error_by_hand() -> None:
    environment = small_environment()
    experiment = stochflow.build(environment, steps=1)
    drawn = draw(experiment.policy, environment, 3, torch.Generator())
    made, log_probs = torch.tensor([[0, 0], [0, 1], [1, 0]]), torch.tensor([0.5, 0.25, 0.125]).log()
    sampled = replace(drawn, made=made, scores=SCORES[:3], log_probs=log_probs)
    values = [math.log(0.25 / 0.5), math.log(1.0 / 0.25), math.log(0.0625 / 0.125)]
    mean = sum(values) / 3
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / 2)
    assert elbo(sampled, environment, REWARD) == pytest.approx({"j": mean, "j_se": deviation / math.sqrt(3)}, abs=1e-7)


def test_one_unscored_draw_leaves_no_j_and_one_draw_no_error() -> None:
    environment = small_environment()
    sampled = draw(stochflow.build(environment, steps=1).policy, environment, 3, torch.Generator())
    unscored = replace(sampled, scores=torch.tensor([0.5, math.nan, 1.0], dtype=torch.float64))
    assert elbo(unscored, environment, REWARD) == {"j": None, "j_se": None}
    one = replace(sampled, made=sampled.made[:1], scores=sampled.scores[:1], log_probs=sampled.log_probs[:1])
    found = elbo(one, environment, REWARD)
    assert found["j"] is not None
    assert found["j_se"] is None


def test_a_task_that_cannot_be_enumerated_is_evaluated_by_j() -> None:
    experiment = small_experiment().train()
    found = experiment.evaluate()
    assert found.keys() == {"j", "j_se", "intended_spread", "best_paid", "top100_paid"}
    summary, _ = summarise(experiment)
    truth = SequenceTruth(experiment.environment, experiment.trainer.learner.reward)  # type: ignore[arg-type]
    expected = truth.attainable.log_z - truth.evaluate(experiment.policy)["kl"]
    assert summary.j is not None
    assert summary.j_se is not None
    assert summary.j == pytest.approx(expected, abs=NUM_ERRORS * summary.j_se)
    assert found["j"] == pytest.approx(expected, abs=NUM_ERRORS * found["j_se"])
    assert found["j_se"] > 2.0 * summary.j_se  # 128 draws instead of 1,000
    assert (summary.regret, summary.kl, summary.regret_se) == (None, None, None)


def test_an_evaluation_says_how_good_the_paid_designs_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stochflow.experiments.experiment.TOP", 10)  # there are fewer than 100 designs
    experiment = small_experiment()
    assert "best_paid" not in experiment.evaluate()  # nothing is paid for yet
    found, memory = experiment.train().evaluate(), experiment.trainer.learner.memory
    paid = memory.scores.sort(descending=True).values  # type: ignore[attr-defined]
    assert found["best_paid"] == float(paid[0])
    assert found["top100_paid"] == pytest.approx(float(paid[:10].mean()))


def test_evaluations_do_not_disturb_training() -> None:
    plain, watched = small_experiment(), small_experiment(**{"evaluation.curve_samples": 17})
    for _ in range(4):
        watched.evaluate()
        watched.trainer.train_step()
        plain.trainer.train_step()
    assert watched.evaluate()["j"] == watched.evaluate()["j"]
    before, after = plain.trainer.state_dict(), watched.trainer.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before if name != "counters")


class KnownOptimum(SequenceTruth):
    """log Z and the smallest KL, and nothing of single designs."""

    exact_evaluation = False

    def optimum(self) -> dict[str, float]:
        return {"min_kl": self.attainable.min_kl, "log_z_true": self.attainable.log_z}

    def log_probs(self, policy: Any) -> Tensor:
        raise AssertionError("designs are too many to be listed")


def test_a_truth_without_designs_gives_a_regret_with_its_standard_error() -> None:
    plain = small_experiment()
    environment, reward = plain.environment, plain.trainer.learner.reward
    experiment = replace(plain, truth=KnownOptimum(environment, reward))  # type: ignore[arg-type]
    expected = SequenceTruth(environment, reward).evaluate(experiment.train().policy)  # type: ignore[arg-type]
    found, (summary, _) = experiment.evaluate(), summarise(experiment)
    assert experiment.evaluated_every == 0.05
    assert summary.regret is not None
    assert summary.regret_se is not None
    assert summary.regret_se == summary.j_se
    assert summary.regret == pytest.approx(expected["regret"], abs=NUM_ERRORS * summary.regret_se)
    assert summary.kl == pytest.approx(summary.regret + float(str(summary.min_kl)))
    assert (summary.tv, summary.min_tv, summary.entropy_gap) == (None, None, None)
    assert summary.mean_score == pytest.approx(expected["mean_score"], abs=0.1)
    assert found["regret"] == pytest.approx(expected["regret"], abs=NUM_ERRORS * found["regret_se"])
    assert found["regret_se"] == found["j_se"]


def test_an_exact_truth_is_not_replaced_by_an_estimate() -> None:
    experiment = build(resolve_config([TINY, {"task": "hypergrid:2,4"}]))
    assert "j" not in experiment.evaluate()
    summary, _ = summarise(experiment)
    assert summary.j is not None
    assert summary.regret_se is None
    assert summary.kl == experiment.evaluate()["kl"]


def test_draws_of_an_oracle_are_not_paid_for_to_know_j(tmp_path: Path) -> None:
    asked: list[str] = []

    def score(designs: list[str]) -> list[float]:
        asked.extend(designs)
        return [0.1 + design.count("A") / len(design) for design in designs]

    given = ["model.width=8", "optimiser.batch_size=8", "optimiser.updates=1", "evaluation.num_samples=20"]
    designs: dict[str, Any] = {"oracle": score, "length": 6, "alphabet": "ACGT", "oracle_calls": 20}
    run = stochflow.train(**designs, method="sgfn-db", settings=given, out=tmp_path / "run")
    assert len(asked) == 20 == run.summary.oracle_calls
    assert run.summary.j is None
    assert not {"j", "start_j"} & set(run.metrics.columns)
    paid = stochflow.load(run.path, score).evaluate(score_samples=True)
    assert paid.j is not None
    assert len(asked) > 20

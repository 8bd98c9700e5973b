"""Constraints in the loop: every method keeps to them, and the truth knows them."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

import stochflow
from stochflow.config.methods import METHODS
from stochflow.core.errors import ConfigError
from stochflow.core.random import RandomStreams
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.environment import SequenceEnvironment
from stochflow.environments.sequences.reward_noise import with_noise
from stochflow.environments.sequences.tfbind8 import TFBind8
from stochflow.experiments import build as experiment
from stochflow.experiments import launch
from stochflow.experiments.experiment import Experiment
from stochflow.objectives.path_terms import path_steps
from stochflow.sampling.rollout import rollout
from stochflow.truth.truth import SequenceTruth

TINY: dict[str, Any] = {
    "model": {"width": 16},
    "optimiser": {"batch_size": 32, "updates": 2},
    "evaluation": {"num_samples": 200, "every": 1},
    "budget": {"steps": 2},
    "dynamics": {"rounds": 1, "sample_size": 64},
    "plan": {"rows_per_level": 32},
}
RULES: dict[str, Any] = {"forbid": ["GC", "TAAT"], "gc": [0.25, 0.75], "max_homopolymer": 3}
NETWORK_METHODS = [name for name, method in METHODS.items() if not method.objective.edits_designs]


def build(**overrides: Any) -> Experiment:
    return experiment.build(launch.resolve_config([TINY, {"constraints": RULES}, overrides]))


@pytest.mark.parametrize("method", NETWORK_METHODS)
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_no_method_intends_what_is_not_allowed(method: str, noise: float) -> None:
    built = build(method=method, channel={"noise": noise}, exploration={"epsilon": 0.2, "temperature": 2.0})
    mask = built.network.mask
    assert mask is not None
    while not built.trainer.finished:
        built.trainer.train_step()
    replay = built.trainer.learner.replay.sample(64, torch.Generator().manual_seed(0))
    allowed = mask.all_prefixes(replay.outcomes)[:, :-1]
    assert bool(allowed.gather(-1, replay.intentions.unsqueeze(-1)).all())
    if noise == 0.0:
        assert bool(mask.alive(replay.outcomes).all())


@pytest.mark.parametrize("method", METHODS)
def test_losses_stay_of_a_size_that_can_be_learned_from(method: str) -> None:
    built = build(method=method, exploration={})
    records = []
    while not built.trainer.finished:
        records.append(built.trainer.train_step())
    # one masked log π of −69 in a residual would cost thousands
    assert all(abs(record.get("loss", 0.0)) < 1000 for record in records)


@pytest.mark.parametrize(("method", "blind"), [("gfn-tb", True), ("gfn-db", True), ("sgfn-tb", False)])
def test_blind_balance_leaves_out_paths_that_nobody_may_intend(method: str, blind: bool) -> None:
    built = build(method=method, channel={"noise": 0.5})
    built.trainer.train_step()
    learner = built.trainer.learner
    batch = learner.replay.sample(64, torch.Generator().manual_seed(0))
    assert built.network.mask is not None
    allowed = built.network.mask.all_prefixes(batch.outcomes)[:, :-1]
    meant = allowed.gather(-1, batch.outcomes.unsqueeze(-1)).squeeze(-1).all(dim=-1)
    assert 0 < meant.sum() < len(meant)
    valid = path_steps(learner, batch, 0).valid
    assert valid is not None
    expected = meant if blind else torch.ones_like(meant)  # noise-aware balance knows how such a path comes about
    assert torch.equal(valid, expected.unsqueeze(-1).expand_as(valid))


def test_the_exact_distribution_is_that_of_the_masked_policy() -> None:
    built = build(method="sgfn-db", channel={"noise": 0.0, "kind": "none"})
    assert built.truth is not None
    log_probs = built.policy.terminal_log_probs(built.environment)
    feasible = built.environment.task.feasible(built.environment.task.all_sequences)
    assert feasible is not None
    assert float(log_probs.exp().sum()) == pytest.approx(1.0, abs=1e-6)
    assert float(log_probs[~feasible].exp().sum()) < 1e-12
    walk = rollout(built.environment, built.network.sampler(500), 500, RandomStreams(0))
    assert bool(feasible[(walk.outcomes * 4 ** torch.arange(7, -1, -1)).sum(dim=-1)].all())
    given = built.policy.log_probs(walk, built.environment)
    codes = (walk.outcomes * 4 ** torch.arange(7, -1, -1)).sum(dim=-1)
    assert torch.allclose(given, log_probs[codes], atol=1e-4)


def test_the_truth_is_that_of_the_constrained_reward(tfbind8: TFBind8) -> None:
    built = build()
    assert isinstance(built.truth, SequenceTruth)
    feasible = built.environment.task.feasible(tfbind8.all_sequences)
    assert feasible is not None
    floor = torch.tensor(built.config.reward.floor, dtype=torch.float64).log()
    plain = SequenceTruth(SequenceEnvironment(tfbind8, built.environment.channel), built.truth.reward).log_rewards
    assert torch.equal(built.truth.log_rewards, torch.where(feasible, plain, floor))
    assert built.truth.evaluate(built.policy)["regret"] >= 0.0


def test_masks_bring_designs_that_satisfy_all_constraints(tmp_path: Path) -> None:
    settings = TINY | {"constraints": RULES | {"fixed": "A......."}, "channel": {"kind": "none"}}
    run = stochflow.train(config=settings, out=tmp_path / "clean")
    assert run.summary.feasible_fraction == 1.0
    noisy = stochflow.train(config=settings, noise=0.3, out=tmp_path / "noisy")
    assert noisy.summary.feasible_fraction is not None
    assert 0.05 < noisy.summary.feasible_fraction < 0.9
    frame = pd.read_csv(noisy.path / "samples.csv")
    assert frame["feasible"].mean() == noisy.summary.feasible_fraction
    assert (frame.loc[~frame["feasible"], "score"] == 0.0).all()
    assert frame["sequence"].str.startswith("A")[frame["feasible"]].all()
    assert noisy.evaluate().feasible_fraction == noisy.summary.feasible_fraction
    assert "feasible" in noisy.sample(10)


def test_a_run_without_constraints_has_neither_column_nor_share(tmp_path: Path) -> None:
    run = stochflow.train(config=TINY, out=tmp_path / "run")
    assert run.summary.feasible_fraction is None
    assert "feasible" not in pd.read_csv(run.path / "samples.csv")


def test_designs_that_break_a_constraint_are_no_oracle_calls() -> None:
    built = build(method="random", channel={"noise": 0.9})
    while not built.trainer.finished:
        built.trainer.train_step()
    memory = built.trainer.learner.memory
    feasible = built.environment.task.feasible(memory.sequences)
    assert feasible is not None
    assert built.trainer.calls == int(feasible.sum()) < len(memory)


def test_noise_never_lifts_what_breaks_a_constraint(tfbind8: TFBind8, generator: torch.Generator) -> None:
    task = build(reward_noise="gaussian:0.2").environment.task
    reward = Reward(beta=3.0, floor=1e-6, ramp=0.0)
    feasible = task.feasible(task.all_sequences)
    assert feasible is not None
    measured = task.measure(task.all_sequences, generator)
    assert task.noisy
    assert not bool(measured[~feasible].any())
    assert not torch.equal(measured[feasible], task.all_scores[feasible])
    log_rewards = task.log_reward(task.all_sequences, task.all_scores, reward)
    expected = with_noise(tfbind8, "gaussian:0.2").log_reward(task.all_sequences, task.all_scores, reward)
    floor = torch.tensor(1e-6, dtype=torch.float64).log()
    torch.testing.assert_close(log_rewards, torch.where(feasible, expected, floor))


def test_with_noise_every_visit_of_an_allowed_design_is_an_oracle_call() -> None:
    built = build(method="random", reward_noise="replicate", channel={"noise": 0.9})
    while not built.trainer.finished:
        built.trainer.train_step()
    memory = built.trainer.learner.memory
    feasible = built.environment.task.feasible(memory.sequences)
    assert feasible is not None
    assert memory.num_calls == built.trainer.trajectories
    assert built.trainer.calls == int(memory.counts[feasible].sum()) < memory.num_calls


def test_a_resumed_run_keeps_its_constraints(tmp_path: Path) -> None:
    out = tmp_path / "run"
    stochflow.train(config=TINY, constraints=RULES, out=out)
    with pytest.raises(ConfigError, match="another 'constraints'"):
        stochflow.train(out=out, resume=True, constraints={"forbid": ["A"]})
    assert stochflow.train(out=out, resume=True, steps=4).summary.steps == 4


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"gc": [0.6, 0.4]}, "the smaller first"),
        ({"gc": [0.5]}, "two shares"),
        ({"max_homopolymer": 0}, "max_homopolymer"),
        ({"forbid": "GC"}, "forbid"),
        ({"motif": ["GC"]}, "unknown setting 'constraints.motif'"),
        ({"forbid": ["A", "C", "G", "T"]}, "no sequence of length 8"),
    ],
)
def test_bad_constraints_are_refused_before_anything_is_written(
    given: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        stochflow.train(constraints=given, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()

"""Alphabets of up to 256 letters and lengths of up to 100 train within bounded memory."""

import math
from typing import Any

import pytest
import torch

from stochflow.config.layers import resolve
from stochflow.core.errors import ConfigError
from stochflow.core.logspace import log_marginal, safe_log
from stochflow.environments.registry import make_task
from stochflow.experiments.build import build, make_network
from stochflow.experiments.experiment import summarise
from stochflow.experiments.launch import resolve_config
from stochflow.models.evaluation import AtPrefixes
from stochflow.models.flow_network import FlowNetwork
from stochflow.models.kmer_body import MAX_BUCKETS, num_rows
from stochflow.models.kmers import suitable_kmers
from stochflow.models.transformer_body import TransformerBody
from stochflow.objectives.expected_balance import log_expected_flow
from stochflow.objectives.planned_kl import PlannedKL
from stochflow.objectives.planning.plan_prefixes import chosen_sequences
from stochflow.sampling.score_memory import ScoreMemory
from stochflow.surrogates.kmer_ridge import KmerRidge

SMALL: dict[str, Any] = {
    "device": "cpu",
    "channel": {"kind": "uniform-slip", "noise": 0.1},
    "model": {"width": 16, "num_layers": 1},
    "dynamics": {"rounds": 1, "sample_size": 32},
    "plan": {"rows_per_level": 16},
    "optimiser": {"batch_size": 24, "updates": 1},
    "budget": {"steps": 1},
    "evaluation": {"num_samples": 50},
    "imagination": {"updates": 2, "rows": 16, "num_chains": 8, "moves": 5},
}


@pytest.mark.parametrize(
    ("num_tokens", "length", "kmers"),
    [
        (4, 8, (1, 3, 5)),
        (4, 100, (1, 3, 5)),
        (2, 120, (1, 3, 5)),
        (20, 4, (1, 3, 5)),
        (20, 100, (1, 2)),
        (32, 32, (1, 2)),
        (256, 15, (1,)),
    ],
)
def test_kmers_follow_the_alphabet_and_the_length(num_tokens: int, length: int, kmers: tuple[int, ...]) -> None:
    found = suitable_kmers(num_tokens, length, MAX_BUCKETS)
    assert tuple(k for k in found if k <= length) == tuple(k for k in kmers if k <= length)
    assert num_rows(num_tokens, length, found) <= 2 * 2**17 + 1


def test_the_default_network_of_a_small_task_is_the_one_it_always_was() -> None:
    network = make_network(resolve([]).model, make_task("tfbind8"))
    assert network.body.kmers == (1, 3, 5)


@pytest.mark.parametrize(("name", "kmers"), [("ehrlich:20,100,4,4", [1, 3, 5]), ("bits:120,8", [1, 8])])
def test_tables_that_would_not_fit_are_refused(name: str, kmers: list[int]) -> None:
    model = resolve([{"model": {"kmers": kmers, "width": 512}}]).model
    with pytest.raises(ConfigError, match="kmers to null"):
        make_network(model, make_task(name))


def test_dynamics_that_see_the_state_are_refused_for_a_large_alphabet() -> None:
    config = resolve([SMALL, {"task": "bits:120,8", "dynamics": {"depends_on": "state"}}])
    with pytest.raises(ConfigError, match="depends_on to position"):
        build(config)


@pytest.mark.parametrize("shape", [(None, 3), (3, 3), (1, 3)])
def test_the_marginal_is_the_same_as_a_product_of_matrices(
    shape: tuple[int | None, int], monkeypatch: pytest.MonkeyPatch, generator: torch.Generator
) -> None:
    lead, num_tokens = shape
    log_policy = (20.0 * torch.randn(5, 4, num_tokens, generator=generator, dtype=torch.float64)).log_softmax(dim=-1)
    size = (num_tokens, num_tokens) if lead is None else ((1,) * (lead == 1) + (4, num_tokens, num_tokens))
    log_dynamics = (20.0 * torch.randn(size, generator=generator, dtype=torch.float64)).log_softmax(dim=-1)
    by_pairs = log_marginal(log_policy, log_dynamics)
    monkeypatch.setattr("stochflow.core.logspace._MAX_PAIRS", 0)
    torch.testing.assert_close(log_marginal(log_policy, log_dynamics), by_pairs, atol=1e-9, rtol=0)


def test_the_product_stays_finite_and_keeps_its_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stochflow.core.logspace._MAX_PAIRS", 0)
    logits = torch.tensor([[1e4, 0.0, -1e4]], requires_grad=True)
    log_dynamics = safe_log(torch.eye(3))
    value = log_marginal(logits.log_softmax(dim=-1), log_dynamics)
    value.sum().backward()
    assert bool(torch.isfinite(value).all())
    assert logits.grad is not None
    assert bool(torch.isfinite(logits.grad).all())


def test_no_table_of_pairs_is_kept_for_256_letters() -> None:
    log_policy = torch.zeros(40, 15, 256, requires_grad=True)
    log_dynamics = torch.zeros(1, 15, 256, 256).log_softmax(dim=-1)
    sizes = []

    def seen(tensor: torch.Tensor) -> torch.Tensor:
        sizes.append(tensor.untyped_storage().nbytes())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(seen, lambda tensor: tensor):
        total = log_marginal(log_policy.log_softmax(dim=-1), log_dynamics).sum()
        flows = log_expected_flow(log_dynamics, log_policy).sum()
    assert total.item() == pytest.approx(-math.log(256) * 40 * 15 * 256, rel=1e-4)
    assert flows.item() == pytest.approx(0.0, abs=1.0)
    # 15·256² numbers are four megabytes; one such table per row would be forty times that
    assert max(sizes) <= 4 * 15 * 256**2


def test_child_flows_are_the_flows_of_the_children(monkeypatch: pytest.MonkeyPatch, generator: torch.Generator) -> None:
    for body in (None, TransformerBody(3, 5, 8, num_layers=1, heads=2)):
        network = FlowNetwork(3, 5, (1, 2, 4), 8, 1, body)
        network.initialise(generator)
        network.flow_head.weight.data.normal_(generator=generator)
        tokens = torch.randint(3, (6, 5), generator=generator)
        monkeypatch.setattr("stochflow.models.flow_network._BLOCK", 2 * 5 * 3 * 8)  # two sequences at a time
        flows = network.children_along(tokens, torch.ones_like(tokens, dtype=torch.bool)).log_flow
        assert flows.shape == (6, 5, 3)
        for depth in range(5):
            for letter in range(3):
                child = tokens.clone()
                child[:, depth] = letter
                expected = network.evaluate(AtPrefixes(child)).heads().log_flow[:, depth + 1]
                torch.testing.assert_close(flows[:, depth, letter], expected, atol=1e-5, rtol=0)
                torch.testing.assert_close(network.log_flow_of(child[:, : depth + 1]), expected, atol=1e-5, rtol=0)


def test_predictions_do_not_depend_on_the_size_of_a_block(
    monkeypatch: pytest.MonkeyPatch, generator: torch.Generator
) -> None:
    model = KmerRidge(20, 12)
    tokens = torch.randint(20, (40, 12), generator=generator)
    model.fit(tokens, torch.rand(40, generator=generator, dtype=torch.float64))
    whole = model.predict_mean(tokens)
    monkeypatch.setattr("stochflow.surrogates.kmer_ridge._BLOCK", 300)
    torch.testing.assert_close(model.predict_mean(tokens), whole, atol=0, rtol=0)


def test_a_plan_beyond_its_size_keeps_the_best_and_the_newest(generator: torch.Generator) -> None:
    memory = ScoreMemory(4, 6)
    for _ in range(10):
        memory.pay(torch.randint(4, (20, 6), generator=generator), lambda rows: rows.double().sum(dim=-1))
    assert chosen_sequences(memory, 10**6) is None
    rows = chosen_sequences(memory, 4 * 6 * 30)
    assert rows is not None
    best = memory.scores.topk(15).indices.tolist()
    newest = list(range(len(memory) - 15, len(memory)))
    assert rows.tolist() == sorted({*best, *newest})


def test_a_smaller_plan_trains_and_resumes_where_it_was() -> None:
    layers = [SMALL, {"task": "ehrlich:4,8,2,3", "plan": {"whole": 0, "max_entries": 600}, "budget": {"steps": 4}}]
    experiment, restored = build(resolve(layers)), build(resolve(layers))
    for _ in range(2):
        experiment.trainer.train_step()
    state = {name: tensor.clone() for name, tensor in experiment.trainer.state_dict().items()}
    restored.trainer.load_state_dict(state)
    objective, again = experiment.trainer.objective, restored.trainer.objective
    assert isinstance(objective, PlannedKL)
    assert isinstance(again, PlannedKL)
    assert len(objective.trie) < len(experiment.trainer.learner.memory)
    assert torch.equal(objective.trie.sequences, again.trie.sequences)
    experiment.trainer.train_step()
    restored.trainer.train_step()
    for name, weight in experiment.network.state_dict().items():
        assert torch.equal(weight, restored.network.state_dict()[name]), name


def test_a_small_plan_knows_the_scores_it_left_out() -> None:
    experiment = build(resolve([SMALL, {"task": "ehrlich:4,8,2,3", "plan": {"whole": 0, "max_entries": 200}}]))
    experiment.trainer.train_step()
    learner, objective = experiment.trainer.learner, experiment.trainer.objective
    assert isinstance(objective, PlannedKL)
    paid = learner.memory.sequences
    values = objective._frontier(paid, step=0)
    torch.testing.assert_close(values, learner.reward.log_reward(learner.memory.scores, 0))


@pytest.mark.parametrize("method", ["sgfn-kl", "sgfn-kl-bootstrap", "sgfn-db", "edb", "soft-q", "ppo", "mcmc"])
@pytest.mark.parametrize("task", ["bits:32,8", "ehrlich:20,30,2,3"])
def test_every_kind_of_method_takes_a_step_on_large_alphabets(method: str, task: str) -> None:
    experiment = build(resolve_config([{"method": method}, SMALL, {"task": task}]))
    record = experiment.trainer.train_step()
    assert record["trajectories"] == 24
    summary, sampled = summarise(experiment)
    assert summary.kl is None
    assert sampled.log_probs.isfinite().all()

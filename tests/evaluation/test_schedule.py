"""How often a run is evaluated: by counts alone, within a share of its cost, and once at the least."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import stochflow
from stochflow.core.logspace import log_marginal, safe_log
from stochflow.environments.channels import uniform_slip
from stochflow.evaluation.schedule import (
    MOST,
    SHARE,
    Space,
    evaluated_every,
    evaluation_seconds,
    sequence_space,
    training_seconds,
)
from stochflow.experiments.build import build
from stochflow.experiments.launch import resolve_config
from stochflow.experiments.torch_settings import torch_threads
from stochflow.truth.prefix_tree import policy_log_marginals

TFBIND8 = sequence_space(4, 8)
BUDGETS: list[dict[str, Any]] = [
    {"trajectories": 32_000},
    {"steps": 63},
    {"oracle_calls": 32_000},
    {"minutes": 0.6},
]


def times(space: Space | None = TFBIND8, **settings: Any) -> int:
    """Evaluations that a run gets."""
    return round(1.0 / evaluated_every(resolve_config([settings]), space))


def test_a_space_of_sequences_has_a_prefix_for_every_state() -> None:
    assert sequence_space(4, 3) == Space([1, 4, 16], 4, 64, 3)


def test_a_share_that_is_asked_for_is_kept() -> None:
    assert evaluated_every(resolve_config([{"evaluation": {"every": 0.3}}]), TFBIND8) == 0.3


def test_what_costs_nothing_is_looked_at_twenty_times() -> None:
    assert times(None) == MOST


@pytest.mark.parametrize("budget", BUDGETS)
def test_every_kind_of_budget_pays_for_its_evaluations(budget: dict[str, Any]) -> None:
    assert times(budget=budget) in range(6, 14)
    tenth = {name: value / 10 if name == "minutes" else value // 10 for name, value in budget.items()}
    assert times(budget=tenth) == 1
    assert times(budget={name: 10 * value for name, value in budget.items()}) == MOST


def test_the_evaluations_on_paper_stay_within_their_share() -> None:
    for method in ("sgfn-kl", "gfn-tb", "sgfn-kl-trajectory", "ppo"):
        for trajectories in (8_000, 32_000, 128_000):
            config = resolve_config([{"method": method, "budget": {"trajectories": trajectories}}])
            num = 1.0 / evaluated_every(config, TFBIND8)
            share = num * evaluation_seconds(config, TFBIND8) / training_seconds(config, TFBIND8)
            assert num == 1 or share <= SHARE


def test_larger_spaces_are_evaluated_less_often_and_larger_steps_more_often() -> None:
    assert times(sequence_space(4, 10)) < times(sequence_space(4, 8)) <= times(sequence_space(4, 6))
    assert times(optimiser={"updates": 6}) < times(optimiser={"updates": 24})
    assert times(method="mcmc") == times(method="random") == 1


def test_an_untrained_network_is_evaluated_as_if_it_were_asked() -> None:
    experiment = build(resolve_config([{"channel": {"noise": 0.25}, "model": {"width": 16}}]))
    assert experiment.truth is not None
    unasked = experiment.evaluate()
    head = experiment.network.policy_head
    head.bias.data += 1.0  # the same policy, of a head that is not zero
    asked = experiment.evaluate()
    assert asked == pytest.approx(unasked, abs=1e-6)
    head.bias.data[0] += 1.0
    assert experiment.evaluate()["kl"] > unasked["kl"] + 0.1


@pytest.mark.parametrize("size", [1.0, 50.0, 1e4])
@pytest.mark.parametrize("noise", [0.0, 0.25])
def test_a_product_of_matrices_is_the_sum_in_log_space(size: float, noise: float) -> None:
    channel = uniform_slip(4, noise)
    logits = size * torch.randn(16, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    log_policy = logits.log_softmax(dim=-1)
    (found,) = policy_log_marginals([log_policy], channel)
    expected = log_marginal(log_policy, safe_log(channel.matrix(0)))
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)


def test_the_last_evaluation_serves_the_summary(tmp_path: Path) -> None:
    tiny = ("optimiser.batch_size=16", "optimiser.updates=2", "model.width=8", "evaluation.num_samples=20")
    run = stochflow.train("tfbind8", method="gfn-tb", trajectories=64, settings=tiny, out=tmp_path / "run")
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if "regret" in row] == [4]
    assert run.summary.regret == rows[-1]["regret"]
    assert stochflow.evaluate(run).regret == pytest.approx(rows[-1]["regret"], abs=1e-9)


def test_an_evaluation_takes_about_as_long_as_on_paper() -> None:
    """Off by more than a factor of five, the model of its cost would be worth nothing."""
    config = resolve_config([{"channel": {"noise": 0.25}}])
    experiment = build(config)
    experiment.network.policy_head.bias.data[0] += 1.0
    with torch_threads(1):
        experiment.evaluate()
        spent = []
        for _ in range(3):
            started = time.process_time()
            experiment.evaluate()
            spent.append(time.process_time() - started)
    assert 0.2 < min(spent) / evaluation_seconds(config, TFBIND8) < 5.0

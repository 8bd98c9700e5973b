"""KL from the plan's policy: its gradient, and intentions that come back after having been ruled out."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stochflow.experiments.build import build
from stochflow.experiments.experiment import Experiment
from stochflow.experiments.launch import resolve_config
from stochflow.objectives.divergence import policy_kl
from stochflow.objectives.path_gradients import StateOutputs
from stochflow.objectives.planned_graph_kl import PlannedGraphKL
from stochflow.objectives.planned_kl import PlannedKL
from tests.small_tasks import graph_experiment, graph_learner

SMALL: dict[str, Any] = {
    "model": {"width": 16, "num_layers": 1},
    "optimiser": {"batch_size": 128, "updates": 1},
    "dynamics": {"kind": "known"},
    "channel": {"noise": 0.1},
    "budget": {"steps": 1000},
}
# the letter C, or the stop after A, is worth more than everything else
FIXED = "sequence,score\nAA,0.1\nAB,0.2\nBA,0.1\nBB,0.3\nBC,0.2\nCA,0.9\nCB,1.0\nCC,0.8\n"
MIXED = "sequence,score\nA,1.0\nB,0.9\nAA,0.1\nAB,0.2\nBA,0.2\nBB,0.1\n"
RULED_OUT = -40.0


def test_the_gradient_in_the_logits_is_the_policy_minus_the_plan() -> None:
    logits = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    planned = torch.tensor([[0.2, 0.3, 0.5], [0.0, 0.4, 0.6], [1.0, 0.0, 0.0], [0.1, 0.1, 0.8], [1 / 3] * 3]).double()

    def loss(logits: torch.Tensor) -> torch.Tensor:
        return policy_kl(planned.clamp_min(1e-30).log(), torch.log_softmax(logits, dim=-1))

    assert torch.autograd.gradcheck(loss, (logits,))
    loss(logits).sum().backward()
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, torch.softmax(logits, dim=-1) - planned)


@pytest.mark.parametrize("size", [1.0, 1e4])
def test_the_closed_form_is_that_of_autograd(size: float) -> None:
    generator = torch.Generator().manual_seed(1)
    rows = (size * torch.randn(6, 9, dtype=torch.float64, generator=generator)).requires_grad_()
    planned = torch.randn(6, 4, dtype=torch.float64, generator=generator).softmax(dim=-1)
    planned[2] = torch.tensor([0.0, 0.0, 1.0, 0.0])
    weights = torch.rand(6, dtype=torch.float64, generator=generator)
    outputs = StateOutputs(rows.detach().numpy(), 4, np.ones(6))
    found = outputs.imitation_loss(planned.numpy(), weights.numpy(), 0.3)
    expected = weights @ policy_kl(planned.clamp_min(1e-30).log(), torch.log_softmax(rows[:, :4], dim=-1))
    (0.3 * expected).backward()
    assert found == pytest.approx(float(expected.detach()))
    assert np.isfinite(found)
    torch.testing.assert_close(torch.from_numpy(outputs.gradient), rows.grad)


def table_experiment(path: Path, table: str, **settings: Any) -> Experiment:
    path.write_text(table, encoding="utf-8")
    given = {
        "task": "table",
        "table": {"file": str(path), "alphabet": "".join(sorted(set(table) & set("ABC"))), "gap_score": 0.0},
    }
    return build(resolve_config([SMALL, given, settings]))


def shares_of_first_intentions(experiment: Experiment, intention: int, num_updates: int = 120) -> tuple[float, float]:
    """π(intention|s₀) of the plan and, after some updates, of a network that had ruled it out everywhere."""
    trainer = experiment.trainer
    objective, network = trainer.objective, trainer.learner.network
    fresh = trainer.collect()
    with torch.no_grad():
        network.get_parameter("policy_head.bias")[intention] = RULED_OUT
    for _ in range(num_updates):
        (terms,) = objective.updates(fresh, 0, 0.0)
        trainer.optimizer.step(terms["loss"], 0.03)
    if isinstance(objective, PlannedGraphKL):
        assert objective.plan is not None
        states = torch.zeros(1, dtype=torch.int64)
        graph_network = graph_learner(experiment).network
        with torch.no_grad():
            log_policy = graph_network.log_policy(graph_network.hidden(states), states)
        return float(objective.plan.log_policy[0, intention].exp()), float(log_policy[0, intention].exp())
    assert isinstance(objective, PlannedKL)
    assert objective.plan is not None
    log_policy = torch.from_numpy(objective.learner.network.sampler(1).log_policy())
    return float(objective.plan.policies[0][0, intention]), float(log_policy[0, intention].exp())


def test_a_letter_comes_back(tmp_path: Path) -> None:
    found = {}
    for weight in (0.0, 0.1):
        experiment = table_experiment(tmp_path / "t.csv", FIXED, objective={"imitation_weight": weight})
        found[weight] = shares_of_first_intentions(experiment, 2)
    planned, share = found[0.1]
    assert planned > 0.5
    assert share == pytest.approx(planned, abs=0.15)
    assert found[0.0][1] < 1e-6  # what the divergence alone does


def test_a_stop_comes_back(tmp_path: Path) -> None:
    for weight in (0.0, 0.1):
        experiment = table_experiment(
            tmp_path / "t.csv", MIXED, lengths={"variable": True}, objective={"imitation_weight": weight}
        )
        objective = experiment.trainer.objective
        assert isinstance(objective, PlannedKL)
        stop = objective.learner.network.stop
        assert stop is not None
        shares_of_first_intentions(experiment, stop)
        assert experiment.truth is not None
        regret = experiment.truth.evaluate(experiment.policy)["regret"]
        assert regret < 0.05 if weight else regret > 0.5


def test_an_intention_on_a_graph_comes_back() -> None:
    found = {}
    for weight in (0.0, 0.1):
        settings = {**SMALL, "objective": {"imitation_weight": weight}}
        found[weight] = shares_of_first_intentions(graph_experiment("hypergrid:2,4", **settings), 0)
    planned, share = found[0.1]
    assert planned > 0.3
    assert share == pytest.approx(planned, abs=0.15)
    assert found[0.0][1] < 1e-6

"""Closed-form gradients of losses over whole paths equal those that autograd finds."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from stochflow.experiments.build import build
from stochflow.experiments.launch import resolve_config
from stochflow.models.evaluation import AlongPaths, ClosedFormLoss
from stochflow.objectives.base import Terms
from stochflow.objectives.learners import SequenceLearner
from stochflow.objectives.path_gradients import log_softmax
from stochflow.sampling.trajectories import Trajectories
from stochflow.training.trainer import Trainer


def test_many_rows_have_the_softmax_of_a_few() -> None:
    logits = np.random.default_rng(0).normal(size=(3, 1000, 4))
    before = logits.copy()
    for found, expected in zip(log_softmax(logits), log_softmax(logits[:, :7]), strict=True):
        np.testing.assert_array_equal(found[:, :7], expected)
    np.testing.assert_array_equal(logits, before)


def trainer(method: str, settings: dict[str, Any]) -> Trainer:
    """A run in double precision whose policy, π_B, flows and P̂ are all far from uniform."""
    common = {"model": {"width": 16}, "optimiser": {"batch_size": 12, "updates": 1}, "budget": {"steps": 100}}
    made = build(resolve_config([{"method": method, "channel": {"noise": 0.3}}, common, settings])).trainer
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weight in (*made.learner.network.parameters(), *made.learner.dynamics.parameters()):
            weight.add_(0.3 * torch.randn(weight.shape, generator=generator))
        made.learner.network.get_parameter("body.embedding.weight")[0] = 0.0  # pads
    made.learner.network.double()
    return made


def found(made: Trainer, batch: Trajectories) -> tuple[Terms, list[Tensor]]:
    """Terms of a batch and the gradient of its loss."""
    weights = list(made.learner.network.parameters())
    (terms,) = made.objective.updates(batch, 3, 0.5)
    for weight in weights:
        weight.grad = None
    loss = terms["loss"]
    assert isinstance(loss, Tensor | ClosedFormLoss)
    loss.backward()
    return terms, [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in weights]


CASES: list[tuple[str, dict[str, Any]]] = [
    ("gfn-tb", {}),
    ("gfn-db", {}),
    ("sgfn-tb", {"objective": {"backward": "learned"}}),
    ("sgfn-db", {"objective": {"backward": "learned"}}),
    ("sgfn-db", {"objective": {"backward": "uniform"}}),
    ("sgfn-db", {"dynamics": {"depends_on": "state"}}),
    ("sgfn-kl-trajectory", {"exploration": {"epsilon": 0.0}}),
    ("sgfn-kl-trajectory", {"exploration": {"epsilon": 0.2, "temperature": 1.5}}),
    ("sgfn-kl-trajectory", {"dynamics": {"depends_on": "state"}}),
    ("sgfn-kl-trajectory", {"objective": {"lambda_ratio": 3.0}}),
    ("sgfn-kl-trajectory", {"objective": {"lambda_dynamics": 3.0, "gammas": [0.25, 0.9], "quantile": 0.6}}),
]


@pytest.mark.parametrize(("remembered", "engine"), [(False, True), (True, True), (False, False)])
@pytest.mark.parametrize(("method", "settings"), CASES)
def test_a_closed_form_is_the_gradient_of_autograd(
    method: str, settings: dict[str, Any], remembered: bool, engine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = trainer(method, settings)
    fresh = made.collect()
    if remembered:
        made.learner.network.evaluate(AlongPaths(fresh.outcomes, fresh.valid))  # what sampling has kept is used up
    closed, gradients = found(made, fresh)
    assert isinstance(closed["loss"], ClosedFormLoss)
    if not engine:
        made.learner.network.use_engine = False
        closed, gradients = found(made, fresh)
        assert isinstance(closed["loss"], ClosedFormLoss)
    monkeypatch.setattr(SequenceLearner, "is_full", lambda *_: False)
    expected, by_autograd = found(made, fresh)
    assert isinstance(expected["loss"], Tensor)
    assert list(closed) == list(expected)
    for name, term in expected.items():
        assert float(closed[name]) == pytest.approx(float(torch.as_tensor(term).detach()), abs=1e-6, rel=1e-6), name
    assert sum(float(gradient.abs().sum()) for gradient in by_autograd) > 1.0
    for one, other in zip(gradients, by_autograd, strict=True):
        torch.testing.assert_close(one, other, atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("gfn-tb", {"objective": {"loss": "linex"}}),
        ("sgfn-db", {"objective": {"backward": "posterior"}}),
    ],
)
def test_what_has_no_closed_form_is_left_to_autograd(method: str, settings: dict[str, Any]) -> None:
    made = trainer(method, settings)
    (terms,) = made.objective.updates(made.collect(), 3, 0.5)
    assert isinstance(terms["loss"], Tensor)


def test_paths_with_a_given_beginning_are_left_to_autograd() -> None:
    made = trainer("gfn-tb", {})
    fresh = made.collect()
    valid = fresh.valid.clone()
    valid[0, 0] = False
    (terms,) = made.objective.updates(replace(fresh, valid=valid), 3, 0.5)
    assert isinstance(terms["loss"], Tensor)


@pytest.mark.parametrize("method", ["gfn-tb", "sgfn-db", "sgfn-kl-trajectory"])
def test_a_gradient_added_in_place_moves_the_weights_as_a_returned_one(method: str) -> None:
    made, other = (trainer(method, {}) for _ in range(2))
    fresh, same = made.collect(), other.collect()
    (terms,) = made.objective.updates(fresh, 3, 0.5)
    made.optimizer.step(terms["loss"], 0.1)
    _, gradients = found(other, same)
    norm = torch.cat([each.flatten() for each in gradients]).norm()
    share = (made.optimizer.clip / norm).clamp_max(1.0)
    for weight, gradient in zip(made.learner.network.parameters(), gradients, strict=True):
        assert weight.grad is not None
        torch.testing.assert_close(weight.grad, gradient * share, rtol=1e-5, atol=1e-9)

"""Tables learned from counts: the same updates as by automatic differentiation, without it."""

import itertools
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from stochflow.environments.channels import confusion
from stochflow.models.dynamics.tabular import (
    DependsOn,
    DynamicsModel,
    counted_gradient,
    dynamics_cross_entropy,
    table_log_probs,
    transition_codes,
    transition_counts,
)
from stochflow.models.dynamics.tabular_fit import TableAdam
from stochflow.training.optimizer import FlatAdam

NUM_TOKENS, LENGTH, NUM = 4, 8, 512
TABULAR: tuple[DependsOn, ...] = ("intention", "position")
CHANNEL = confusion([[0.7, 0.1, 0.1, 0.1], [0.0, 0.9, 0.1, 0.0], [0.25, 0.25, 0.25, 0.25], [0.0, 0.0, 0.0, 1.0]])
# the last intention is obeyed, and nothing else leads to its outcome
POSSIBLE = torch.tensor([[True, True, True, False]] * 3 + [[False, False, False, True]])
Steps = tuple[Tensor, Tensor, Tensor]


def draw(generator: torch.Generator) -> Steps:
    """Intentions, outcomes and which steps are real, [NUM, LENGTH] each; the first row is not real at all."""
    intentions = torch.randint(NUM_TOKENS, (NUM, LENGTH), generator=generator)
    outcomes = torch.stack([CHANNEL.sample(column, t, generator) for t, column in enumerate(intentions.T)], dim=1)
    valid = torch.arange(LENGTH) < torch.arange(NUM).unsqueeze(-1) % (LENGTH + 1)
    return intentions, outcomes, valid


def counts_of(steps: Steps) -> npt.NDArray[np.int64]:
    """[1, LENGTH, K, K]."""
    intentions, outcomes, valid = (column.numpy()[None] for column in steps)
    return transition_counts(transition_codes(intentions, outcomes, NUM_TOKENS), valid, NUM_TOKENS)


def by_autograd(model: DynamicsModel, optimizer: FlatAdam, draws: list[Steps], learning_rate: float) -> list[float]:
    losses = []
    for intentions, outcomes, valid in draws:
        loss = dynamics_cross_entropy(model.log_matrices(outcomes), intentions, outcomes, valid)
        losses.append(float(loss.detach()))
        optimizer.step(loss, learning_rate)
    return losses


def pair(
    depends_on: DependsOn, clip: float, dtype: torch.dtype = torch.float32
) -> tuple[tuple[DynamicsModel, FlatAdam], tuple[DynamicsModel, TableAdam]]:
    slow, fast = (DynamicsModel(NUM_TOKENS, LENGTH, depends_on).to(dtype) for _ in range(2))
    return (slow, FlatAdam(list(slow.parameters()), clip)), (fast, TableAdam(fast, clip))


def assert_same_tables(first: DynamicsModel, second: DynamicsModel, tolerance: float = 1e-6) -> None:
    for left, right in zip(first.parameters(), second.parameters(), strict=True):
        torch.testing.assert_close(left, right, atol=tolerance, rtol=0)
        assert float(left.detach().abs().max()) > 0.1


@pytest.mark.parametrize("masked", [False, True])
def test_the_gradient_in_closed_form_is_that_of_automatic_differentiation(
    masked: bool, generator: torch.Generator
) -> None:
    possible = POSSIBLE if masked else None
    model = DynamicsModel(NUM_TOKENS, LENGTH, "position", possible=possible).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=3.0, generator=generator)
    steps = draw(generator)
    intentions, outcomes, valid = steps
    loss = dynamics_cross_entropy(model.log_matrices(outcomes), intentions, outcomes, valid)
    loss.backward()
    counts = torch.from_numpy(counts_of(steps)[0]).double()
    assert model.position is not None
    logits = np.moveaxis((model.intention + model.position).detach().numpy(), -1, 0)
    shares = np.moveaxis((counts / valid.sum()).numpy(), -1, 0)
    mask = np.ones((NUM_TOKENS, 1, NUM_TOKENS), np.bool_) if possible is None else possible.numpy().T[:, None]
    totals = (shares * mask).sum(axis=0)
    found, known = np.empty_like(logits), mask if masked else None
    counted_gradient(logits, shares * mask, totals, known, found)
    log_probs = table_log_probs(logits, known)
    assert -float((shares * log_probs).sum()) == pytest.approx(loss.item(), rel=1e-12)
    gradient = torch.from_numpy(np.moveaxis(found, 0, -1))
    torch.testing.assert_close(gradient, model.position.grad, atol=1e-14, rtol=0)
    torch.testing.assert_close(gradient.sum(dim=0), model.intention.grad, atol=1e-14, rtol=0)


@pytest.mark.parametrize(
    ("dtype", "clip", "tolerance"),
    [(torch.float32, 10.0, 1e-6), (torch.float64, 10.0, 1e-12), (torch.float64, 0.01, 1e-12)],
)
@pytest.mark.parametrize("depends_on", TABULAR)
def test_fifty_updates_are_those_of_automatic_differentiation(
    depends_on: DependsOn, dtype: torch.dtype, clip: float, tolerance: float, generator: torch.Generator
) -> None:
    draws = [draw(generator) for _ in range(50)]
    (slow, optimizer), (fast, tables) = pair(depends_on, clip, dtype)
    expected = by_autograd(slow, optimizer, draws, 0.02)
    losses = tables.fit(np.concatenate([counts_of(steps) for steps in draws]), 0.02)
    assert losses.tolist() == pytest.approx(expected, abs=tolerance)
    assert_same_tables(fast, slow, tolerance)


@pytest.mark.parametrize("depends_on", TABULAR)
def test_either_optimiser_goes_on_where_the_other_stopped(depends_on: DependsOn, generator: torch.Generator) -> None:
    draws = [draw(generator) for _ in range(20)]
    (slow, optimizer), (fast, tables) = pair(depends_on, 10.0)
    assert tables.state_dict() == optimizer.state_dict() == {}
    by_autograd(slow, optimizer, draws[:10], 0.02)
    fast.load_state_dict(slow.state_dict())
    tables.load_state_dict({name: tensor.clone() for name, tensor in optimizer.state_dict().items()})
    by_autograd(slow, optimizer, draws[10:], 0.02)
    tables.fit(np.concatenate([counts_of(steps) for steps in draws[10:]]), 0.02)
    assert_same_tables(fast, slow)
    left, right = tables.state_dict(), optimizer.state_dict()
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        assert tensor.dtype == right[name].dtype
        torch.testing.assert_close(tensor, right[name], atol=1e-6, rtol=0)
    optimizer.load_state_dict(left)
    tables.load_state_dict({})
    assert tables.state_dict() == {}


def test_what_was_saved_does_not_change_with_later_updates(generator: torch.Generator) -> None:
    _, (_, tables) = pair("position", 10.0)
    counts = counts_of(draw(generator))
    tables.fit(counts, 0.02)
    saved = tables.state_dict()
    kept = {name: tensor.clone() for name, tensor in saved.items()}
    tables.fit(counts, 0.02)
    assert all(torch.equal(saved[name], kept[name]) for name in kept)


@pytest.mark.parametrize("depends_on", TABULAR)
def test_draws_without_a_real_step_cost_nothing_and_teach_nothing(depends_on: DependsOn) -> None:
    _, (model, tables) = pair(depends_on, 10.0)
    nothing = np.zeros((2, LENGTH, NUM_TOKENS, NUM_TOKENS), np.int64)
    assert tables.fit(nothing, 0.02).tolist() == [0.0, 0.0]
    assert all(not bool(parameter.any()) for parameter in model.parameters())


def test_a_model_with_a_network_in_it_cannot_be_learned_from_counts() -> None:
    for model in (DynamicsModel(4, 8, "state"), DynamicsModel(4, 8, "position", context_width=3)):
        assert not model.tabular
        with pytest.raises(ValueError, match="nothing but tables"):
            TableAdam(model, 10.0)


def by_hand(draw: list[tuple[list[int], list[int], list[bool]]]) -> Iterator[tuple[int, int, int]]:
    for intentions, outcomes, valid in draw:
        for position, (intention, outcome, real) in enumerate(zip(intentions, outcomes, valid, strict=True)):
            if real:
                yield position, intention, outcome


@pytest.mark.parametrize("num_tokens", [3, 120, 200])  # two draws of 120 fit not into what one fits into
def test_transitions_are_counted_by_draw_and_position(num_tokens: int, generator: torch.Generator) -> None:
    shape = (2, 5, 3)
    # as bytes, which is how the replay buffer keeps them: codes of pairs are larger than that
    intentions, outcomes = (torch.randint(num_tokens, shape, generator=generator).to(torch.uint8) for _ in range(2))
    valid = torch.rand(shape, generator=generator) < 0.7
    for mask in (valid, None):
        real = None if mask is None else mask.numpy()
        codes = transition_codes(intentions.numpy(), outcomes.numpy(), num_tokens)
        counts = transition_counts(codes, real, num_tokens)
        expected = torch.zeros(2, 3, num_tokens, num_tokens, dtype=torch.int64)
        counted = torch.ones_like(valid) if mask is None else mask
        for number, columns in enumerate(zip(intentions.tolist(), outcomes.tolist(), counted.tolist(), strict=True)):
            for place in by_hand(list(itertools.zip_longest(*columns))):
                expected[number][place] += 1
        assert np.array_equal(counts, expected.numpy())

"""The learning rate, and the check that numbers stay finite."""

import math
from itertools import pairwise

import pytest
import torch
from torch import nn

from stochflow.core.errors import NumericsError
from stochflow.training.optimizer import FlatAdam, learning_rate_factor, require_finite


@pytest.mark.parametrize(
    ("progress", "warmup", "factor"),
    [
        (0.0, 0.1, 0.0),
        (0.025, 0.1, 0.25),
        (0.1, 0.1, 1.0),
        (0.3, 0.1, 1.0),
        (0.5, 0.1, 1.0),
        (0.625, 0.1, 0.5 + math.sqrt(0.125)),
        (0.75, 0.1, 0.5),
        (1.0, 0.1, 0.0),
        (1.5, 0.1, 0.0),
        (0.0, 0.0, 1.0),
        (0.25, 0.5, 0.5),
    ],
)
def test_the_learning_rate_warms_up_stays_and_falls_by_a_cosine(progress: float, warmup: float, factor: float) -> None:
    assert learning_rate_factor(progress, warmup) == pytest.approx(factor, abs=1e-12)


def test_the_learning_rate_has_no_jumps() -> None:
    factors = [learning_rate_factor(index / 10_000, 0.02) for index in range(10_001)]
    steps = [abs(after - before) for before, after in pairwise(factors)]
    assert max(steps) <= 1 / 200 + 1e-12  # the warm-up is its steepest part
    assert max(factors) == 1.0


def test_a_term_that_is_not_finite_is_named() -> None:
    assert require_finite({"loss": torch.tensor(1.0), "spread": torch.tensor(0.5)}) == {"loss": 1.0, "spread": 0.5}
    for bad in (math.nan, math.inf, -math.inf):
        with pytest.raises(NumericsError, match=f"'flow_loss' became {bad}"):
            require_finite({"kl_loss": torch.tensor(1.0), "flow_loss": torch.tensor(bad)})


def test_the_part_that_broke_is_named_and_not_the_sum() -> None:
    terms = {"loss": torch.tensor(math.nan), "kl_loss": torch.tensor(1.0), "flow_loss": torch.tensor(math.nan)}
    with pytest.raises(NumericsError, match="'flow_loss'"):
        require_finite(terms)


def test_numbers_and_tensors_are_checked_alike() -> None:
    terms = {"loss": 2.0, "spread": torch.tensor(0.5), "residual": -1.0}
    assert require_finite(terms) == {"loss": 2.0, "spread": 0.5, "residual": -1.0}
    with pytest.raises(NumericsError, match="'residual' became nan"):
        require_finite({**terms, "residual": math.nan})


def test_a_weight_keeps_its_order_in_memory_and_moves_as_any_other() -> None:
    by_rows = nn.Parameter(torch.arange(12.0).view(3, 4))
    by_columns = nn.Parameter(torch.arange(12.0).view(3, 4).t().contiguous().t())
    pull = torch.linspace(-1.0, 1.0, 12).view(3, 4)
    for weight in (by_rows, by_columns):
        optimizer, strides = FlatAdam([nn.Parameter(torch.zeros(5)), weight], clip=1.0), weight.stride()
        for _ in range(3):
            optimizer.step((weight * pull).sum(), 0.1)
        assert weight.stride() == strides
        moments = optimizer.state_dict()["1.exp_avg"]
        torch.testing.assert_close(moments / moments.norm(), pull / pull.norm())
    assert by_rows.stride() != by_columns.stride()
    torch.testing.assert_close(by_rows.detach(), by_columns.detach())


@pytest.mark.parametrize("quiet_steps", [0, 1, 7, 30, 1000])
@pytest.mark.parametrize("growth", [1.0, 1.11, 4.0])
def test_a_weight_never_moves_by_eight_learning_rates(quiet_steps: int, growth: float) -> None:
    # what the weights' check relies on; rare and growing gradients make Adam's largest steps
    weight = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = FlatAdam([weight], clip=math.inf)
    moves = []
    for step in range(quiet_steps + 40):
        gradient = 0.0 if step < quiet_steps else growth ** (step - quiet_steps)
        before = weight.item()
        optimizer.step((gradient * weight).sum(), learning_rate=0.01)
        moves.append(abs(weight.item() - before))
    assert 0.005 < max(moves) < 0.08


def test_weights_that_overflow_are_named_after_the_step_that_did_it() -> None:
    weight = nn.Parameter(torch.full((3,), 1e38))
    optimizer = FlatAdam([weight], clip=1.0)
    for _ in range(3):  # small steps look once and then no more
        optimizer.step(-weight.sum() / 1e38, learning_rate=1e-3)
        optimizer.require_finite()
    optimizer.step(-weight.sum() / 1e38, learning_rate=3e38)
    with pytest.raises(NumericsError, match=r"'sum of all weights' became (inf|nan)"):
        optimizer.require_finite()


def test_weights_are_looked_at_again_before_they_can_have_moved_far() -> None:
    weight = nn.Parameter(torch.zeros(2))
    optimizer = FlatAdam([weight], clip=1.0)
    optimizer.require_finite()
    looked = []
    for _ in range(8):
        optimizer.step(weight.sum(), learning_rate=0.25)
        with torch.no_grad():
            kept = weight[0].item()
            weight[0] = math.nan  # nothing but a look can tell
        try:
            optimizer.require_finite()
            looked.append(False)
        except NumericsError:
            looked.append(True)
        with torch.no_grad():
            weight[0] = kept
        if looked[-1]:
            optimizer.require_finite()
    assert looked == [False, False, False, True] * 2

"""The optimum under channels with memory, beside gradient ascent over tables of all histories."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from stochflow.environments.channels import Channel, confusion
from stochflow.environments.memory_channels import MemoryChannel, bursts, mixture
from stochflow.truth.information import from_pairs, informed_optimum, nothing, revealed
from stochflow.truth.prefix_tree import attainable_optimum

LENGTH = 3
LOG_REWARD = torch.tensor([0.6, 0.02, 0.02, 0.05, 0.02, 0.25, 0.01, 0.03], dtype=torch.float64).log()
CHANNELS = [mixture(2, [0.0, 0.6]), bursts(2, slip=0.9, begin=0.3, end=0.3, between=0.05)]
EVERYTHING = torch.tensor(list(itertools.product(range(2), repeat=LENGTH)))


def best_by_ascent(channel: MemoryChannel, with_history: bool, seed: int) -> float:
    """Smallest KL that gradient descent finds over one logit per (history of pairs or outcomes, intention).

    P(x) is summed over all intentions with the channel's probability of the whole sequence, so neither beliefs nor the
    recursion over them have a part in it.
    """
    likelihood = torch.stack([channel.log_prob(a.expand(8, -1), EVERYTHING) for a in EVERYTHING]).exp()  # [a, x]
    generator = torch.Generator().manual_seed(seed)
    logits = [torch.randn(4**t, 2, dtype=torch.float64, generator=generator).requires_grad_() for t in range(LENGTH)]
    rows = []
    for t in range(LENGTH):
        row = torch.zeros(8, 8, dtype=torch.int64)
        for past in range(t):
            row = row * 4 + EVERYTHING[None, :, past] + (2 * EVERYTHING[:, None, past] if with_history else 0)
        rows.append(row)
    optimizer = torch.optim.LBFGS(logits, max_iter=600, line_search_fn="strong_wolfe", tolerance_grad=1e-10)

    def kl() -> Tensor:
        probs = likelihood
        for t, row in enumerate(rows):
            probs = probs * logits[t].softmax(dim=-1)[row, EVERYTHING[:, None, t]]
        made = probs.sum(dim=0)
        return (made * (made.log() - LOG_REWARD.log_softmax(dim=0))).sum()

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = kl()
        loss.backward()  # type: ignore[no-untyped-call]  # torch
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]  # torch
    return float(kl().detach())


@pytest.mark.parametrize("channel", CHANNELS, ids=lambda channel: channel.name)
def test_the_optimum_with_history_is_what_gradient_descent_finds_over_all_histories(channel: MemoryChannel) -> None:
    information = from_pairs(channel, LENGTH)
    assert information is not None
    found = informed_optimum(LOG_REWARD, information, gap=1e-6)
    assert found.gap < 1e-4
    assert found.min_kl == pytest.approx(min(best_by_ascent(channel, True, seed) for seed in range(4)), abs=1e-4)


@pytest.mark.parametrize("channel", CHANNELS, ids=lambda channel: channel.name)
def test_the_optimum_without_history_is_the_best_of_several_descents(channel: MemoryChannel) -> None:
    found = informed_optimum(LOG_REWARD, revealed(channel, LENGTH), blind=True)
    assert found.min_kl == pytest.approx(min(best_by_ascent(channel, False, seed) for seed in range(4)), abs=1e-4)
    # the same from beliefs: what is averaged out does not matter
    information = from_pairs(channel, LENGTH)
    assert information is not None
    assert found.min_kl == pytest.approx(informed_optimum(LOG_REWARD, information, blind=True).min_kl, abs=1e-5)


def test_to_know_more_is_better() -> None:
    channel = mixture(2, [0.0, 0.6])
    information = from_pairs(channel, LENGTH)
    assert information is not None
    told, seen = informed_optimum(LOG_REWARD, revealed(channel, LENGTH)), informed_optimum(LOG_REWARD, information)
    blind = informed_optimum(LOG_REWARD, information, blind=True)
    assert told.min_kl < seen.min_kl < blind.min_kl


def test_without_memory_it_is_the_recursion_on_the_prefix_tree() -> None:
    channel = confusion([[0.8, 0.2], [0.1, 0.9]])
    found = informed_optimum(LOG_REWARD, nothing(channel, LENGTH), gap=1e-7)
    exact = attainable_optimum(LOG_REWARD, channel, LENGTH)
    assert found.min_kl == pytest.approx(exact.min_kl, abs=1e-5)
    assert found.upper_bound >= exact.value - 1e-9


def test_a_mixture_of_equal_machines_is_no_memory() -> None:
    channel = mixture(2, [0.4, 0.4])
    information = from_pairs(channel, LENGTH)
    assert information is not None
    assert [len(kernel) for kernel in information.kernels] == [1, 1, 1]
    exact = attainable_optimum(LOG_REWARD, Channel(channel.matrices, "mean"), LENGTH)
    assert informed_optimum(LOG_REWARD, information).min_kl == pytest.approx(exact.min_kl, abs=1e-5)


def test_only_different_beliefs_are_kept_and_too_many_are_refused() -> None:
    machines = from_pairs(mixture(4, [0.02, 0.3]), 8)
    assert machines is not None
    assert [len(kernel) for kernel in machines.kernels] == list(range(1, 9))  # how often something went wrong
    assert machines.num_entries() == sum((t + 1) * 4 ** (t + 1) for t in range(8))
    assert from_pairs(bursts(4, 0.8, 0.1, 0.3, 0.05), 8, most=2**16) is None


def test_the_answers_of_the_world_sum_to_one() -> None:
    for channel in CHANNELS:
        for information in (from_pairs(channel, LENGTH), revealed(channel, LENGTH)):
            assert information is not None
            for kernel in information.kernels:
                sums = kernel.sum(dim=(-2, -1))
                torch.testing.assert_close(sums, torch.ones_like(sums))
    assert math.isclose(float(revealed(CHANNELS[0], LENGTH).start.sum()), 1.0)

"""Channels: hand-worked matrices, sampling that agrees with them, and errors that name the fault."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from stochflow.core.errors import ConfigError
from stochflow.environments.channels import (
    Channel,
    confusion,
    dna_synthesis,
    noiseless,
    positional,
    positional_slip,
    uniform_slip,
)

ASYMMETRIC = [[0.7, 0.2, 0.1], [0.0, 0.5, 0.5], [0.3, 0.3, 0.4]]


def frequency_tolerance(num_samples: int, num_cells: int) -> float:
    """Deviation that any of the cells exceeds with probability below 1e-6 (Hoeffding, union bound)."""
    return math.sqrt(math.log(2 * num_cells / 1e-6) / (2 * num_samples))


def test_a_slip_redraws_uniformly_with_the_intended_token_included() -> None:
    matrix = uniform_slip(4, 0.4).matrix(0)
    expected = torch.full((4, 4), 0.1, dtype=torch.float64).fill_diagonal_(0.7)
    torch.testing.assert_close(matrix, expected)


def test_without_noise_the_outcome_is_the_intention(generator: torch.Generator) -> None:
    intentions = torch.randint(5, (1000,), generator=generator)
    assert torch.equal(noiseless(5).sample(intentions, 3, generator), intentions)
    assert torch.equal(noiseless(5).matrix(2), torch.eye(5, dtype=torch.float64))


def test_a_slip_of_zero_is_the_noiseless_channel() -> None:
    assert torch.equal(uniform_slip(4, 0.0).matrices, noiseless(4).matrices)


def test_dna_synthesis_makes_transitions_more_often_than_transversions() -> None:
    stay, transition, transversion = 0.97, 0.02, 0.005
    expected = torch.tensor(
        [  # to A, C, G, T
            [stay, transversion, transition, transversion],  # from A: purine to purine is A↔G
            [transversion, stay, transversion, transition],  # from C: pyrimidine to pyrimidine is C↔T
            [transition, transversion, stay, transversion],
            [transversion, transition, transversion, stay],
        ],
        dtype=torch.float64,
    )
    torch.testing.assert_close(dna_synthesis(0.03).matrix(0), expected)


def test_a_third_of_transitions_is_uniform_substitution() -> None:
    matrix = dna_synthesis(0.3, transition_share=1 / 3).matrix(0)
    torch.testing.assert_close(matrix, torch.full((4, 4), 0.1, dtype=torch.float64).fill_diagonal_(0.7))


def test_every_position_has_its_own_slip() -> None:
    channel = positional_slip(2, [0.0, 0.5, 0.8])
    diagonals = [channel.matrix(position)[0, 0].item() for position in range(3)]
    assert diagonals == pytest.approx([1.0, 0.75, 0.6])


@pytest.mark.parametrize(
    "channel",
    [uniform_slip(3, 0.3), confusion(ASYMMETRIC), positional_slip(3, [0.9, 0.2]), dna_synthesis(0.2)],
    ids=lambda channel: channel.name,
)
def test_samples_follow_the_matrix_of_their_position(channel: Channel, generator: torch.Generator) -> None:
    num_samples, num_tokens = 20_000, channel.num_tokens
    tolerance = frequency_tolerance(num_samples, 2 * num_tokens**2)
    intentions = torch.arange(num_tokens).repeat_interleave(num_samples)
    for position in range(2):
        outcomes = channel.sample(intentions, position, generator)
        counts = torch.bincount(intentions * num_tokens + outcomes, minlength=num_tokens**2).reshape(num_tokens, -1)
        torch.testing.assert_close(counts / num_samples, channel.matrix(position).float(), atol=tolerance, rtol=0)


@pytest.mark.parametrize("draw", [0.0, 1.0 - 2.0**-53], ids=["lowest", "highest"])
@pytest.mark.parametrize(
    ("row", "lowest", "highest"),
    [
        ([0.0, 0.5, 0.5, 0.0], 1, 2),
        ([0.0, 0.0, 1.0, 0.0], 2, 2),
        ([0.1] * 10, 0, 9),  # its cumulative sum ends below one by rounding
    ],
)
def test_the_ends_of_the_unit_interval_hit_possible_tokens(
    monkeypatch: pytest.MonkeyPatch, row: list[float], lowest: int, highest: int, draw: float
) -> None:
    def rand(shape: torch.Size, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
        return torch.full(shape, draw, dtype=dtype)

    monkeypatch.setattr(torch, "rand", rand)
    outcome = confusion([row] * len(row)).sample(torch.tensor([0]), 0, torch.Generator())
    assert outcome.item() == (lowest if draw == 0.0 else highest)


def test_sampling_uses_the_given_generator_and_no_other() -> None:
    channel, intentions = uniform_slip(4, 0.8), torch.zeros(200, dtype=torch.int64)
    before = torch.get_rng_state()
    first, again, other = (channel.sample(intentions, 0, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)


def test_log_matrices_have_a_matrix_per_position_with_intentions_as_rows() -> None:
    channel = positional([ASYMMETRIC, torch.eye(3).tolist()])
    outcomes = torch.tensor([[1, 1], [2, 0]])
    intentions = torch.tensor([[0, 1], [1, 2]])
    positions = torch.tensor([[0, 1], [0, 1]])
    expected = torch.tensor([[0.2, 1.0], [0.5, 1e-30]], dtype=torch.float64).log()
    torch.testing.assert_close(channel.log_matrices(2)[positions, intentions, outcomes], expected)


def test_one_matrix_serves_every_position_when_all_are_alike() -> None:
    channel = confusion(ASYMMETRIC)
    log_probs = channel.log_matrices(30)[[0, 29], 0, 2]
    torch.testing.assert_close(log_probs.exp(), torch.tensor([0.1, 0.1], dtype=torch.float64))


def test_log_matrices_hold_one_table_per_position() -> None:
    per_position = positional_slip(2, [0.0, 0.5]).log_matrices(2)
    expected = torch.tensor([[[1.0, 1e-30], [1e-30, 1.0]], [[0.75, 0.25], [0.25, 0.75]]], dtype=torch.float64)
    torch.testing.assert_close(per_position, expected.log())
    shared = confusion(ASYMMETRIC).log_matrices(5)
    assert shared.shape == (5, 3, 3)
    torch.testing.assert_close(shared[4].exp(), torch.tensor(ASYMMETRIC, dtype=torch.float64))


def test_entropies_are_those_of_the_rows() -> None:
    entropies = positional([[[0.5, 0.5], [0.0, 1.0]], [[0.25, 0.75], [1.0, 0.0]]]).entropies()
    quarter = 0.25 * math.log(4.0) + 0.75 * math.log(4.0 / 3.0)
    torch.testing.assert_close(
        entropies, torch.tensor([[math.log(2.0), 0.0], [quarter, 0.0]], dtype=torch.float64), atol=1e-12, rtol=0
    )


def test_noise_is_reported_as_the_slip_or_by_name() -> None:
    assert noiseless(4).noise == 0.0
    assert uniform_slip(4, 0.25).noise == 0.25
    assert uniform_slip(4, 0.25).name == "uniform-slip:0.25"
    assert dna_synthesis(0.01).noise == "dna-synthesis:0.01"
    assert positional_slip(4, [0.1, 0.2]).noise == "positional-slip:0.1,0.2"
    assert confusion(ASYMMETRIC, "plate 7").noise == "plate 7"


def test_rows_that_sum_to_one_within_rounding_are_made_exact() -> None:
    row = [1 / 3 + 2e-7, 1 / 3, 1 / 3]
    sums = confusion([row] * 3).matrix(0).sum(dim=-1)
    torch.testing.assert_close(sums, torch.ones(3, dtype=torch.float64), atol=1e-15, rtol=0)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: uniform_slip(4, -0.1), "noise is -0.1"),
        (lambda: uniform_slip(4, 1.0), "below 1"),
        (lambda: uniform_slip(4, math.nan), "noise is nan"),
        (lambda: positional_slip(4, [0.1, 1.5]), "noise is 1.5"),
        pytest.param(lambda: positional_slip(4, []), "position"),
        (lambda: dna_synthesis(1.0), "error rate is 1"),
        (lambda: dna_synthesis(-0.01), "error rate is -0.01"),
        (lambda: dna_synthesis(0.1, transition_share=1.5), "negative"),
        (lambda: confusion([[0.5, 0.5]]), r"square matrices.*\(1, 1, 2\)"),
        (lambda: confusion([0.5, 0.5]), "square matrices"),
        (lambda: confusion([[0.5, 0.5], [1.0]]), "equal rows"),
        (lambda: confusion([["a", "b"], ["c", "d"]]), "table of numbers"),
        pytest.param(lambda: confusion([[10**400]]), "table of numbers"),
        (lambda: confusion([[1.2, -0.2], [0.0, 1.0]]), "negative"),
        (lambda: confusion([[math.nan, 1.0], [0.0, 1.0]]), "non-finite"),
        (lambda: confusion([[1.0, 0.0], [0.5, 0.4]]), "row 2 .* position 1 sums to 0.9"),
        (lambda: positional([[[1.0, 0.0], [0.0, 1.0]], [[0.7, 0.1], [0.0, 1.0]]]), "row 1 .* position 2 sums to 0.8"),
        pytest.param(lambda: positional(torch.zeros(0, 4, 4)), "position"),
    ],
)
def test_an_impossible_channel_is_refused_with_its_fault(build: Callable[[], Channel], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build()


@pytest.mark.parametrize("length", [1, 3, 8])
def test_position_matrices_that_do_not_match_the_length_are_refused(length: int) -> None:
    with pytest.raises(ConfigError, match=f"has 2 position matrices but the task has length {length}"):
        positional_slip(4, [0.1, 0.2]).log_matrices(length)

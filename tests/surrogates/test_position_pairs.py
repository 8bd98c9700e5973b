"""Networks of position pairs find which positions belong together, and what fits there from all pairs at once."""

import torch
from torch import Tensor

from stochflow.surrogates.convolution import ConvolutionEnsemble
from stochflow.surrogates.gaussian_process import GaussianProcess
from stochflow.surrogates.position_pairs import PositionPairEnsemble

K, LENGTH = 4, 12
PAIRS = [(0, 11), (1, 10), (2, 9), (4, 7)]


def share_that_fits(tokens: Tensor) -> Tensor:
    """Share of the pairs whose letters are complements, a + b = 3; [num, L] → [num]."""
    return torch.stack([tokens[:, i] + tokens[:, j] == 3 for i, j in PAIRS]).double().mean(dim=0)


def test_the_pairs_that_matter_have_the_largest_gates(generator: torch.Generator) -> None:
    tokens = torch.randint(K, (800, LENGTH), generator=generator)
    surrogate = PositionPairEnsemble(K, LENGTH)
    surrogate.fit(tokens, share_that_fits(tokens))
    strongest = surrogate.gates.flatten().topk(len(PAIRS)).indices.tolist()
    assert sorted((place // LENGTH, place % LENGTH) for place in strongest) == PAIRS
    assert bool((surrogate.gates.tril() == 0.0).all())


def test_letters_that_a_pair_was_never_seen_with_are_predicted_from_other_pairs(generator: torch.Generator) -> None:
    tokens = torch.randint(K, (1600, LENGTH), generator=generator)
    first = (tokens[:, 0] >= 2) & (tokens[:, 11] < 2)  # G or U at the first place, A or C at the last
    surrogates = [kind(K, LENGTH) for kind in (PositionPairEnsemble, GaussianProcess, ConvolutionEnsemble)]
    truth = share_that_fits(tokens[first])
    errors = []
    for surrogate in surrogates:
        surrogate.fit(tokens[~first][:800], share_that_fits(tokens[~first][:800]))
        errors.append(float((surrogate.predict_mean(tokens[first]) - truth).square().mean()))
    assert errors[0] < 0.5 * min(errors[1:])
    assert errors[0] < 0.5 * float(truth.var())


def test_a_pair_is_counted_once(generator: torch.Generator) -> None:
    tokens = torch.randint(K, (30, LENGTH), generator=generator)
    surrogate = PositionPairEnsemble(K, LENGTH)
    surrogate.fit(tokens, share_that_fits(tokens))
    before = surrogate.predict_mean(tokens)
    surrogate._weights["gates"] += torch.ones(
        LENGTH, LENGTH
    ).tril()  # the same pairs again, and positions with themselves
    assert torch.equal(surrogate.predict_mean(tokens), before)


def test_a_fit_does_not_begin_with_the_gates_that_fewer_rows_have_closed(generator: torch.Generator) -> None:
    tokens = torch.randint(K, (200, LENGTH), generator=generator)
    surrogate, fresh = PositionPairEnsemble(K, LENGTH), PositionPairEnsemble(K, LENGTH)
    surrogate.fit(tokens[:60], share_that_fits(tokens[:60]))
    fresh._generator.set_state(surrogate._generator.get_state())
    fresh._weights = fresh.first_weights()
    for each in (surrogate, fresh):
        each.fit(tokens, share_that_fits(tokens))
    assert torch.equal(surrogate.predict_mean(tokens), fresh.predict_mean(tokens))

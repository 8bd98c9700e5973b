"""Ensembles of networks: a row is held out by one of them, and a restored ensemble goes on as if nothing had been."""

import pytest
import torch
from torch import Tensor

from stochflow.surrogates import network_ensemble
from stochflow.surrogates.convolution import ConvolutionEnsemble
from stochflow.surrogates.network_ensemble import NUM_MEMBERS, NetworkEnsemble
from stochflow.surrogates.position_pairs import PositionPairEnsemble
from stochflow.surrogates.transforms import Transform

K, LENGTH = 4, 16
MOTIF = torch.tensor([0, 1, 2, 3, 3, 0, 2])


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_ensemble, "_LEAST_STEPS", 20)


@pytest.fixture(params=[ConvolutionEnsemble, PositionPairEnsemble])
def kind(request: pytest.FixtureRequest) -> type[NetworkEnsemble]:
    found: type[NetworkEnsemble] = request.param
    return found


def designs(num: int, places: list[int], generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random letters, in every other row with a motif at one of these places; it is worth one."""
    tokens = torch.randint(K, (num, LENGTH), generator=generator)
    for row in range(0, num, 2):
        place = places[row // 2 % len(places)]
        tokens[row, place : place + len(MOTIF)] = MOTIF
    tokens = tokens[torch.randperm(num, generator=generator)]
    return tokens, (tokens.unfold(1, len(MOTIF), 1) == MOTIF).all(dim=-1).any(dim=-1).double() + 0.5


def test_a_row_is_held_out_by_the_member_that_has_not_seen_it(
    kind: type[NetworkEnsemble], quick: None, generator: torch.Generator
) -> None:
    tokens, scores = designs(60, [0, 5], generator)
    given, changed = kind(K, LENGTH), kind(K, LENGTH)
    given.fit(tokens, scores)
    other = scores.clone()
    other[1::NUM_MEMBERS] = scores[1::NUM_MEMBERS].flip(0)  # the same scores in another order
    changed.fit(tokens, other)
    one, two = (each._outputs(tokens) for each in (given, changed))
    assert torch.equal(one[:, 1], two[:, 1])
    assert not torch.equal(one[:, 0], two[:, 0])
    held_out = given.leave_one_out()
    assert held_out.rows.tolist() == list(range(60))
    expected = given._outputs(tokens)[torch.arange(60), torch.arange(60) % NUM_MEMBERS]
    torch.testing.assert_close(held_out.prediction.mean, given._fitted.standard.mean(expected))  # type: ignore[union-attr]


@pytest.mark.parametrize("transform", ["log", "identity"])
def test_a_restored_ensemble_predicts_and_learns_the_same(
    kind: type[NetworkEnsemble], transform: Transform, quick: None, generator: torch.Generator
) -> None:
    tokens, scores = designs(50, [2], generator)
    given = kind(K, LENGTH, transform=transform)
    given.fit(tokens[:30], scores[:30])
    restored = kind(K, LENGTH, transform=transform, seed=5)
    restored.load_state_dict({name: value.clone() for name, value in given.state_dict().items()})
    for again in range(2):
        found, expected = restored.predict(tokens), given.predict(tokens)
        assert torch.equal(found.mean, expected.mean)
        assert torch.equal(found.deviation, expected.deviation)
        assert restored.leave_one_out().r_squared == given.leave_one_out().r_squared
        if not again:
            given.fit(tokens, scores)
            restored.fit(tokens, scores)


@pytest.mark.parametrize("scores", [[0.7], [0.0], [0.3, 0.3, 0.3, 0.3], [1e300, 0.0, 2e299, 1e299]])
def test_scores_that_say_little_are_predicted_as_they_are(
    kind: type[NetworkEnsemble], scores: list[float], quick: None
) -> None:
    tokens = torch.arange(len(scores)).unsqueeze(1).expand(-1, 3) % 2  # shorter than a filter
    surrogate = kind(2, 3)
    assert surrogate.predict(tokens).mean.tolist() == [0.0] * len(scores)  # before the first fit
    assert len(surrogate.leave_one_out().rows) == 0
    surrogate.fit(tokens, torch.tensor(scores, dtype=torch.float64))
    prediction = surrogate.predict(tokens)
    assert bool(prediction.mean.isfinite().all())
    assert bool((prediction.deviation > 0).all())
    if len(set(scores)) == 1:
        torch.testing.assert_close(prediction.mean, torch.tensor(scores).double(), atol=0.2, rtol=0.2)


def test_noisy_rows_count_less(kind: type[NetworkEnsemble], generator: torch.Generator, quick: None) -> None:
    tokens, scores = designs(60, [0, 5], generator)
    wrong = scores.clone()
    wrong[::4] += 5.0
    variances = torch.zeros_like(scores)
    variances[::4] = 1e4
    naive, careful = kind(K, LENGTH), kind(K, LENGTH)
    naive.fit(tokens, wrong)
    careful.fit(tokens, wrong, variances)
    right = torch.arange(60) % 4 != 0
    errors = [float((each.predict_mean(tokens) - scores)[right].square().mean()) for each in (naive, careful)]
    assert errors[1] < 0.8 * errors[0]

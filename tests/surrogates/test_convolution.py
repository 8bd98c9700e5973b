"""Convolutional networks learn what a motif is worth wherever it stands, and a row is held out by one of them."""

import pytest
import torch
from torch import Tensor

from stochflow.surrogates import convolution
from stochflow.surrogates.convolution import NUM_MEMBERS, ConvolutionEnsemble

K, LENGTH = 4, 16
MOTIF = torch.tensor([0, 1, 2, 3, 3, 0, 2])


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution, "_LEAST_STEPS", 20)


def designs(num: int, places: list[int], generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random letters, in every other row with a motif at one of these places; it is worth one."""
    tokens = torch.randint(K, (num, LENGTH), generator=generator)
    for row in range(0, num, 2):
        place = places[row // 2 % len(places)]
        tokens[row, place : place + len(MOTIF)] = MOTIF
    tokens = tokens[torch.randperm(num, generator=generator)]
    return tokens, (tokens.unfold(1, len(MOTIF), 1) == MOTIF).all(dim=-1).any(dim=-1).double() + 0.5


def test_a_motif_is_known_where_it_was_never_seen(generator: torch.Generator) -> None:
    tokens, scores = designs(400, [0, 4, 8], generator)
    others, truth = designs(200, [2, 6, 9], generator)
    surrogate = ConvolutionEnsemble(K, LENGTH)
    surrogate.fit(tokens, scores)
    assert float((surrogate.predict_mean(others) - truth).square().mean()) < 0.4 * float(truth.var())
    assert surrogate.leave_one_out().r_squared > 0.5


def test_a_row_is_held_out_by_the_member_that_has_not_seen_it(quick: None, generator: torch.Generator) -> None:
    tokens, scores = designs(60, [0, 5], generator)
    given, changed = ConvolutionEnsemble(K, LENGTH), ConvolutionEnsemble(K, LENGTH)
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
    transform: convolution.Transform, quick: None, generator: torch.Generator
) -> None:
    tokens, scores = designs(50, [2], generator)
    given = ConvolutionEnsemble(K, LENGTH, transform=transform)
    given.fit(tokens[:30], scores[:30])
    restored = ConvolutionEnsemble(K, LENGTH, transform=transform, seed=5)
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
def test_scores_that_say_little_are_predicted_as_they_are(scores: list[float], quick: None) -> None:
    tokens = torch.arange(len(scores)).unsqueeze(1).expand(-1, 3) % 2  # shorter than a filter
    surrogate = ConvolutionEnsemble(2, 3)
    assert surrogate.predict(tokens).mean.tolist() == [0.0] * len(scores)  # before the first fit
    assert len(surrogate.leave_one_out().rows) == 0
    surrogate.fit(tokens, torch.tensor(scores, dtype=torch.float64))
    prediction = surrogate.predict(tokens)
    assert bool(prediction.mean.isfinite().all())
    assert bool((prediction.deviation > 0).all())
    if len(set(scores)) == 1:
        torch.testing.assert_close(prediction.mean, torch.tensor(scores).double(), atol=0.2, rtol=0.2)


def test_noisy_rows_count_less(generator: torch.Generator, quick: None) -> None:
    tokens, scores = designs(60, [0, 5], generator)
    wrong = scores.clone()
    wrong[::4] += 5.0
    variances = torch.zeros_like(scores)
    variances[::4] = 1e4
    naive, careful = ConvolutionEnsemble(K, LENGTH), ConvolutionEnsemble(K, LENGTH)
    naive.fit(tokens, wrong)
    careful.fit(tokens, wrong, variances)
    right = torch.arange(60) % 4 != 0
    errors = [float((each.predict_mean(tokens) - scores)[right].square().mean()) for each in (naive, careful)]
    assert errors[1] < 0.8 * errors[0]

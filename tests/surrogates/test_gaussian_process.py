"""The Gaussian process against formulas written out, refits without a row, and what it costs."""

import math
from collections import Counter

import pytest
import torch
from torch import Tensor

from stochflow.core.errors import DataError
from stochflow.environments.registry import make_task
from stochflow.surrogates import posterior as posterior_module
from stochflow.surrogates.base import Prediction, window_rows
from stochflow.surrogates.gaussian_process import GaussianProcess
from stochflow.surrogates.hyperparameters import MIXINGS, NOISES, RATES, descend
from stochflow.surrogates.kmer_ridge import KmerRidge
from stochflow.surrogates.letter_distances import LetterDistance, amino_acids, bit_words, hamming
from stochflow.surrogates.posterior import Posterior
from stochflow.surrogates.transforms import Transform

NUM_TOKENS, LENGTH = 4, 7


def random_rows(num_rows: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Designs with scores that a sum of letters and a pair explain in part."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(NUM_TOKENS, (num_rows, LENGTH), generator=generator)
    letters = torch.rand(LENGTH, NUM_TOKENS, dtype=torch.float64, generator=torch.Generator().manual_seed(42))
    scores = letters[torch.arange(LENGTH), tokens].mean(dim=1) * (1.0 + (tokens[:, 2] == tokens[:, 4]))
    return tokens, scores + 0.05 * torch.rand(num_rows, dtype=torch.float64, generator=generator)


def dense_kernel(process: GaussianProcess, tokens: Tensor, others: Tensor) -> Tensor:
    """mixing·exp(−g·Hamming) + (1 − mixing)·mean cosine of 3-, 4- and 5-mer counts, pair by pair."""
    mixture = process.kernel.mixture

    def counts(row: list[int]) -> list[Counter[tuple[int, ...]]]:
        return [Counter(tuple(row[i : i + k]) for i in range(len(row) - k + 1)) for k in (3, 4, 5)]

    def cosine(one: Counter[tuple[int, ...]], two: Counter[tuple[int, ...]]) -> float:
        product = sum(count * two[kmer] for kmer, count in one.items())
        return product / math.sqrt(sum(c * c for c in one.values()) * sum(c * c for c in two.values()))

    apart = (tokens.unsqueeze(1) != others).sum(dim=-1)
    rows, columns = [counts(row) for row in tokens.tolist()], [counts(row) for row in others.tolist()]
    shared = [[sum(map(cosine, x, y)) / 3 for y in columns] for x in rows]
    near = (-mixture.rate * apart).exp().double()
    return mixture.mixing * near + (1 - mixture.mixing) * torch.tensor(shared, dtype=torch.float64)


@pytest.mark.parametrize("transform", ["identity", "log"])
def test_predictions_are_those_of_the_dense_formula(transform: Transform) -> None:
    tokens, scores = random_rows(60)
    tokens[::2, 3:6] = tokens[0, :3]  # a motif that counts wherever it stands
    tokens[1::4, :3] = tokens[0, :3]
    scores += (tokens.unfold(1, 3, 1) == tokens[0, :3]).all(dim=-1).sum(dim=1)
    new, _ = random_rows(15, seed=1)
    process = GaussianProcess(NUM_TOKENS, LENGTH, transform=transform)
    process.fit(tokens, scores)
    assert 0.0 < process.kernel.mixture.mixing < 1.0  # both kernels are compared

    values = scores.log() if transform == "log" else scores
    prior = values.quantile(0.25)
    covariance = dense_kernel(process, tokens, tokens) + process.noise * torch.eye(60, dtype=torch.float64)
    across, inverse = dense_kernel(process, new, tokens), torch.linalg.inv(covariance)
    means = prior + across @ inverse @ (values - prior)
    errors = (inverse @ (values - prior)) / inverse.diagonal()
    amplitude = (errors.square() * inverse.diagonal()).mean()
    variances = amplitude * (1.0 + process.noise - (across @ inverse * across).sum(dim=1))

    prediction = process.predict(new)
    found = prediction.mean.log() if transform == "log" else prediction.mean
    spread = prediction.log_deviation if transform == "log" else prediction.deviation
    assert spread is not None
    torch.testing.assert_close(found, means, atol=1e-4, rtol=0)
    torch.testing.assert_close(spread, variances.sqrt(), atol=0, rtol=1e-4)
    torch.testing.assert_close(process.predict_mean(new), prediction.mean, atol=1e-12, rtol=0)


def test_leave_one_out_is_a_refit_without_the_row() -> None:
    tokens, scores = random_rows(30)
    process = GaussianProcess(NUM_TOKENS, LENGTH)
    process.fit(tokens, scores)
    held_out, prior = process.leave_one_out(), scores.quantile(0.25)
    assert held_out.rows.tolist() == list(range(30))
    ratios = []
    for row in range(30):
        others = torch.arange(30) != row
        noise = torch.full((29,), process.noise, dtype=torch.float64)
        refit = Posterior(process.kernel, tokens[others], scores[others] - prior, noise)
        mean = prior + refit.means(tokens[row : row + 1]).item()
        assert held_out.prediction.mean[row].item() == pytest.approx(float(mean), abs=1e-6)
        deviation = math.sqrt(refit.variances(tokens[row : row + 1]).item() + process.noise)
        ratios.append(held_out.prediction.deviation[row].item() / deviation)
    assert ratios == pytest.approx([ratios[0]] * 30, rel=1e-5)  # one amplitude for all rows
    assert held_out.prediction.standardised(scores).square().mean().item() == pytest.approx(1.0, rel=1e-6)


def test_hyperparameters_have_no_better_neighbour() -> None:
    target, asked = (5, 1, 4), []

    def error(choice: tuple[int, int, int]) -> float:
        assert all(0 <= i < len(n) for i, n in zip(choice, (RATES, MIXINGS, NOISES), strict=True))
        asked.append(choice)
        return float(sum((a - b) ** 2 for a, b in zip(choice, target, strict=True)))

    assert descend(error, (0, 5, 0)) == target
    assert len(asked) == len(set(asked))
    assert descend(error, (0, 5, 0), mixed=False) == (5, 5, 4)


def test_it_explains_tfbind8_better_than_the_ridge() -> None:
    task = make_task("tfbind8:ARX")
    order = torch.randperm(task.size, generator=torch.Generator().manual_seed(0))
    fitted, unseen = order[:500], order[500:5500]
    scores = task.all_scores[unseen]
    explained = []
    for surrogate in (GaussianProcess(4, 8), KmerRidge(4, 8)):
        surrogate.fit(task.all_sequences[fitted], task.all_scores[fitted])
        errors = surrogate.predict_mean(task.all_sequences[unseen]) - scores
        explained.append(1.0 - float(errors.square().mean() / scores.var(correction=0)))
    assert explained[0] > 0.6
    assert explained[0] > explained[1] - 0.02


def test_intervals_hold_the_share_they_promise() -> None:
    process = GaussianProcess(NUM_TOKENS, LENGTH)
    process.fit(*random_rows(300))
    new, scores = random_rows(500, seed=1)
    low, high = process.predict(new).interval(0.8)
    share = ((low <= scores) & (scores <= high)).double().mean().item()
    assert 0.7 < share < 0.9
    assert 0.7 < process.leave_one_out().coverage(0.8) < 0.9


def test_a_window_keeps_the_best_and_the_newest() -> None:
    tokens, scores = random_rows(60)
    rows = window_rows(scores, 20).tolist()
    best = scores.topk(10).indices.tolist()
    newest = [row for row in range(60) if row not in best][-10:]
    assert rows == sorted(best + newest)
    process, small = (GaussianProcess(NUM_TOKENS, LENGTH, window=20) for _ in range(2))
    process.fit(tokens, scores)
    small.fit(tokens[rows], scores[rows])
    new, _ = random_rows(9, seed=1)
    assert torch.equal(process.predict_mean(new), small.predict_mean(new))
    assert process.leave_one_out().rows.tolist() == rows


def test_deviations_from_fewer_rows_are_not_smaller() -> None:
    tokens, scores = random_rows(60)
    new, _ = random_rows(20, seed=1)
    full, fewer = GaussianProcess(NUM_TOKENS, LENGTH), GaussianProcess(NUM_TOKENS, LENGTH, deviation_rows=20)
    for process in (full, fewer):
        process.fit(tokens, scores)
    exact, bound = full.predict(new), fewer.predict(new)
    assert torch.equal(exact.mean, bound.mean)
    assert bool((bound.deviation >= exact.deviation * (1.0 - 1e-9)).all())
    assert bool((bound.deviation > exact.deviation).any())


def test_memory_of_predictions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    process = GaussianProcess(NUM_TOKENS, LENGTH)
    process.fit(*random_rows(50))
    new, _ = random_rows(200, seed=1)
    whole, largest = process.predict(new), 0
    monkeypatch.setattr(posterior_module, "_BLOCK", 50 * 8)
    between = type(process.distance).between_points

    def watched(self: object, points: Tensor, others: Tensor) -> Tensor:
        nonlocal largest
        distances = between(process.distance, points, others)
        largest = max(largest, distances.numel())
        return distances

    monkeypatch.setattr(type(process.distance), "between_points", watched)
    blocks = process.predict(new)
    assert 0 < largest <= 50 * 8
    torch.testing.assert_close(blocks.mean, whole.mean, atol=1e-9, rtol=0)
    torch.testing.assert_close(blocks.deviation, whole.deviation, atol=1e-6, rtol=0)


def test_a_state_restores_predictions_and_the_next_fit() -> None:
    tokens, scores = random_rows(80)
    new, _ = random_rows(20, seed=1)
    process, restored = (GaussianProcess(NUM_TOKENS, LENGTH, transform="log", deviation_rows=30) for _ in range(2))
    process.fit(tokens[:50], scores[:50])
    state = process.state_dict()
    assert all(isinstance(tensor, Tensor) for tensor in state.values())
    restored.load_state_dict({name: tensor.clone() for name, tensor in state.items()})
    for _ in range(2):
        assert_same(process.predict(new), restored.predict(new))
        assert_same(process.leave_one_out().prediction, restored.leave_one_out().prediction)
        process.fit(tokens, scores)
        restored.fit(tokens, scores)


def test_a_state_before_the_first_fit_is_one_too() -> None:
    process = GaussianProcess(NUM_TOKENS, LENGTH)
    process.load_state_dict(GaussianProcess(NUM_TOKENS, LENGTH).state_dict())
    prediction = process.predict(random_rows(3)[0])
    assert prediction.mean.tolist() == [0.0] * 3
    assert prediction.deviation.tolist() == [1.0] * 3
    assert len(process.leave_one_out().rows) == 0


@pytest.mark.parametrize("transform", ["identity", "log"])
@pytest.mark.parametrize("score", [0.0, 0.3, 1e-300, 1e300])
@pytest.mark.parametrize("num_rows", [1, 12])
def test_equal_scores_are_predicted_with_a_wide_deviation(transform: Transform, score: float, num_rows: int) -> None:
    tokens, _ = random_rows(num_rows)
    process = GaussianProcess(NUM_TOKENS, LENGTH, transform=transform)
    process.fit(tokens, torch.full((num_rows,), score, dtype=torch.float64))
    prediction = process.predict(random_rows(5, seed=1)[0])
    if score > 0.0 or transform == "identity":
        torch.testing.assert_close(prediction.mean, torch.full((5,), score, dtype=torch.float64), atol=0, rtol=1e-12)
    assert bool(prediction.deviation.isfinite().all())
    assert bool((prediction.deviation > 0.3 * score).all())


@pytest.mark.parametrize("exponent", [-990, 990])
def test_the_scale_of_the_scores_does_not_matter(exponent: int) -> None:
    tokens, scores = random_rows(40)
    plain, scaled = GaussianProcess(NUM_TOKENS, LENGTH), GaussianProcess(NUM_TOKENS, LENGTH)
    plain.fit(tokens, scores)
    scaled.fit(tokens, scores * 2.0**exponent)
    assert torch.equal(scaled.predict(tokens).mean, plain.predict(tokens).mean * 2.0**exponent)
    assert torch.equal(scaled.predict(tokens).deviation, plain.predict(tokens).deviation * 2.0**exponent)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -0.1])
def test_scores_that_are_no_scores_are_refused(bad: float) -> None:
    tokens, scores = random_rows(5)
    scores[2] = bad
    with pytest.raises(DataError, match="finite and not negative"):
        GaussianProcess(NUM_TOKENS, LENGTH).fit(tokens, scores)


def test_noisier_scores_count_less() -> None:
    tokens, scores = random_rows(40)
    wrong, variances = scores.clone(), torch.zeros(40, dtype=torch.float64)
    wrong[7] += 5.0
    variances[7] = 25.0
    trusting, warned, right = (GaussianProcess(NUM_TOKENS, LENGTH) for _ in range(3))
    trusting.fit(tokens, wrong)
    warned.fit(tokens, wrong, variances)
    right.fit(tokens, scores)
    there = tokens[7:8]
    errors = [abs((process.predict_mean(there) - right.predict_mean(there)).item()) for process in (warned, trusting)]
    assert errors[0] < 0.5 * errors[1]


@pytest.mark.parametrize("length", [1, 2, 3])
def test_short_sequences_have_fewer_kmers_or_none(length: int) -> None:
    tokens = torch.cartesian_prod(*[torch.arange(4)] * length).view(-1, length)
    scores = tokens.double().mean(dim=1)
    process = GaussianProcess(4, length)
    process.fit(tokens, scores)
    assert (process.kernel.mixture.mixing == 1.0) or length == 3
    assert (process.predict_mean(tokens) - scores).abs().max() < 1.5


@pytest.mark.parametrize(
    ("distance", "least"), [(hamming(16), 0.3), (bit_words(16), 0.95), (amino_acids("ACDEFGHIKLMNPQRS"), 0.3)]
)
def test_letters_may_have_their_own_distances(distance: LetterDistance, least: float) -> None:
    tokens = torch.randint(16, (300, 6), generator=torch.Generator().manual_seed(0))
    scores = (tokens & 8).double().sum(dim=1)  # the highest bit counts
    process = GaussianProcess(16, 6, distance)
    process.fit(tokens[:200], scores[:200])
    errors = process.predict_mean(tokens[200:]) - scores[200:]
    assert 1.0 - float(errors.square().mean() / scores[200:].var(correction=0)) > least


def assert_same(one: Prediction, two: Prediction) -> None:
    torch.testing.assert_close(one.mean, two.mean, atol=0, rtol=1e-12)
    torch.testing.assert_close(one.deviation, two.deviation, atol=0, rtol=1e-12)

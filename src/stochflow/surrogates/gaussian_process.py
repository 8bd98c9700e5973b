"""A Gaussian process of the score: kernel of letter distances and shared k-mers, chosen by leave-one-out error."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from stochflow.surrogates.base import (
    HeldOut,
    Prediction,
    State,
    Surrogate,
    check_rows,
    nothing_held_out,
    unfitted,
    window_rows,
)
from stochflow.surrogates.hyperparameters import START, Choice, Gram, descend, hyperparameters
from stochflow.surrogates.kernels import SequenceKernel, Spectrum, kernel_parts
from stochflow.surrogates.letter_distances import CountedDifferences, LetterDistance, hamming
from stochflow.surrogates.posterior import Posterior
from stochflow.surrogates.relevance import relevances
from stochflow.surrogates.transforms import Standardisation, Transform

WINDOW = 5000
DEVIATION_ROWS = 1000
_SEARCH_ROWS = 1200  # that hyperparameters are chosen on
_RELEVANT_ROWS = 100  # from which on positions are weighed
_LEAST_MIXING = 0.1


class GaussianProcess(Surrogate):
    """score ~ GP(prior, k) with k = mixing·exp(−g·d) + (1 − mixing)·spectrum and noise, on scores or their logarithms.

    g, mixing and noise minimise the leave-one-out error on at most 1,200 rows, beginning with those of the last fit;
    d(x, y) = Σ_t w_t·d(x_t, y_t), where positions that matter more have larger weights w_t (`relevances`);
    the amplitude of k makes the leave-one-out errors as large as their deviations. Of many rows the process keeps a
    window, one half the best and the other the newest, so that the cost of a fit has a bound. A mean costs O(window)
    per design, a deviation O(deviation_rows²); before amplitudes, one that rests on fewer rows is never smaller.

    >>> tokens = torch.tensor([[0, 0, 0], [0, 0, 1], [1, 1, 1], [1, 1, 0]])
    >>> process = GaussianProcess(2, 3)
    >>> process.fit(tokens, torch.tensor([1.0, 0.9, 0.1, 0.2]).double())
    >>> near_first, near_third = process.predict(torch.tensor([[0, 1, 0], [1, 0, 1]])).mean.tolist()
    >>> near_first > near_third
    True

    Args:
        num_tokens, length: K and L.
        distance: of letters; Hamming by default.
        transform: "log" for scores whose ratios matter, "identity" for those whose differences do.
        prior: which quantile of the fitted scores is the prior mean.
        window: most rows that are fitted.
        deviation_rows: most rows that deviations rest on, chosen from the window in the same way.
    """

    def __init__(
        self,
        num_tokens: int,
        length: int,
        distance: LetterDistance | None = None,
        *,
        transform: Transform = "identity",
        prior: float = 0.25,
        window: int = WINDOW,
        deviation_rows: int = DEVIATION_ROWS,
    ) -> None:
        self.distance = distance or hamming(num_tokens)
        self.relevances: Tensor | None = None
        self.spectrum = Spectrum(num_tokens, length)
        self.transform, self.prior = transform, prior
        self.window, self.deviation_rows = window, deviation_rows
        self._reach = self.distance.mean * length or 1.0
        self._choice: Choice = START if self.spectrum.kmers else (START[0], 0, START[2])
        self._fitted: _Fitted | None = None

    @property
    def kernel(self) -> SequenceKernel:
        """k of the last fit, one on the diagonal."""
        distance = self.distance.with_relevances(self.relevances)
        return SequenceKernel(distance, self.spectrum, hyperparameters(self._choice, self._reach)[0])

    @property
    def noise(self) -> float:
        """Variance of what the kernel cannot resolve, relative to the kernel's own."""
        return hyperparameters(self._choice, self._reach)[1]

    def fit(self, tokens: Tensor, scores: Tensor, variances: Tensor | None = None) -> None:
        check_rows(tokens, scores, variances)
        rows = window_rows(scores, self.window)
        tokens, scores = tokens[rows], scores[rows].double()
        standard = Standardisation.of(scores, self.transform, self.prior)
        noise = standard.noise(scores, None if variances is None else variances[rows])
        amplitude = self._choose(tokens, standard.targets(scores), noise)
        posterior = Posterior(self.kernel, tokens, standard.targets(scores), noise + self.noise)
        self._fitted = _Fitted(rows, scores, posterior, standard, amplitude, self.noise, self.deviation_rows)

    def predict(self, tokens: Tensor) -> Prediction:
        fitted = self._fitted
        if fitted is None:
            return unfitted(len(tokens))
        return fitted.standard.prediction(fitted.posterior.means(tokens), fitted.deviations(tokens))

    def predict_mean(self, tokens: Tensor) -> Tensor:
        fitted = self._fitted
        return unfitted(len(tokens)).mean if fitted is None else fitted.standard.mean(fitted.posterior.means(tokens))

    def covariance(self, tokens: Tensor) -> Tensor:
        """Covariance of standardised scores of designs given the fitted rows, before the amplitude; → [num, num].

        Like deviations, it rests on `deviation_rows` rows at most.
        """
        prior = self.kernel(tokens, tokens)
        return prior if self._fitted is None else prior - self._fitted.explained(tokens)

    def leave_one_out(self) -> HeldOut:
        fitted = self._fitted
        if fitted is None:
            return nothing_held_out()
        errors, variances = fitted.posterior.leave_one_out()
        means, deviations = fitted.posterior.targets - errors, (fitted.amplitude * variances).sqrt()
        return HeldOut(fitted.rows, fitted.scores, fitted.standard.prediction(means, deviations))

    def state_dict(self) -> State:
        state = {"choice": torch.tensor(self._choice)}
        if self.relevances is not None:
            state["relevances"] = self.relevances
        return state if self._fitted is None else state | self._fitted.state_dict()

    def load_state_dict(self, state: State) -> None:
        rate, mixing, noise = state["choice"].tolist()
        self._choice, self._fitted, self.relevances = (rate, mixing, noise), None, state.get("relevances")
        if "tokens" in state:
            unit, centre, scale, amplitude = state["numbers"].tolist()
            standard = Standardisation(self.transform, unit, centre, scale)
            rows, tokens, scores, noise, weights = (state[name] for name in _COLUMNS)
            posterior = Posterior(self.kernel, tokens, standard.targets(scores), noise, weights)
            self._fitted = _Fitted(rows, scores, posterior, standard, amplitude, self.noise, self.deviation_rows)

    def _choose(self, tokens: Tensor, targets: Tensor, noise: Tensor) -> float:
        """Choose the hyperparameters on rows that are evenly spaced in time; the amplitude comes back."""
        if bool((targets == 0.0).all()):  # equal scores, which any choice explains
            return 1.0
        num = min(len(tokens), _SEARCH_ROWS)
        some = torch.linspace(0, len(tokens) - 1, num, dtype=torch.float64).round().long()
        gram = self._gram(tokens[some], targets[some], noise[some])
        self._choice = descend(gram.error, self._choice, bool(self.spectrum.kmers))
        if len(some) >= _RELEVANT_ROWS and not isinstance(self.distance, CountedDifferences):
            self._weigh_positions(tokens[some], gram)
            gram = self._gram(tokens[some], targets[some], noise[some])
            self._choice = descend(gram.error, self._choice, bool(self.spectrum.kmers))
        return gram.amplitude(self._choice)

    def _gram(self, tokens: Tensor, targets: Tensor, noise: Tensor) -> Gram:
        parts = kernel_parts(tokens, tokens, self.kernel.distance, self.spectrum)
        return Gram(*parts, self._reach, targets, noise)

    def _weigh_positions(self, tokens: Tensor, gram: Gram) -> None:
        """Choose the weights of positions under the kernel of the present choice."""
        mixture = self.kernel.mixture
        if mixture.mixing < _LEAST_MIXING:  # letters at their places hardly count at all
            return
        points = self.distance.embedding[tokens] * self.distance.scale**0.5
        noise = gram.noise + self.noise
        self.relevances = relevances(points, gram.spectrum, mixture, gram.targets, noise, self.relevances)


_COLUMNS = ("rows", "tokens", "scores", "noise", "weights")


@dataclass(frozen=True)
class _Fitted:
    """What a fit has found.

    Attributes:
        rows: of the data that are in the window, [num_rows].
        scores: of these, [num_rows].
        posterior: of standardised scores.
        standard: how they were standardised.
        amplitude: factor of all variances.
        nugget: variance of what the kernel cannot resolve.
        deviation_rows: most rows that deviations rest on.
    """

    rows: Tensor
    scores: Tensor
    posterior: Posterior
    standard: Standardisation
    amplitude: float
    nugget: float
    deviation_rows: int

    @cached_property
    def _smaller(self) -> Posterior:
        """The posterior given fewer rows."""
        some, given = window_rows(self.scores, self.deviation_rows), self.posterior
        if len(some) == len(self.scores):
            return given
        return Posterior(given.kernel, given.tokens[some], given.targets[some], given.noise[some])

    def explained(self, tokens: Tensor) -> Tensor:
        """What the rows explain of the kernel's covariance of any designs; [num, L] → [num, num]."""
        projected = self._smaller.projected(tokens)
        return projected.T @ projected

    def deviations(self, tokens: Tensor) -> Tensor:
        """Of the standardised scores of any designs; [num, L] → [num]."""
        return (self.amplitude * (self._smaller.variances(tokens) + self.nugget)).sqrt()

    def state_dict(self) -> State:
        standard, posterior = self.standard, self.posterior
        numbers = torch.tensor([standard.unit, standard.centre, standard.scale, self.amplitude], dtype=torch.float64)
        columns = (self.rows, posterior.tokens, self.scores, posterior.noise, posterior.weights)
        return {"numbers": numbers, **dict(zip(_COLUMNS, columns, strict=True))}

"""What the evidence says about the scores of designs that were not measured."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from stochflow.campaigns.design_space import DesignSpace
from stochflow.campaigns.evidence import Evidence
from stochflow.environments.sequences.task import MAX_ENUMERABLE, Alphabet
from stochflow.surrogates.base import HeldOut, Prediction, Surrogate, unfitted
from stochflow.surrogates.blosum62 import AMINO_ACIDS
from stochflow.surrogates.convolution import ConvolutionEnsemble
from stochflow.surrogates.ensemble import Ensemble
from stochflow.surrogates.gaussian_process import GaussianProcess
from stochflow.surrogates.kmer_ridge import KmerRidge
from stochflow.surrogates.letter_distances import LetterDistance, amino_acids, hamming
from stochflow.surrogates.position_pairs import PositionPairEnsemble
from stochflow.truth.orders import channel_factors, contracted

NUM_DRAWS = 8  # outcomes of an order, where they cannot be summed over
_NUM_SHOWN_DRAWS, _MAX_SHOWN_DRAWS = 32, 2**18  # of an order that somebody reads of, and of all these together


class OrderPrediction(NamedTuple):
    """What is predicted of orders.

    Attributes:
        mean, low, high: score of the sequence as written and its 80 % interval, float64, [num].
        expected: mean score of what the channel makes of the order, [num].
    """

    mean: Tensor
    low: Tensor
    high: Tensor
    expected: Tensor


class ScoreModel:
    """Surrogates of scores of any sign and scale, chosen or weighted by their errors on held-out rows.

    In a space that can be enumerated it is a Gaussian process of the scores or of their logarithms, whichever errs less
    on held-out rows; elsewhere a mean of both with a ridge regression on k-mers and networks of motifs and of pairs of
    positions, with the weights that err least. The process of the scores alone says how designs resemble each other
    (`resemblance`).

    >>> from stochflow.config.environment import ConstraintConfig
    >>> from stochflow.environments.channels import uniform_slip
    >>> space = DesignSpace(Alphabet("AB"), 6, uniform_slip(2, 0.1), ConstraintConfig())
    >>> tokens = torch.cartesian_prod(*[torch.arange(2)] * 6)
    >>> model = ScoreModel(space, Evidence(tokens[::3], tokens[::3].double().sum(dim=1) - 3.0))
    >>> [round(mean) for mean in model.predict(tokens[[0, 63]]).mean.tolist()]  # of AAAAAA and BBBBBB
    [-3, 3]
    >>> round(model.expected(tokens[[63]]).item(), 1)  # slips write an A in one of twenty places
    2.7

    Args:
        space: what can be ordered, and the channel.
        evidence: at least one row.
    """

    def __init__(self, space: DesignSpace, evidence: Evidence) -> None:
        self._space, self.evidence = space, evidence
        self._shift = float(evidence.scores.min())  # surrogates take scores that are not negative
        self.ensemble = _ensemble(space)
        self.ensemble.fit(evidence.tokens, evidence.scores - self._shift, evidence.variances)

    def predict(self, tokens: Tensor) -> Prediction:
        """Scores of sequences that are made as written; [num, L] → [num]."""
        return _shifted(self.ensemble.predict(tokens), self._shift)

    def predict_mean(self, tokens: Tensor) -> Tensor:
        """The means alone, which is faster; [num, L] → [num]."""
        return self.ensemble.predict_mean(tokens) + self._shift

    def held_out(self) -> HeldOut:
        """Measured rows, each predicted from the others."""
        found = self.ensemble.leave_one_out()
        return HeldOut(found.rows, found.scores + self._shift, _shifted(found.prediction, self._shift))

    def predict_orders(self, orders: Tensor) -> OrderPrediction:
        """What somebody who orders them may expect; [num, L] → [num]."""
        prediction = self.predict(orders)
        num_draws = max(1, min(_NUM_SHOWN_DRAWS, _MAX_SHOWN_DRAWS // max(1, len(orders))))
        return OrderPrediction(prediction.mean, *prediction.interval(), self.expected(orders, num_draws))

    def expected(self, orders: Tensor, num_draws: int = NUM_DRAWS) -> Tensor:
        """Expected score of what the channel makes of orders; [num, L] → [num].

        A mean over outcomes of each, for which all orders slip at the same random numbers.
        """
        if self._space.channel.slip == 0.0:
            return self.predict_mean(orders)
        generator = torch.Generator().manual_seed(0)
        outcomes = torch.cat([self._space.realised(orders, generator) for _ in range(num_draws)])
        return self.predict_mean(outcomes).view(num_draws, -1).mean(dim=0)

    def expected_everywhere(self, tokens: Tensor) -> Tensor:
        """The same, exactly, of all designs in lexicographic order; [K^L, L] → [K^L]."""
        means, channel = self.predict_mean(tokens), self._space.channel
        if channel.slip == 0.0:
            return means
        return contracted(means, [factor.T for factor in channel_factors(channel, self._space.length)])

    def resemblance(self, tokens: Tensor) -> Tensor:
        """Covariance of what is not known about designs, in units of the prior variance, float64; → [num, num]."""
        process = self.ensemble.members["gaussian-process"]
        assert isinstance(process, GaussianProcess)
        return process.covariance(tokens)


def predict_orders(space: DesignSpace, evidence: Evidence, orders: Tensor) -> OrderPrediction:
    """What is predicted of orders; 0 ± 1 before anything was measured. [num, L] → [num]."""
    if len(evidence):
        return ScoreModel(space, evidence).predict_orders(orders)
    prediction = unfitted(len(orders))
    return OrderPrediction(prediction.mean, *prediction.interval(), prediction.mean)


def distance_of(alphabet: Alphabet) -> LetterDistance:
    """BLOSUM62 for proteins, Hamming for all else."""
    letters = alphabet.letters
    return amino_acids(letters) if set(letters) == set(AMINO_ACIDS) else hamming(len(letters))


def _ensemble(space: DesignSpace) -> Ensemble:
    shape, distance = (len(space.alphabet), space.length), distance_of(space.alphabet)
    processes: dict[str, Surrogate] = {
        "gaussian-process": GaussianProcess(*shape, distance),
        "log-process": GaussianProcess(*shape, distance, transform="log"),
    }
    if space.length * math.log(len(space.alphabet)) <= math.log(MAX_ENUMERABLE):
        return Ensemble(processes, "choose")
    others: dict[str, Surrogate] = {
        "kmer-ridge": KmerRidge(*shape),
        "convolution": ConvolutionEnsemble(*shape, distance),
        "position-pairs": PositionPairEnsemble(*shape, distance),
    }
    return Ensemble(processes | others)


def _shifted(prediction: Prediction, shift: float) -> Prediction:
    """The same distribution so much further up, as a normal one."""
    return Prediction(prediction.mean + shift, prediction.deviation)

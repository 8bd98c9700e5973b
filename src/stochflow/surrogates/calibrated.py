"""A surrogate whose intervals are scaled by its errors on held-out rows that it predicted alike."""

from statistics import NormalDist

import torch
from torch import Tensor

from stochflow.surrogates.base import INTERVAL, HeldOut, Prediction, State, Surrogate

NEIGHBOURS = 30  # held-out rows that one factor rests on
_LEAST = 1e-3  # factor of deviations
_REACH = NormalDist().inv_cdf((1.0 + INTERVAL) / 2.0)


class Calibrated(Surrogate):
    """Another surrogate with the same means, and deviations multiplied by a factor that depends on the mean.

    Where most designs do nothing, errors are small for these and large for the few that do something, and one amplitude
    for all makes the intervals of the best predictions far too narrow. The factor at a mean is chosen from the held-out
    rows whose predictions are nearest to it: 80 % of their errors lie inside 80 % intervals.

    >>> from stochflow.surrogates.kmer_ridge import KmerRidge
    >>> tokens = torch.cartesian_prod(*[torch.arange(2)] * 8)
    >>> noise = torch.rand(256, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> surrogate = Calibrated(KmerRidge(2, 8))
    >>> surrogate.fit(tokens, tokens[:, 0] * (1.0 + noise))  # half of the scores are zero, the others noisy
    >>> deviation = surrogate.predict(tokens).deviation
    >>> bool(deviation[128:].mean() > 3.0 * deviation[:128].mean())
    True

    Args:
        member: what predicts.
    """

    def __init__(self, member: Surrogate) -> None:
        self.member = member
        self._means = torch.zeros(0, dtype=torch.float64)  # ascending predictions of held-out rows
        self._factors = torch.zeros(0, dtype=torch.float64)  # at each of them

    def fit(self, tokens: Tensor, scores: Tensor, variances: Tensor | None = None) -> None:
        self.member.fit(tokens, scores, variances)
        held_out = self.member.leave_one_out()
        self._means, order = held_out.prediction.mean.sort(stable=True)
        self._factors = local_factors(held_out.prediction.standardised(held_out.scores).abs()[order])

    def predict(self, tokens: Tensor) -> Prediction:
        return self._widened(self.member.predict(tokens))

    def predict_mean(self, tokens: Tensor) -> Tensor:
        return self.member.predict_mean(tokens)

    def leave_one_out(self) -> HeldOut:
        """That of the member; the factor of a row rests on the row too."""
        held_out = self.member.leave_one_out()
        return HeldOut(held_out.rows, held_out.scores, self._widened(held_out.prediction))

    def state_dict(self) -> State:
        return {"means": self._means, "factors": self._factors} | {
            f"member.{name}": tensor for name, tensor in self.member.state_dict().items()
        }

    def load_state_dict(self, state: State) -> None:
        self._means, self._factors = state["means"], state["factors"]
        own = {name.removeprefix("member."): tensor for name, tensor in state.items() if name.startswith("member.")}
        self.member.load_state_dict(own)

    def _widened(self, prediction: Prediction) -> Prediction:
        if len(self._means) == 0:
            return prediction
        places = torch.searchsorted(self._means, prediction.mean).clamp(max=len(self._means) - 1)
        return prediction.widened(self._factors[places])


def local_factors(errors: Tensor, neighbours: int = NEIGHBOURS) -> Tensor:
    """Factor of deviations at each row: the 80 % quantile of the nearest rows' errors over that of a normal error.

    Of n errors the ⌈0.8·(n + 1)⌉-th smallest is taken, which from four rows on is at least as large
    as the next with a probability of 0.8.

    >>> errors = 1.2815515655446004 * torch.tensor([1.0, 1.0, 1.0, 1.0, 8.0, 8.0, 8.0, 8.0]).double()
    >>> local_factors(errors, 4).round(decimals=6)
    tensor([1., 1., 1., 8., 8., 8., 8., 8.], dtype=torch.float64)

    Args:
        errors: sizes of standardised errors, by ascending prediction, [num].
        neighbours: how many rows around each are its nearest.
    """
    num = min(len(errors), neighbours)
    if num == 0:
        return errors
    rank = min(num, -(-round(INTERVAL * 100) * (num + 1) // 100))
    quantiles = errors.unfold(0, num, 1).kthvalue(rank, dim=-1).values
    windows = (torch.arange(len(errors)) - num // 2).clamp(min=0, max=len(quantiles) - 1)
    return (quantiles[windows] / _REACH).clamp(min=_LEAST)

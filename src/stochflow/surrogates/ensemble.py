"""Several surrogates as one: the best of them, or a mean with weights, by their errors on held-out rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from scipy.optimize import nnls
from torch import Tensor

from stochflow.surrogates.base import HeldOut, Prediction, State, Surrogate, check_rows, nothing_held_out

Mode = Literal["stack", "choose", "foresee"]
_FEW = 10  # held-out rows below which all members count the same
_MOST_ARRIVED = 2000  # rows that the last fit is measured on
_PENALTY = 1e3  # of weights that do not sum to one
_FORGET = 0.5  # of what earlier arrivals have said, per fit


@dataclass(frozen=True)
class Quality:
    """How well the members and the whole predict what they have not seen.

    Attributes:
        winner: the member with the smallest held-out error.
        weights: of the members, one in total.
        r_squared: of every member on the rows that all have held out.
        arrived_r_squared: of the whole on scores that arrived after the fit before; NaN when none have.
        arrived_coverage: share of these scores inside their 80 % intervals; NaN when none have.
    """

    winner: str
    weights: dict[str, float]
    r_squared: dict[str, float]
    arrived_r_squared: float
    arrived_coverage: float


class Ensemble(Surrogate):
    """A weighted mean of surrogates, Σ w_m·mean_m with w ≥ 0 and Σ w_m = 1.

    "stack" takes the weights with the smallest squared error on held-out rows, "choose" the member with the smallest.
    Every member's deviations are multiplied by one number so that its held-out errors are as large as they say. Rows
    that were chosen one after the other resemble each other, so held-out rows flatter a member that interpolates:
    "foresee" takes the member with the smallest error on scores that arrived after its fits, the newest counting most.
    Weights are chosen again with every fit. What arrived since the last fit first measures that fit: `quality`.

    >>> from stochflow.surrogates.gaussian_process import GaussianProcess
    >>> from stochflow.surrogates.kmer_ridge import KmerRidge
    >>> tokens = torch.cartesian_prod(*[torch.arange(2)] * 6)
    >>> ensemble = Ensemble({"ridge": KmerRidge(2, 6), "process": GaussianProcess(2, 6)})
    >>> ensemble.fit(tokens[::2], tokens[::2].double().mean(dim=1))
    >>> ensemble.quality.winner
    'process'

    Args:
        members: by name.
        mode: "stack", "choose" or "foresee".
    """

    def __init__(self, members: Mapping[str, Surrogate], mode: Mode = "stack") -> None:
        self.members, self.mode = dict(members), mode
        self._weights = torch.full((len(members),), 1.0 / len(members), dtype=torch.float64)
        self._factors = torch.ones_like(self._weights)
        self._r_squared = torch.full_like(self._weights, torch.nan)
        self._arrived = torch.full((2,), torch.nan, dtype=torch.float64)  # R² and coverage
        self._errors = torch.zeros_like(self._weights)  # of what arrived, relative to all members' together
        self._num_fitted = 0

    @property
    def quality(self) -> Quality:
        """Of the last fit."""
        arrived_r_squared, arrived_coverage = self._arrived.tolist()
        best = self._r_squared.nan_to_num(nan=-torch.inf).argmax()
        return Quality(
            list(self.members)[int(best)],
            dict(zip(self.members, self._weights.tolist(), strict=True)),
            dict(zip(self.members, self._r_squared.tolist(), strict=True)),
            arrived_r_squared,
            arrived_coverage,
        )

    def fit(self, tokens: Tensor, scores: Tensor, variances: Tensor | None = None) -> None:
        check_rows(tokens, scores, variances)
        if self._num_fitted and len(scores) > self._num_fitted:
            rows = torch.arange(max(self._num_fitted, len(scores) - _MOST_ARRIVED), len(scores))
            arrived = HeldOut(rows, scores[rows], self.predict(tokens[rows]))
            self._arrived = torch.tensor([arrived.r_squared, arrived.coverage()], dtype=torch.float64)
            if self.mode == "foresee":
                self._foresee(tokens[rows], scores[rows])
        for member in self.members.values():
            member.fit(tokens, scores, variances)
        if self.mode == "foresee":
            self._weights = torch.zeros_like(self._weights).index_fill(0, self._errors.argmin(), 1.0)
        else:
            self._weigh(self._held_out())
        self._num_fitted = len(scores)

    def predict(self, tokens: Tensor) -> Prediction:
        chosen = self._chosen()
        return _mixed(
            [member.predict(tokens).widened(factor) for member, _, factor in chosen], [w for _, w, _ in chosen]
        )

    def predict_mean(self, tokens: Tensor) -> Tensor:
        return torch.stack([weight * member.predict_mean(tokens) for member, weight, _ in self._chosen()]).sum(dim=0)

    def leave_one_out(self) -> HeldOut:
        """The rows that all members have held out; the weights are those of all rows."""
        if not self._num_fitted:
            return nothing_held_out()
        held_out, weights = self._held_out(), self._weights.tolist()
        factors = self._factors.tolist()
        parts = [member.prediction.widened(factor) for member, factor in zip(held_out, factors, strict=True)]
        return HeldOut(held_out[0].rows, held_out[0].scores, _mixed(parts, weights))

    def state_dict(self) -> State:
        numbers = torch.stack([self._weights, self._factors, self._r_squared, self._errors])
        state = {"numbers": numbers, "arrived": self._arrived, "num_fitted": torch.tensor(self._num_fitted)}
        for name, member in self.members.items():
            state |= {f"{name}.{key}": tensor for key, tensor in member.state_dict().items()}
        return state

    def load_state_dict(self, state: State) -> None:
        self._weights, self._factors, self._r_squared, self._errors = state["numbers"].unbind()
        self._arrived, self._num_fitted = state["arrived"], int(state["num_fitted"])
        for name, member in self.members.items():
            prefix = f"{name}."
            member.load_state_dict({k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)})

    def _foresee(self, tokens: Tensor, scores: Tensor) -> None:
        """Measure every member on scores that it has not been fitted to."""
        held_out = [HeldOut(torch.arange(len(scores)), scores, each.predict(tokens)) for each in self.members.values()]
        self._r_squared = torch.tensor([each.r_squared for each in held_out], dtype=torch.float64)
        unexplained = 1.0 - self._r_squared
        if bool(unexplained.isfinite().all()):
            self._errors = _FORGET * self._errors + unexplained / unexplained.sum().clamp(min=1e-300)

    @property
    def unused(self) -> list[Surrogate]:
        """Members of no weight, whose predictions do not count at present."""
        return [
            member for member, weight in zip(self.members.values(), self._weights.tolist(), strict=True) if not weight
        ]

    def _chosen(self) -> list[tuple[Surrogate, float, float]]:
        """Members with a weight above zero, their weights and the factors of their deviations."""
        columns = zip(self.members.values(), self._weights.tolist(), self._factors.tolist(), strict=True)
        return [(member, weight, factor) for member, weight, factor in columns if weight > 0.0]

    def _held_out(self) -> list[HeldOut]:
        """What every member says of the rows that all members have held out."""
        held_out = [member.leave_one_out() for member in self.members.values()]
        common = held_out[0].rows
        for other in held_out[1:]:
            common = common[torch.isin(common, other.rows)]
        places = (torch.searchsorted(each.rows, common) for each in held_out)
        return [
            HeldOut(common, each.scores[rows], each.prediction[rows])
            for each, rows in zip(held_out, places, strict=True)
        ]

    def _weigh(self, held_out: list[HeldOut]) -> None:
        self._r_squared = torch.tensor([each.r_squared for each in held_out], dtype=torch.float64)
        if len(held_out[0].scores) < _FEW or bool(self._r_squared.isnan().any()):
            self._weights = torch.full_like(self._weights, 1.0 / len(held_out))
            self._factors = torch.ones_like(self._factors)
            return
        errors = [each.prediction.standardised(each.scores) for each in held_out]
        self._factors = torch.stack([error.square().mean().sqrt() for error in errors]).clamp(min=1e-3)
        self._weights = torch.zeros_like(self._weights)
        if self.mode == "choose":
            self._weights[self._r_squared.argmax()] = 1.0
        else:
            self._weights = stacking_weights(held_out[0].scores, [each.prediction.mean for each in held_out])


def stacking_weights(scores: Tensor, predictions: list[Tensor]) -> Tensor:
    """w ≥ 0 with Σ w = 1 that minimises |scores − Σ w_m·predictions_m|²; [num] and M × [num] → float64, [M].

    Centred on the scores, so that the penalty on Σ w ≠ 1 has one scale.

    >>> truth = torch.tensor([0.0, 1.0, 2.0, 3.0]).double()
    >>> stacking_weights(truth, [truth + 1.0, truth - 1.0, truth + 4.0]).round(decimals=3)
    tensor([0.5000, 0.5000, 0.0000], dtype=torch.float64)
    """
    unit = float((scores - scores.mean()).abs().max()) or 1.0
    columns = torch.stack(predictions, dim=1).sub(scores.mean()).div(unit)
    penalty = _PENALTY * len(scores) ** 0.5
    system = torch.cat([columns, torch.full((1, len(predictions)), penalty, dtype=torch.float64)])
    target = torch.cat([(scores - scores.mean()) / unit, torch.tensor([penalty], dtype=torch.float64)])
    weights = torch.from_numpy(nnls(system.numpy(), target.numpy())[0])
    return weights / weights.sum()


def _mixed(parts: list[Prediction], weights: list[float]) -> Prediction:
    """Mean and deviation of a mixture of distributions; a single one stays as it is."""
    if len(parts) == 1:
        return parts[0]
    mean = torch.stack([weight * part.mean for part, weight in zip(parts, weights, strict=True)]).sum(dim=0)
    spread = [
        weight * (part.deviation.square() + (part.mean - mean).square())
        for part, weight in zip(parts, weights, strict=True)
    ]
    return Prediction(mean, torch.stack(spread).sum(dim=0).sqrt())

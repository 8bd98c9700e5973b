"""An ensemble of small convolutional networks of the score: what matters is whether a motif is there, not where."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from stochflow.surrogates.base import (
    HeldOut,
    Prediction,
    State,
    Surrogate,
    check_rows,
    nothing_held_out,
    unfitted,
)
from stochflow.surrogates.letter_distances import LetterDistance, hamming
from stochflow.surrogates.transforms import Standardisation, Transform

NUM_MEMBERS = 3
NUM_FILTERS = 32
_REACH = 9  # letters that a filter sees
_HIDDEN = 48
_EPOCHS = 60
_LEAST_STEPS, _FIRST_STEPS, _STEPS = 50, 400, 150  # at least, at most in the first fit, and in every other
_ROWS = 128  # of one step
_LEARNING_RATE = 2e-2
_WARMUP = 50
_DECAY = 1e-4
_BLOCK = 2**22  # activations of one block: 16 megabytes
_WEIGHTS = ("filters", "filter_bias", "hidden", "hidden_bias", "output", "output_bias")


class ConvolutionEnsemble(Surrogate):
    """Networks of one convolution, its maximum and its mean over all positions, and a hidden layer.

    Each member leaves out every third row, so a row is held out by one of them. A deviation is that of the members and
    the root mean square error on held-out rows together. A fit begins with the weights of the last one, and its
    number of steps is bounded however many rows there are.

    >>> tokens = torch.randint(4, (600, 12), generator=torch.Generator().manual_seed(0))
    >>> scores = (tokens.unfold(1, 2, 1) == torch.tensor([0, 1])).all(dim=-1).any(dim=-1).double()
    >>> ensemble = ConvolutionEnsemble(4, 12)
    >>> ensemble.fit(tokens, scores)
    >>> ensemble.leave_one_out().r_squared > 0.5
    True

    Args:
        num_tokens, length: K and L.
        distance: of letters, whose points are what a filter sees; Hamming by default.
        transform: "log" for scores whose ratios matter, "identity" for those whose differences do.
        seed: of the first weights and the order of rows.
    """

    def __init__(
        self,
        num_tokens: int,
        length: int,
        distance: LetterDistance | None = None,
        *,
        transform: Transform = "identity",
        seed: int = 0,
    ) -> None:
        self.distance, self.transform, self._length = distance or hamming(num_tokens), transform, length
        self._reach = min(_REACH, length)
        self._generator = torch.Generator().manual_seed(seed)
        self._weights = self._first_weights()
        self._fitted: _Fitted | None = None

    def fit(self, tokens: Tensor, scores: Tensor, variances: Tensor | None = None) -> None:
        check_rows(tokens, scores, variances)
        scores = scores.double()
        standard = Standardisation.of(scores, self.transform, 0.25)
        targets = standard.targets(scores)
        importance = 1.0 / (1.0 + standard.noise(scores, variances))
        most = _FIRST_STEPS if self._fitted is None else _STEPS
        num_steps = min(most, max(_LEAST_STEPS, _EPOCHS * len(tokens) // _ROWS))
        self._descend(tokens, targets.float(), importance.float(), num_steps)
        outputs = self._outputs(tokens)
        held_out = outputs.gather(1, (torch.arange(len(tokens)) % NUM_MEMBERS).unsqueeze(1)).squeeze(1)
        error = ((importance * (held_out - targets).square()).sum() / importance.sum()).sqrt()
        self._fitted = _Fitted(standard, scores, held_out, float(error) or 1.0)

    def predict(self, tokens: Tensor) -> Prediction:
        fitted = self._fitted
        if fitted is None:
            return unfitted(len(tokens))
        outputs = self._outputs(tokens)
        spread = outputs.var(dim=1, correction=0)
        return fitted.standard.prediction(outputs.mean(dim=1), (spread + fitted.error**2).sqrt())

    def predict_mean(self, tokens: Tensor) -> Tensor:
        fitted = self._fitted
        if fitted is None:
            return unfitted(len(tokens)).mean
        return fitted.standard.mean(self._outputs(tokens).mean(dim=1))

    def leave_one_out(self) -> HeldOut:
        """Every row predicted by the member that has not seen it."""
        fitted = self._fitted
        if fitted is None:
            return nothing_held_out()
        deviations = torch.full_like(fitted.held_out, fitted.error)
        return HeldOut(
            torch.arange(len(fitted.scores)), fitted.scores, fitted.standard.prediction(fitted.held_out, deviations)
        )

    def state_dict(self) -> State:
        state = {"generator": self._generator.get_state(), **self._weights}
        if self._fitted is None:
            return state
        standard = self._fitted.standard
        numbers = (standard.unit, standard.centre, standard.scale, self._fitted.error)
        columns = {"scores": self._fitted.scores, "held_out": self._fitted.held_out}
        return state | columns | {"numbers": torch.tensor(numbers, dtype=torch.float64)}

    def load_state_dict(self, state: State) -> None:
        self._generator.set_state(state["generator"])
        self._weights, self._fitted = {name: state[name] for name in _WEIGHTS}, None
        if "numbers" in state:
            unit, centre, scale, error = state["numbers"].tolist()
            standard = Standardisation(self.transform, unit, centre, scale)
            self._fitted = _Fitted(standard, state["scores"], state["held_out"], error)

    def _first_weights(self) -> State:
        num_points = self.distance.embedding.shape[1]
        shapes = {
            "filters": (NUM_MEMBERS * NUM_FILTERS, num_points, self._reach),
            "hidden": (NUM_MEMBERS, 2 * NUM_FILTERS, _HIDDEN),
            "output": (NUM_MEMBERS, _HIDDEN, 1),
        }
        inputs = {"filters": num_points * self._reach, "hidden": 2 * NUM_FILTERS, "output": _HIDDEN}
        weights = {
            name: torch.empty(shape).uniform_(-1.0, 1.0, generator=self._generator) * inputs[name] ** -0.5
            for name, shape in shapes.items()
        }
        biases = {
            "filter_bias": torch.zeros(NUM_MEMBERS * NUM_FILTERS),
            "hidden_bias": torch.zeros(NUM_MEMBERS, 1, _HIDDEN),
            "output_bias": torch.zeros(NUM_MEMBERS, 1, 1),
        }
        return weights | biases

    def _forward(self, tokens: Tensor, weights: State) -> Tensor:
        """What every member says, standardised; [num, L] → [num, NUM_MEMBERS]."""
        points = self.distance.embedding[tokens].transpose(1, 2)
        seen = functional.conv1d(points, weights["filters"], weights["filter_bias"]).relu()
        seen = torch.stack([seen.amax(dim=-1), seen.mean(dim=-1)], dim=-1)
        features = seen.view(len(tokens), NUM_MEMBERS, -1).transpose(0, 1)
        hidden = torch.baddbmm(weights["hidden_bias"], features, weights["hidden"]).relu()
        return torch.baddbmm(weights["output_bias"], hidden, weights["output"]).squeeze(-1).t()

    @torch.no_grad()
    def _outputs(self, tokens: Tensor) -> Tensor:
        """The same in blocks, float64."""
        rows = max(1, _BLOCK // (NUM_MEMBERS * NUM_FILTERS * self._length))
        return torch.cat([self._forward(block, self._weights) for block in tokens.split(rows)]).double()

    def _descend(self, tokens: Tensor, targets: Tensor, importance: Tensor, num_steps: int) -> None:
        """Minimise the weighted squared error of every member on the rows that it does not leave out."""
        members = torch.arange(NUM_MEMBERS)
        weights = {name: weight.clone().requires_grad_() for name, weight in self._weights.items()}
        optimizer = torch.optim.AdamW(weights.values(), _LEARNING_RATE, weight_decay=_DECAY)
        for step in range(num_steps):
            warm = min(1.0, (step + 1) / _WARMUP) * (1.0 - step / num_steps)
            optimizer.param_groups[0]["lr"] = _LEARNING_RATE * warm
            rows = torch.randint(len(tokens), (min(_ROWS, len(tokens)),), generator=self._generator)
            errors = (self._forward(tokens[rows], weights) - targets[rows].unsqueeze(1)).square()
            seen = (rows.unsqueeze(1) % NUM_MEMBERS != members) * importance[rows].unsqueeze(1)
            loss = (seen * errors).sum() / seen.sum().clamp(min=1e-6)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        self._weights = {name: weight.detach() for name, weight in weights.items()}


@dataclass(frozen=True)
class _Fitted:
    """What a fit has found besides the weights.

    Attributes:
        standard: how scores were standardised.
        scores: of the rows, [num_rows].
        held_out: standardised, each by the member that has not seen it, [num_rows].
        error: root mean square of `held_out` minus the targets.
    """

    standard: Standardisation
    scores: Tensor
    held_out: Tensor
    error: float

"""Ensembles of small networks of the score: each member leaves out some rows, on which the others are judged."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

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
)
from stochflow.surrogates.letter_distances import LetterDistance, hamming
from stochflow.surrogates.transforms import Standardisation, Transform

NUM_MEMBERS = 3
_EPOCHS = 60
_LEAST_STEPS, _FIRST_STEPS, _STEPS = 50, 400, 150  # at least, at most in the first fit, and in every other
_ROWS = 128  # of one step
_WARMUP = 50
_BLOCK = 2**22  # activations of one block: 16 megabytes


class NetworkEnsemble(Surrogate):
    """Three networks of one kind, evaluated side by side; a subclass says what the kind is.

    Each member leaves out every third row, so a row is held out by one of them. A deviation is that of the members and
    the root mean square error on held-out rows together. A fit begins with the weights of the last one, unless
    `begins_anew`, and its number of steps is bounded however many rows there are.

    Args:
        num_tokens, length: K and L.
        distance: of letters, whose points are what a network sees; Hamming by default.
        transform: "log" for scores whose ratios matter, "identity" for those whose differences do.
        seed: of the first weights and the order of rows.
    """

    learning_rate: ClassVar[float]
    decay: ClassVar[float]
    begins_anew: ClassVar[bool] = False

    def __init__(
        self,
        num_tokens: int,
        length: int,
        distance: LetterDistance | None = None,
        *,
        transform: Transform = "identity",
        seed: int = 0,
    ) -> None:
        self.distance, self.transform, self.length = distance or hamming(num_tokens), transform, length
        self._generator = torch.Generator().manual_seed(seed)
        self._weights = self.first_weights()
        self._fitted: _Fitted | None = None

    @property
    @abstractmethod
    def activations(self) -> int:
        """Numbers that one design needs on the way."""

    @abstractmethod
    def first_weights(self) -> State:
        """Weights of all members before any fit, drawn with `drawn`, and biases."""

    @abstractmethod
    def forward(self, points: Tensor, weights: State) -> Tensor:
        """What every member says of designs, standardised; their points, [num, L, D] → [num, NUM_MEMBERS]."""

    def penalty(self, weights: State) -> Tensor:
        """What a fit adds to the squared errors of all members; nothing unless a subclass says so."""
        return torch.zeros(())

    def drawn(self, num_inputs: int, *shape: int) -> Tensor:
        """Uniform first weights of a layer with so many inputs."""
        return torch.empty(shape).uniform_(-1.0, 1.0, generator=self._generator) * num_inputs**-0.5

    def fit(self, tokens: Tensor, scores: Tensor, variances: Tensor | None = None) -> None:
        check_rows(tokens, scores, variances)
        scores = scores.double()
        standard = Standardisation.of(scores, self.transform, 0.25)
        targets = standard.targets(scores)
        importance = 1.0 / (1.0 + standard.noise(scores, variances))
        if self.begins_anew and self._fitted is not None:
            self._weights = self.first_weights()
        most = _FIRST_STEPS if self.begins_anew or self._fitted is None else _STEPS
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
        self._weights, self._fitted = {name: state[name] for name in self._weights}, None
        if "numbers" in state:
            unit, centre, scale, error = state["numbers"].tolist()
            standard = Standardisation(self.transform, unit, centre, scale)
            self._fitted = _Fitted(standard, state["scores"], state["held_out"], error)

    @torch.no_grad()
    def _outputs(self, tokens: Tensor) -> Tensor:
        """What every member says, standardised, float64, in blocks; [num, L] → [num, NUM_MEMBERS]."""
        blocks = tokens.split(max(1, _BLOCK // self.activations))
        return torch.cat([self.forward(self.distance.embedding[block], self._weights) for block in blocks]).double()

    @torch.enable_grad()
    def _descend(self, tokens: Tensor, targets: Tensor, importance: Tensor, num_steps: int) -> None:
        """Minimise the weighted squared error of every member on the rows that it does not leave out."""
        members = torch.arange(NUM_MEMBERS)
        weights = {name: weight.clone().requires_grad_() for name, weight in self._weights.items()}
        optimizer = torch.optim.AdamW(weights.values(), self.learning_rate, weight_decay=self.decay)
        for step in range(num_steps):
            warm = min(1.0, (step + 1) / _WARMUP) * (1.0 - step / num_steps)
            optimizer.param_groups[0]["lr"] = self.learning_rate * warm
            rows = torch.randint(len(tokens), (min(_ROWS, len(tokens)),), generator=self._generator)
            outputs = self.forward(self.distance.embedding[tokens[rows]], weights)
            errors = (outputs - targets[rows].unsqueeze(1)).square()
            seen = (rows.unsqueeze(1) % NUM_MEMBERS != members) * importance[rows].unsqueeze(1)
            loss = (seen * errors).sum() / seen.sum().clamp(min=1e-6) + self.penalty(weights)
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

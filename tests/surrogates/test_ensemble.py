"""Members are weighed by held-out errors, and what arrives later says how good the last fit was."""

import math

import pytest
import torch
from torch import Tensor

from stochflow.surrogates.base import HeldOut, Prediction, State, Surrogate
from stochflow.surrogates.ensemble import Ensemble, stacking_weights
from stochflow.surrogates.gaussian_process import GaussianProcess
from stochflow.surrogates.kmer_ridge import KmerRidge


def truth(tokens: Tensor) -> Tensor:
    return tokens.double().sum(dim=1)


class Constant(Surrogate):
    """Predicts the truth with a constant bias, and has held out the rows from `first` on."""

    def __init__(self, bias: float, deviation: float = 1.0, first: int = 0) -> None:
        self.bias, self.deviation, self.first = bias, deviation, first
        self.tokens = torch.zeros(0, 3, dtype=torch.int64)

    def fit(self, tokens: Tensor, scores: Tensor, variances: Tensor | None = None) -> None:
        self.tokens = tokens

    def predict(self, tokens: Tensor) -> Prediction:
        return Prediction(truth(tokens) + self.bias, torch.full((len(tokens),), self.deviation).double())

    def leave_one_out(self) -> HeldOut:
        rows = torch.arange(self.first, len(self.tokens))
        return HeldOut(rows, truth(self.tokens[rows]), self.predict(self.tokens[rows]))

    def state_dict(self) -> State:
        return {"tokens": self.tokens}

    def load_state_dict(self, state: State) -> None:
        self.tokens = state["tokens"]


TOKENS = torch.randint(4, (40, 3), generator=torch.Generator().manual_seed(0))


def test_stacking_weights_are_the_minimum_on_the_simplex() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(50, dtype=torch.float64, generator=generator)
    noise = torch.randn(3, 50, dtype=torch.float64, generator=generator)
    predictions = [scores + size * row for size, row in zip((0.1, 0.2, 1.0), noise, strict=True)]
    weights = stacking_weights(scores, predictions)
    assert weights.sum().item() == pytest.approx(1.0)
    assert bool((weights >= 0).all())

    def error(at: Tensor) -> float:
        return (scores - at @ torch.stack(predictions)).square().sum().item()

    for one in range(3):
        for two in range(3):
            moved = weights.clone()
            moved[one] -= (step := min(0.01, weights[one].item()))
            moved[two] += step
            assert error(moved) >= error(weights) - 1e-6


def test_biases_that_cancel_are_averaged_and_a_bad_member_has_no_weight() -> None:
    ensemble = Ensemble({"above": Constant(1.0), "below": Constant(-1.0), "far": Constant(9.0)})
    ensemble.fit(TOKENS, truth(TOKENS))
    assert ensemble.quality.weights == pytest.approx({"above": 0.5, "below": 0.5, "far": 0.0}, abs=1e-3)
    prediction = ensemble.predict(TOKENS)
    torch.testing.assert_close(prediction.mean, truth(TOKENS), atol=1e-2, rtol=0)
    torch.testing.assert_close(ensemble.predict_mean(TOKENS), prediction.mean)
    # each has an error of one and says so; the mixture of both has that and the distance of its parts
    torch.testing.assert_close(prediction.deviation, torch.full((40,), math.sqrt(2.0)).double(), atol=1e-2, rtol=0)
    torch.testing.assert_close(ensemble.leave_one_out().prediction.mean, prediction.mean)


def test_choosing_takes_the_best_member_alone() -> None:
    ensemble = Ensemble({"above": Constant(1.0), "below": Constant(-0.5)}, mode="choose")
    ensemble.fit(TOKENS, truth(TOKENS))
    quality = ensemble.quality
    assert quality.winner == "below"
    assert quality.weights == {"above": 0.0, "below": 1.0}
    assert quality.r_squared["below"] == pytest.approx(1.0 - 0.25 / truth(TOKENS).var(correction=0).item())
    assert torch.equal(ensemble.predict_mean(TOKENS), truth(TOKENS) - 0.5)


@pytest.mark.parametrize("claimed", [0.01, 1.0, 50.0])
def test_deviations_become_as_large_as_held_out_errors(claimed: float) -> None:
    ensemble = Ensemble({"one": Constant(0.1, claimed)})
    ensemble.fit(TOKENS, truth(TOKENS))
    expected = max(0.1, 1e-3 * claimed)
    torch.testing.assert_close(ensemble.predict(TOKENS).deviation, torch.full((40,), expected).double())


def test_only_rows_that_all_have_held_out_are_compared() -> None:
    ensemble = Ensemble({"all": Constant(1.0), "late": Constant(2.0, first=25)})
    ensemble.fit(TOKENS, truth(TOKENS))
    held_out = ensemble.leave_one_out()
    assert held_out.rows.tolist() == list(range(25, 40))
    assert torch.equal(held_out.scores, truth(TOKENS[25:]))
    few = Ensemble({"all": Constant(1.0), "late": Constant(2.0, first=35)})
    few.fit(TOKENS, truth(TOKENS))
    assert few.quality.weights == {"all": 0.5, "late": 0.5}


def test_what_arrived_measures_the_fit_before() -> None:
    ensemble = Ensemble({"one": Constant(1.0)})
    ensemble.fit(TOKENS[:20], truth(TOKENS[:20]))
    assert math.isnan(ensemble.quality.arrived_coverage)
    later = truth(TOKENS)
    later[20:25] += 10.0  # five of twenty scores that nobody expected
    ensemble.fit(TOKENS, later)
    assert ensemble.quality.arrived_coverage == 0.75
    errors = torch.ones(20, dtype=torch.float64)
    errors[:5] = 9.0
    total = (later[20:] - later[20:].mean()).square().sum()
    assert ensemble.quality.arrived_r_squared == pytest.approx(float(1.0 - errors.square().sum() / total))


def test_equal_scores_give_equal_weights() -> None:
    ensemble = Ensemble({"ridge": KmerRidge(4, 3), "process": GaussianProcess(4, 3)})
    ensemble.fit(TOKENS, torch.full((40,), 0.5, dtype=torch.float64))
    prediction = ensemble.predict(TOKENS[:2])
    assert prediction.mean.tolist() == pytest.approx([0.5, 0.5])
    assert bool((prediction.deviation > 0.2).all())
    assert ensemble.quality.weights == {"ridge": 0.5, "process": 0.5}


def test_a_state_restores_members_and_weights() -> None:
    ensemble, restored = (Ensemble({"ridge": KmerRidge(4, 3), "process": GaussianProcess(4, 3)}) for _ in range(2))
    ensemble.fit(TOKENS[:25], truth(TOKENS[:25]))
    restored.load_state_dict({name: tensor.clone() for name, tensor in ensemble.state_dict().items()})
    for _ in range(2):
        assert repr(ensemble.quality) == repr(restored.quality)
        assert torch.equal(ensemble.predict(TOKENS).mean, restored.predict(TOKENS).mean)
        ensemble.fit(TOKENS, truth(TOKENS))
        restored.fit(TOKENS, truth(TOKENS))


def test_stacking_is_no_worse_than_its_members_on_held_out_rows() -> None:
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(4, (150, 7), generator=generator)
    scores = truth(tokens) + 3.0 * ((tokens[:, 1] == 2) & (tokens[:, 2] == 1))
    ensemble = Ensemble({"ridge": KmerRidge(4, 7), "process": GaussianProcess(4, 7)})
    ensemble.fit(tokens, scores)
    assert ensemble.leave_one_out().r_squared >= max(ensemble.quality.r_squared.values()) - 1e-6


def test_the_member_that_foresees_best_speaks_whatever_it_held_out() -> None:
    class Changing(Constant):
        """Right about what it has been fitted to alone."""

        def leave_one_out(self) -> HeldOut:
            raise AssertionError("nobody asks for held-out rows")

        def predict(self, tokens: Tensor) -> Prediction:
            known = (tokens.unsqueeze(1) == self.tokens).all(dim=-1).any(dim=1)
            return Prediction(truth(tokens) + self.bias * ~known, torch.ones(len(tokens)).double())

    tokens = torch.cartesian_prod(*[torch.arange(4)] * 3)
    ensemble = Ensemble({"near": Changing(2.0), "far": Changing(0.5)}, mode="foresee")
    ensemble.fit(tokens[:10], truth(tokens[:10]))
    assert ensemble.quality.weights == {"near": 1.0, "far": 0.0}  # nothing has arrived
    ensemble.fit(tokens[:20], truth(tokens[:20]))
    assert ensemble.quality.weights == {"near": 0.0, "far": 1.0}
    restored = Ensemble({"near": Changing(2.0), "far": Changing(0.5)}, mode="foresee")
    restored.load_state_dict(ensemble.state_dict())
    assert restored.quality == ensemble.quality
    ensemble.members["far"].bias = 9.0  # type: ignore[attr-defined]
    for end in (30, 40):
        ensemble.fit(tokens[:end], truth(tokens[:end]))
    assert ensemble.quality.weights["near"] == 1.0

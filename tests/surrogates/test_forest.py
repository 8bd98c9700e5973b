"""The forest: its spread, rows held out by the trees that did not see them, and its state."""

import sys

import pytest
import torch
from torch import Tensor

from stochflow.core.errors import ConfigError
from stochflow.surrogates.forest import Forest

pytest.importorskip("sklearn.tree")


def rows(num_rows: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(4, (num_rows, 6), generator=torch.Generator().manual_seed(seed))
    return tokens, (tokens[:, 1] == 2).double() + 0.5 * (tokens[:, 4] == tokens[:, 5])


def small(seed: int = 0, window: int = 5000) -> Forest:
    return Forest(4, 6, seed=seed, num_trees=20, window=window)


def test_it_learns_what_trees_can_say() -> None:
    forest = small()
    forest.fit(*rows(300))
    tokens, scores = rows(200, seed=1)
    errors = forest.predict(tokens).mean - scores
    explained = 1.0 - float(errors.square().mean() / scores.var())
    held_out = forest.leave_one_out()
    assert explained > 0.8
    assert held_out.r_squared == pytest.approx(explained, abs=0.1)
    torch.testing.assert_close(forest.predict_mean(tokens), forest.predict(tokens).mean)


def test_held_out_predictions_come_from_trees_that_did_not_see_the_row() -> None:
    tokens = torch.cartesian_prod(*[torch.arange(4)] * 6)[:40]
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(40, dtype=torch.float64, generator=generator)  # nothing to learn
    forest = small()
    forest.fit(tokens, scores)
    fitted = 1.0 - float((forest.predict_mean(tokens) - scores).square().mean() / scores.var(correction=0))
    assert fitted > 0.7
    assert forest.leave_one_out().r_squared < 0.2


def test_deviations_are_those_of_the_trees() -> None:
    forest = small()
    tokens, scores = rows(100)
    forest.fit(tokens, scores)
    # scores of at most 1.5 are measured in units of 1
    votes = torch.stack([torch.from_numpy(tree.predict(forest.distance.points(tokens))) for tree, _ in forest._trees])
    prediction = forest.predict(tokens)
    torch.testing.assert_close(prediction.mean, votes.mean(dim=0))
    least = 1e-3 * scores.std(correction=0).item()
    torch.testing.assert_close(prediction.deviation, votes.std(dim=0, correction=0).clamp(min=least), atol=1e-6, rtol=0)


def test_a_state_restores_the_same_trees() -> None:
    forest, restored = small(seed=3, window=60), small(seed=3, window=60)
    tokens, scores = rows(100)
    forest.fit(tokens, scores, torch.full((100,), 0.1, dtype=torch.float64))
    restored.load_state_dict({name: tensor.clone() for name, tensor in forest.state_dict().items()})
    assert torch.equal(forest.predict(tokens).mean, restored.predict(tokens).mean)
    assert torch.equal(forest.leave_one_out().rows, restored.leave_one_out().rows)
    assert len(forest.leave_one_out().rows) <= 60
    other = small(seed=4)
    other.fit(tokens, scores)
    assert not torch.equal(other.predict(tokens).mean, forest.predict(tokens).mean)


def test_equal_scores_have_a_wide_deviation() -> None:
    forest = small()
    tokens, _ = rows(8)
    assert forest.predict(tokens).deviation.tolist() == [1.0] * 8
    forest.fit(tokens, torch.full((8,), 0.25, dtype=torch.float64))
    prediction = forest.predict(tokens)
    assert prediction.mean.tolist() == [0.25] * 8
    assert prediction.deviation.tolist() == [0.25] * 8


def test_without_scikit_learn_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "sklearn"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ConfigError, match=r"stochflow\[forest\]"):
        Forest(4, 6)

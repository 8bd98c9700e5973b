"""Two models of an unpaid leaf, weighed by how well they foresaw what was paid for later."""

import pytest
import torch
from torch import Tensor

from stochflow.environments.rewards import Reward
from stochflow.objectives.planning import leaf_model
from stochflow.objectives.planning.leaf_model import LeafModel

K, LENGTH = 3, 4
REWARD = Reward(beta=6.0, floor=1e-12, ramp=0.0)


def rows(generator: torch.Generator) -> Tensor:
    every = torch.cartesian_prod(*[torch.arange(K)] * LENGTH)
    return every[torch.randperm(len(every), generator=generator)]


def product_scores(tokens: Tensor) -> Tensor:
    """Linear in the letters as a logarithm, and nearly all of it close to zero."""
    return (-0.5 * tokens.double().sum(dim=1)).exp()


def sum_scores(tokens: Tensor) -> Tensor:
    """Linear in the letters as it is."""
    return 0.02 + tokens.double().sum(dim=1)


def fitted(tokens: Tensor, scores: Tensor) -> LeafModel:
    model = LeafModel(K, LENGTH)
    for num in (20, 35, 50):
        model.fit(tokens[:num], scores[:num], REWARD)
    return model


def test_the_model_that_foresees_log_r_speaks(generator: torch.Generator) -> None:
    tokens = rows(generator)
    scores = product_scores(tokens)
    model = fitted(tokens, scores)
    assert model.share < 0.3
    truth = REWARD.log_reward(scores)
    errors = model.expected_log_reward(tokens[50:], REWARD) - truth[50:]
    alone = model.of_score.expected_log_reward(tokens[50:], REWARD, None) - truth[50:]
    assert float(errors.square().mean()) < 0.5 * float(alone.square().mean())
    assert fitted(tokens, sum_scores(tokens)).share > model.share


def test_before_anything_has_arrived_the_model_of_the_score_speaks(generator: torch.Generator) -> None:
    tokens = rows(generator)
    model = LeafModel(K, LENGTH)
    model.fit(tokens[:20], product_scores(tokens[:20]), REWARD)
    assert model.share == 1.0
    expected = model.of_score.expected_log_reward(tokens, REWARD, None)
    assert torch.equal(model.expected_log_reward(tokens, REWARD), expected)


def test_a_restored_model_says_and_learns_the_same(generator: torch.Generator) -> None:
    tokens = rows(generator)
    scores = product_scores(tokens)
    model, restored = fitted(tokens, scores), LeafModel(K, LENGTH)
    restored.load_state_dict(model.state_dict())
    for _ in range(2):
        assert restored.share == model.share
        found = restored.expected_log_reward(tokens, REWARD)
        assert torch.equal(found, model.expected_log_reward(tokens, REWARD))
        for each in (model, restored):
            each.fit(tokens[:60], scores[:60], REWARD)


def test_nothing_is_worth_less_than_the_floor(generator: torch.Generator) -> None:
    tokens = rows(generator)
    scores = product_scores(tokens)
    reward = Reward(beta=6.0, floor=1e-6, ramp=0.0)
    model = fitted(tokens, scores)
    assert float(model.expected_log_reward(tokens, reward).min()) >= float(torch.tensor(1e-6).double().log())


def test_many_weights_and_rows_are_left_to_the_model_of_the_score(
    monkeypatch: pytest.MonkeyPatch, generator: torch.Generator
) -> None:
    monkeypatch.setattr(leaf_model, "_MAX_RANK", 10)
    tokens = rows(generator)
    assert fitted(tokens, product_scores(tokens)).share == 1.0

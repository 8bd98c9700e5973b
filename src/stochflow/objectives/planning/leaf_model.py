"""What an unpaid leaf is worth: E[log R] by ridge regressions of the score and of log R, weighed by what arrived."""

import torch
from torch import Tensor

from stochflow.environments.rewards import Reward
from stochflow.objectives.planning.kmer_model import PlacedKmers, fit_ridge
from stochflow.surrogates.kmer_ridge import KmerRidge

_LONGEST = 3  # letters of the k-mers that log R is regressed on
_MAX_RANK = 2000  # rows or weights of an eigendecomposition, which takes a second then
_MAX_ROWS = 8000  # beyond which little is unpaid, and a regression of log R would cost more than a plan
_FORGET = 0.5  # of what earlier arrivals have said, per fit


class LeafModel:
    """share·E[log R] by a model of the score + (1 − share)·E[log R] by a model of log R, of designs not paid for.

    R is a power of the score. A model of the score knows the best designs and says little about the many that are worth
    almost nothing; a model of log R is the other way round. The share is the one with the smallest squared error of
    log R on scores that arrived after the fits that predicted them, the newest counting most.

    >>> tokens = torch.cartesian_prod(*[torch.arange(2)] * 6)
    >>> model, reward = LeafModel(2, 6), Reward(beta=3.0, floor=1e-6, ramp=0.0)
    >>> scores = tokens.double().mean(dim=1).exp()  # log R is linear in the letters
    >>> for num in (16, 32, 48):
    ...     model.fit(tokens[:num], scores[:num], reward)
    >>> model.share < 0.5
    True

    Args:
        num_tokens, length: K and L.

    Attributes:
        share: of the model of the score, between 0 and 1; 1 before anything has arrived.
    """

    def __init__(self, num_tokens: int, length: int) -> None:
        self.of_score = KmerRidge(num_tokens, length)
        self._kmers = PlacedKmers(num_tokens, length, _LONGEST)
        self._weights, self._mean = torch.zeros(0, dtype=torch.float64), 0.0
        self._moments = torch.zeros(2, dtype=torch.float64)  # Σ d·(log R − of log R) and Σ d², d = of score − of log R

    @property
    def share(self) -> float:
        product, square = self._moments.tolist()
        return min(1.0, max(0.0, product / square)) if square > 0.0 and len(self._weights) else 1.0

    def fit(self, tokens: Tensor, scores: Tensor, reward: Reward, step: int | None = None) -> None:
        """Measure the last fit on what has arrived since, then fit to all of it; [n, L], [n]."""
        log_rewards = reward.log_reward(scores, step)
        arrived = slice(self.of_score.num_fitted, None)
        if len(self._weights) and 0 < self.of_score.num_fitted < len(scores):
            of_log = self._of_log_reward(tokens[arrived])
            gaps = self.of_score.expected_log_reward(tokens[arrived], reward, step) - of_log
            found = torch.stack([(gaps * (log_rewards[arrived] - of_log)).sum(), gaps.square().sum()])
            self._moments = _FORGET * self._moments + found
        self.of_score.fit(tokens, scores)
        self._weights = torch.zeros(0, dtype=torch.float64)
        if len(tokens) <= _MAX_ROWS and min(len(tokens), self._kmers.num) <= _MAX_RANK:
            self._weights, self._mean = fit_ridge(self._kmers.design(tokens), log_rewards)

    def expected_log_reward(self, tokens: Tensor, reward: Reward, step: int | None = None) -> Tensor:
        """E[log R], float64; [n, L] → [n]."""
        share = self.share
        if share == 1.0:
            return self.of_score.expected_log_reward(tokens, reward, step)
        found = (1.0 - share) * self._of_log_reward(tokens)
        if share > 0.0:
            found += share * self.of_score.expected_log_reward(tokens, reward, step)
        # a linear model knows no bounds
        return found.clamp(min=float(reward.log_reward(torch.zeros(1, dtype=torch.float64), step)))

    def _of_log_reward(self, tokens: Tensor) -> Tensor:
        return torch.from_numpy(self._kmers.design(tokens) @ self._weights.numpy()) + self._mean

    def state_dict(self) -> dict[str, Tensor]:
        model = self.of_score
        numbers = [model.mean, model.spread, float(model.num_fitted), self._mean]
        return {
            "of_score": model.weights,
            "of_log_reward": self._weights,
            "moments": self._moments,
            "numbers": torch.tensor(numbers, dtype=torch.float64),
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        model = self.of_score
        model.weights, self._weights, self._moments = state["of_score"], state["of_log_reward"], state["moments"]
        model.mean, model.spread, num_fitted, self._mean = state["numbers"].tolist()
        model.num_fitted = int(num_fitted)

"""A guess at scores that were never paid for: ridge regression on k-mer counts."""

import math

import numpy as np
import torch
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, cg
from torch import Tensor

from stochflow.environments.rewards import Reward
from stochflow.models.kmers import kmer_buckets

POSITIONAL = (1, 2, 3)
ANYWHERE = (4, 5, 6, 7)
MAX_BUCKETS = 2**15
RIDGE = 16.0
_BLOCK = 2**22  # features of one block: tens of megabytes
# Gauss–Hermite rule for expectations under a normal distribution
_NODES, _WEIGHTS = (torch.from_numpy(values) for values in np.polynomial.hermite_e.hermegauss(7))


class RewardModel:
    """score(x) ≈ mean + Σ weights of the k-mers of x.

    Short k-mers count per position, long ones wherever they stand: a binding site matters more than its place.
    `spread` is the root mean square error on scores that arrived after the fit, so it is never measured on what
    the model was fitted to.
    """

    def __init__(self, num_tokens: int, length: int) -> None:
        self.num_tokens, self.length = num_tokens, length
        self._columns = [(k, True) for k in POSITIONAL if k <= length] + [(k, False) for k in ANYWHERE if k <= length]
        self.weights = torch.zeros(
            int(self.features(torch.zeros(0, length, dtype=torch.int64))[1]), dtype=torch.float64
        )
        self.mean = 0.0
        self.spread = 0.0
        self.num_fitted = 0

    def features(self, tokens: Tensor) -> tuple[Tensor, int]:
        """Weight indices of the k-mers of each sequence, [rows, num_features], and the number of weights."""
        columns, offset = [], 0
        codes = torch.zeros(len(tokens), self.length + 1, dtype=torch.int64)
        for k, positional in self._columns:  # every k from one on: each k-mer is one that was there and a letter more
            buckets = min(self.num_tokens**k, MAX_BUCKETS)
            num_starts = self.length - k + 1
            codes = codes[:, :num_starts] * self.num_tokens + tokens[:, k - 1 :]
            tables = torch.arange(num_starts) if positional else torch.zeros(num_starts, dtype=torch.int64)
            columns.append(kmer_buckets(codes, self.num_tokens**k, MAX_BUCKETS) + (tables * buckets + offset))
            offset += buckets * (num_starts if positional else 1)
        return torch.cat(columns, dim=-1), offset

    def predict(self, tokens: Tensor) -> Tensor:
        """Expected scores, float64, computed in blocks; [rows, L] → [rows]."""
        blocks = self._blocks(tokens)
        return torch.cat([self.weights[self.features(block)[0]].sum(dim=-1) for block in blocks]) + self.mean

    def fit(self, tokens: Tensor, scores: Tensor) -> None:
        """Fit to all paid scores; what came since the last fit first measures how wrong the old fit was."""
        # squares of the scores must neither overflow nor vanish; a power of two costs no precision
        scale = 2.0 ** (math.frexp(float(scores.max()))[1] - 1)
        if self.num_fitted and len(scores) > self.num_fitted:
            fresh = slice(self.num_fitted, None)
            errors = (self.predict(tokens[fresh]) - scores[fresh]) / scale
            self.spread = scale * float(errors.square().mean().sqrt())
        elif not self.num_fitted:
            self.spread = scale * float((scores / scale).std(correction=0))
        design = self._design(tokens)
        rows, num_weights = design.shape
        self.mean = float(scores.mean())
        normal = LinearOperator(
            (num_weights, num_weights), matvec=lambda v: design.T @ (design @ v) + RIDGE * v, dtype=np.float64
        )
        target = design.T @ ((scores.numpy() - self.mean) / scale)
        solution, _ = cg(normal, target, x0=self.weights.numpy() / scale, rtol=1e-3, maxiter=200)
        self.weights = torch.from_numpy(solution * scale)
        self.num_fitted = rows

    def _design(self, tokens: Tensor) -> sparse.csr_matrix:
        """How often each sequence has each k-mer, [rows, num_weights]; its indices are narrow and made in blocks."""
        rows, columns = len(tokens), sum(self.length - k + 1 for k, _ in self._columns)
        indices = np.empty((rows, columns), dtype=np.int32 if len(self.weights) < 2**31 else np.int64)
        filled = 0
        for block in self._blocks(tokens):
            indices[filled : filled + len(block)] = self.features(block)[0].numpy()
            filled += len(block)
        entries = (np.ones(rows * columns), indices.ravel(), np.arange(rows + 1) * columns)
        return sparse.csr_matrix(entries, shape=(rows, len(self.weights)))

    def _blocks(self, tokens: Tensor) -> tuple[Tensor, ...]:
        return tokens.split(max(1, _BLOCK // (self.length * len(self._columns))))

    def expected_log_reward(self, tokens: Tensor, reward: Reward, step: int | None) -> Tensor:
        """E[log R] with a normal error around the prediction; [rows, L] → [rows].

        KL(P_π‖R/Z) is linear in log R, so under uncertainty its minimiser is that of the expected log R.
        """
        scores = self.predict(tokens).unsqueeze(-1) + self.spread * _NODES
        return reward.log_reward(scores, step) @ (_WEIGHTS / _WEIGHTS.sum())

"""Ridge regression of the score on k-mer counts."""

import numpy as np
import torch
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, cg
from torch import Tensor

from stochflow.environments.rewards import Reward
from stochflow.models.kmers import kmer_buckets
from stochflow.surrogates.base import (
    NODES,
    WEIGHTS,
    HeldOut,
    Prediction,
    State,
    Surrogate,
    check_rows,
    nothing_held_out,
    row_weights,
    unit_of,
    wide_deviation,
)
from stochflow.surrogates.posterior import leave_one_out

POSITIONAL = (1, 2, 3)
ANYWHERE = (4, 5, 6, 7)
MAX_BUCKETS = 2**15
RIDGE = 16.0
MAX_CLOSED_FORM = 3000  # rows whose leave-one-out errors take one dense matrix
_FOLD = 5
_BLOCK = 2**22  # features of one block: tens of megabytes


class KmerRidge(Surrogate):
    """score(x) ≈ mean + Σ weights of the k-mers of x.

    Short k-mers count per position, long ones wherever they stand: a binding site matters more than its place.
    `spread` is the root mean square error on scores that arrived after the fit, so it is never measured on what
    the model was fitted to. It is the deviation of every prediction.

    >>> tokens = torch.cartesian_prod(*[torch.arange(2)] * 6)
    >>> ridge = KmerRidge(2, 6)
    >>> ridge.fit(tokens, tokens.double().mean(dim=1))
    >>> ridge.leave_one_out().r_squared > 0.9
    True

    Args:
        num_tokens, length: K and L.
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
        self._rows: tuple[Tensor, Tensor, Tensor | None] | None = None

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

    def predict(self, tokens: Tensor) -> Prediction:
        means = self.predict_mean(tokens)
        return Prediction(means, torch.full_like(means, self.spread or self._wide))

    def predict_mean(self, tokens: Tensor) -> Tensor:
        """Expected scores, float64, computed in blocks; [rows, L] → [rows]."""
        blocks = self._blocks(tokens)
        return torch.cat([self.weights[self.features(block)[0]].sum(dim=-1) for block in blocks]) + self.mean

    def fit(self, tokens: Tensor, scores: Tensor, variances: Tensor | None = None) -> None:
        """Fit to all paid scores; what came since the last fit first measures how wrong the old fit was."""
        check_rows(tokens, scores, variances)
        scale = unit_of(scores)
        if self.num_fitted and len(scores) > self.num_fitted:
            fresh = slice(self.num_fitted, None)
            errors = (self.predict_mean(tokens[fresh]) - scores[fresh]) / scale
            self.spread = scale * float(errors.square().mean().sqrt())
        elif not self.num_fitted:
            self.spread = scale * float((scores / scale).std(correction=0))
        importance = None if variances is None else row_weights(scores, variances)
        self._refit(tokens, scores, importance, scale)
        self._rows = (tokens.to(torch.int16), scores.clone(), importance)

    def leave_one_out(self) -> HeldOut:
        """Up to 3,000 rows in closed form; of more every fifth, predicted from the rest."""
        if self._rows is None:
            return nothing_held_out()
        tokens, scores, importance = self._rows
        if len(scores) <= MAX_CLOSED_FORM:
            rows, means = torch.arange(len(scores)), self._closed_form(tokens.long(), scores, importance)
        else:
            rows = torch.arange(_FOLD - 1, len(scores), _FOLD)
            means = self._fold(rows, tokens.long(), scores, importance)
        return HeldOut(rows, scores[rows], Prediction(means, torch.full_like(means, self.spread or self._wide)))

    def state_dict(self) -> State:
        numbers = torch.tensor([self.mean, self.spread, float(self.num_fitted)], dtype=torch.float64)
        state = {"weights": self.weights, "numbers": numbers}
        if self._rows is not None:
            state |= {"tokens": self._rows[0], "scores": self._rows[1]}
            state |= {} if self._rows[2] is None else {"importance": self._rows[2]}
        return state

    def load_state_dict(self, state: State) -> None:
        self.weights = state["weights"]
        self.mean, self.spread, num_fitted = state["numbers"].tolist()
        self.num_fitted = int(num_fitted)
        self._rows = (state["tokens"], state["scores"], state.get("importance")) if "tokens" in state else None

    def _closed_form(self, tokens: Tensor, scores: Tensor, importance: Tensor | None) -> Tensor:
        """Each row predicted from the others with the same mean: ridge is a process of covariance X·Xᵀ and noise λ."""
        design, scale = self._design(tokens), unit_of(scores)
        covariance = torch.from_numpy((design @ design.T).toarray())
        covariance.diagonal().add_(RIDGE if importance is None else RIDGE / importance)
        errors, _ = leave_one_out(torch.linalg.cholesky(covariance), (scores - self.mean) / scale)
        return scores - scale * errors

    def _fold(self, rows: Tensor, tokens: Tensor, scores: Tensor, importance: Tensor | None) -> Tensor:
        """These rows predicted from all others."""
        others = torch.ones(len(scores), dtype=torch.bool).index_fill(0, rows, False)
        model = KmerRidge(self.num_tokens, self.length)
        model._refit(
            tokens[others], scores[others], None if importance is None else importance[others], unit_of(scores)
        )
        return model.predict_mean(tokens[rows])

    @property
    def _wide(self) -> float:
        return 1.0 if self._rows is None else wide_deviation(self._rows[1])

    def _refit(self, tokens: Tensor, scores: Tensor, importance: Tensor | None, scale: float) -> None:
        """Solve the ridge equations by conjugate gradients, beginning with the last weights."""
        design = self._design(tokens)
        rows, num_weights = design.shape
        weigh = 1.0 if importance is None else importance.numpy()
        self.mean = float(scores.mean() if importance is None else (importance * scores).sum() / importance.sum())
        normal = LinearOperator(
            (num_weights, num_weights), matvec=lambda v: design.T @ (weigh * (design @ v)) + RIDGE * v, dtype=np.float64
        )
        target = design.T @ (weigh * ((scores.numpy() - self.mean) / scale))
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
        scores = self.predict_mean(tokens).unsqueeze(-1) + self.spread * NODES
        return reward.log_reward(scores, step) @ (WEIGHTS / WEIGHTS.sum())

"""A Gaussian process of given kernel and noise, conditioned on rows of data."""

from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor

from stochflow.surrogates.kernels import SequenceKernel

_BLOCK = 2**22  # entries of one block of a kernel matrix: 32 megabytes
_LEAST = 1e-6  # of a variance that is one before any data
_MORE_NOISE = 1e-6  # first addition where rounding has made the covariance indefinite


class Posterior:
    """f | z for f ~ GP(0, k) and z = f(x) + noise: mean kᵀC⁻¹z and variance k(x, x) − kᵀC⁻¹k with C = K + diag(noise).

    The spectrum kernel is an inner product of features, so its part of a mean is a sum of one weight per k-mer;
    only letter distances are computed to every row.

    Args:
        kernel: k, one on the diagonal.
        tokens: int64, [num_rows, L].
        targets: z, float64, [num_rows].
        noise: variance of each, float64, [num_rows].
        weights: C⁻¹z where it is known already, [num_rows].
    """

    def __init__(
        self, kernel: SequenceKernel, tokens: Tensor, targets: Tensor, noise: Tensor, weights: Tensor | None = None
    ) -> None:
        self.kernel, self.tokens, self.targets, self.noise = kernel, tokens, targets, noise
        self.weights = self._solve(targets) if weights is None else weights
        self._compared = kernel.distance.compared(tokens)
        self._kmer_weights = torch.from_numpy(kernel.spectrum.matrix(tokens).T @ self.weights.numpy())

    @cached_property
    def factor(self) -> Tensor:
        """Lower Cholesky factor of C, float64, [num_rows, num_rows]."""
        covariance = torch.empty(len(self.tokens), len(self.tokens), dtype=torch.float64)
        for rows in self._blocks(len(self.tokens)):
            covariance[rows] = self.kernel(self.tokens[rows], self.tokens)
        covariance.diagonal().add_(self.noise)
        factor, failed = torch.linalg.cholesky_ex(covariance)
        more = _MORE_NOISE
        while failed:
            covariance.diagonal().add_(more)
            factor, failed = torch.linalg.cholesky_ex(covariance)
            more *= 10.0
        return factor

    def means(self, tokens: Tensor) -> Tensor:
        """E[f | z] of any sequences, float64, to single precision; [num, L] → [num]."""
        return torch.cat([self._block_means(tokens[rows]) for rows in self._blocks(len(tokens))])

    def variances(self, tokens: Tensor) -> Tensor:
        """Var[f | z] of any sequences, float64; [num, L] → [num]."""
        return torch.cat([self._block_variances(tokens[rows]) for rows in self._blocks(len(tokens))])

    def projected(self, tokens: Tensor) -> Tensor:
        """F⁻¹k with C = F·Fᵀ: Cov[f | z] is k(x, y) less the inner products of its columns; → [num_rows, num]."""
        return torch.linalg.solve_triangular(self.factor, self.kernel(self.tokens, tokens), upper=False)

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Error and variance, noise included, of each row predicted from the others, [num_rows] each."""
        return leave_one_out(self.factor, self.targets)

    def _solve(self, targets: Tensor) -> Tensor:
        return torch.cholesky_solve(targets.unsqueeze(1), self.factor).squeeze(1)

    def _block_means(self, tokens: Tensor) -> Tensor:
        distance, spectrum, mixture = self.kernel.distance, self.kernel.spectrum, self.kernel.mixture
        distances = distance.between_compared(distance.compared(tokens), self._compared)
        means = mixture.mixing * (distances.float().mul_(-mixture.rate).exp_() @ self.weights.float()).double()
        if mixture.mixing == 1.0:
            return means
        kmers, values = spectrum.features(tokens)
        return means + (1.0 - mixture.mixing) * (self._kmer_weights[kmers] * values).sum(dim=1)

    def _block_variances(self, tokens: Tensor) -> Tensor:
        return (1.0 - self.projected(tokens).square_().sum(dim=0)).clamp_(min=_LEAST)

    def _blocks(self, num: int) -> Iterator[slice]:
        size = max(1, _BLOCK // max(len(self.tokens), self._points_per_row))
        return (slice(begin, begin + size) for begin in range(0, max(num, 1), size))

    @property
    def _points_per_row(self) -> int:
        return self.tokens.shape[1] * self.kernel.distance.embedding.shape[1]


def leave_one_out(factor: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Error and variance of each row predicted from the others, [num] each.

    With C = factor·factorᵀ the covariance of the rows: error_i = [C⁻¹z]_i / [C⁻¹]_ii and variance_i = 1/[C⁻¹]_ii
    (Rasmussen and Williams 2006, section 5.4.2).
    """
    inverse = torch.cholesky_inverse(factor)
    variances = 1.0 / inverse.diagonal()
    return (inverse @ targets) * variances, variances

"""How much each position matters to a Gaussian process: automatic relevance determination."""

import torch
from torch import Tensor

from stochflow.surrogates.kernels import Mixture

ROWS = 500  # that one step sees
_FIRST_STEPS, _STEPS = 40, 12  # where nothing was known before, and otherwise
_LEARNING_RATE = 0.15
_SPREAD = 2.0  # prior deviation of a logarithm of a relevance


def relevances(
    points: Tensor, spectrum: Tensor, mixture: Mixture, targets: Tensor, noise: Tensor, start: Tensor | None
) -> Tensor:
    """Weights of positions in the distance of two sequences, by the evidence of the scores; 1 on average, [L].

    The evidence is the marginal likelihood of the targets under the kernel with d(x, y) = Σ_t w_t·d(x_t, y_t), its
    amplitude at its maximum; a normal prior on log w keeps positions of which little is known near the others. Adam
    climbs it, every step on other rows.

    >>> points = torch.cartesian_prod(*[torch.arange(2.0)] * 5).unsqueeze(-1)
    >>> targets = 2.0 * points[:, 0, 0].double() - 1.0
    >>> found = relevances(points, torch.zeros(32, 32), Mixture(0.5, 1.0), targets, torch.full((32,), 0.01), None)
    >>> bool(found[0] > 4.0 * found[1:].max())
    True

    Args:
        points: what stands for the letters, squared distances of which are distances, [num, L, D].
        spectrum: kernel of shared k-mers, [num, num].
        mixture: of the two kernels.
        targets: standardised scores, [num].
        noise: variance of each, [num].
        start: weights to begin at, [L]; None for equal ones.
    """
    num, num_steps = len(points), _FIRST_STEPS if start is None else _STEPS
    first = torch.ones(points.shape[1], dtype=torch.float64) if start is None else start
    log_weights = first.log().requires_grad_()
    optimizer = torch.optim.Adam([log_weights], _LEARNING_RATE)
    for step in range(num_steps):
        rows = torch.arange(step % -(-num // ROWS), num, -(-num // ROWS))
        seen = points[rows].double(), spectrum[rows][:, rows].double()
        negative = -_log_evidence(log_weights, *seen, mixture, targets[rows], noise[rows])
        penalty = (log_weights - log_weights.mean()).square().sum() / (2.0 * _SPREAD**2)
        optimizer.zero_grad()
        ((negative + penalty) / len(rows)).backward()
        optimizer.step()
    found = log_weights.detach().exp()
    return found / found.mean() if bool(found.isfinite().all()) else first


def _log_evidence(
    log_weights: Tensor, points: Tensor, spectrum: Tensor, mixture: Mixture, targets: Tensor, noise: Tensor
) -> Tensor:
    """Log marginal likelihood up to a constant, with the amplitude that makes it largest."""
    weighted = (points * (0.5 * log_weights).exp().unsqueeze(-1)).flatten(1)
    squares = weighted.square().sum(dim=1)
    distances = (squares.unsqueeze(1) + squares - 2.0 * weighted @ weighted.T).clamp(min=0.0)
    covariance = mixture.mixing * torch.exp(-mixture.rate * distances) + (1.0 - mixture.mixing) * spectrum
    factor, failed = torch.linalg.cholesky_ex(covariance + torch.diag(noise))
    if failed:
        return torch.zeros((), dtype=torch.float64, requires_grad=True)
    fitted = targets @ torch.cholesky_solve(targets.unsqueeze(1), factor).squeeze(1)
    return -0.5 * len(targets) * fitted.log() - factor.diagonal().log().sum()

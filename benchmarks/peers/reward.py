"""One reward for all: the table of ours, and the check that a peer's own agrees with it."""

from pathlib import Path

import numpy as np

_TOLERANCE = 1e-4  # float32 logarithms


def spread(ours: np.ndarray, theirs: np.ndarray) -> float:
    """How far two tables of log R are from differing by a constant: half the range of the difference, in nats."""
    if ours.shape != theirs.shape:
        raise ValueError(
            f"tables of log R have shapes {ours.shape} and {theirs.shape}; they must list the same designs"
        )
    difference = ours.astype(np.float64) - theirs.astype(np.float64)
    return float(difference.max() - difference.min()) / 2


def require_same(ours: np.ndarray, theirs: np.ndarray) -> None:
    """Refuse to compare on different rewards; a constant factor of R changes no distribution."""
    found = spread(ours, theirs)
    if not found <= _TOLERANCE:
        raise ValueError(f"log R differs by up to {found:.2g} nats beyond a constant; give both the same β and floor")


def read_log_rewards(path: Path) -> np.ndarray:
    """log R of every 8-mer in lexicographic order, as `write_log_rewards` left it, float64, [65,536]."""
    return np.fromfile(path, dtype=np.float64)


def write_log_rewards(path: Path, log_rewards: np.ndarray) -> None:
    log_rewards.astype(np.float64).tofile(path)


def total_variation(log_probs: np.ndarray, log_rewards: np.ndarray) -> float:
    """½ Σ |P(x) − R(x)/Z| over all designs; both [num_designs]."""
    target = np.exp(log_rewards - log_rewards.max())
    return float(0.5 * np.abs(np.exp(log_probs) - target / target.sum()).sum())

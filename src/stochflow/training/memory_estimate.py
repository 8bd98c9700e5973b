"""The least memory that settings ask for, known before anything of that size is made."""

from stochflow.config.schema import Config
from stochflow.core.ram import require

_FLOAT, _INDEX = 4, 8
# a weight, its gradient and two moments
_COPIES = 4
# width × width, of a layer
_MATRICES = {"kmer": 1, "transformer": 4}


def check_needs(config: Config, num_tokens: int, length: int, num_features: int = 0) -> None:
    """Refuse a batch, a replay buffer, designs or states of chains that cannot fit.

    Args:
        num_features: of a state of a graph; 0 for sequences, whose states are prefixes.
    """
    optimiser, budget, model = config.optimiser, config.budget, config.model
    batch = min(optimiser.batch_size, budget.trajectories or optimiser.batch_size)
    rows = _num_prefixes(batch, num_tokens, length)
    needs = {
        "optimiser.batch_size": float(batch) * length * _INDEX * 3 + rows * num_tokens * _FLOAT * 2,
        "optimiser.batch_size × model.width": rows * model.width * _FLOAT * 2,
        "optimiser.replay_size": float(optimiser.replay_size) * (3 * length + 8),
        "evaluation.num_samples": float(config.evaluation.num_samples) * length * _INDEX * 3,
        "dynamics.sample_size × dynamics.rounds": 0.0,
    }
    if config.dynamics.kind == "learned" and config.dynamics.off_policy and not num_features:
        drawn = float(config.dynamics.sample_size) * config.dynamics.rounds
        needs["dynamics.sample_size × dynamics.rounds"] = drawn * (3 * length + _INDEX)
    if config.objective.record.edits_designs:
        needs["chains.kept"] = float(config.chains.kept) * length
    matrices = _MATRICES[model.body] * model.num_layers
    needs["model.width and model.num_layers"] = float(matrices) * model.width**2 * _FLOAT * _COPIES
    require(needs)


def _num_prefixes(batch: int, num_tokens: int, length: int) -> float:
    """At least so many rows of a network for a batch: prefixes that sequences share are evaluated once."""
    rows, different = 0.0, 1.0
    for _ in range(length):
        rows += min(float(batch), different)
        different = min(different * num_tokens, 1e18)
    return rows

"""What a summary holds."""

from stochflow.evaluation.summary import Summary

REQUIRED_KEYS = [
    *("task", "method", "noise", "beta", "seed", "steps", "trajectories", "oracle_calls"),
    *("kl", "min_kl", "regret", "tv", "min_tv", "mean_score", "attainable_score"),
    *("top100_mean", "top100_hamming", "num_modes", "log_z", "log_z_true"),
    *("dynamics_ce", "dynamics_ce_floor", "seconds"),
]


def test_a_summary_starts_with_the_required_keys_in_their_order() -> None:
    keys = list(Summary.model_fields)
    assert keys[: len(REQUIRED_KEYS)] == REQUIRED_KEYS
    assert len(REQUIRED_KEYS) == 23
    assert keys[len(REQUIRED_KEYS) :] == [
        *("top100_edit", "unique_fraction", "novelty", "scored_fraction", "feasible_fraction", "status"),
        *("reward_noise", "reward_mean", "known_modes", "entropy_gap", "support", "j", "j_se", "regret_se"),
        *("feedback", "value_of_feedback"),
        *("world", "measured", "surrogate", "surrogate_r2", "surrogate_rank_correlation", "surrogate_coverage"),
        "surrogate_reach",
    ]

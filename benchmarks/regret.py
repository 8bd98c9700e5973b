"""Regret of SGFN-KL and its scopes on TFBind8 (β = 3, learned dynamics), by noise and number of trajectories.

python -m benchmarks.regret
"""

from benchmarks.sweep import Case, medians, parser, publish, sweep

COLUMNS = ["regret", "kl", "min_kl", "tv", "mean_score", "dynamics_excess", "oracle_calls", "cpu_seconds"]


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--methods", nargs="+", default=["sgfn-kl"])
    options.add_argument("--noise", nargs="+", type=float, default=[0.25, 0.5])
    options.add_argument("--trajectories", nargs="+", type=int, default=[32_000, 128_000])
    options.add_argument("--set", nargs="*", default=[], help="settings for all runs, such as dynamics.kind=known")
    options.add_argument("--name", default="regret", help="name of the result files")
    given = options.parse_args()
    cases = [
        Case(
            {"method": method, "noise": noise, "trajectories": trajectories, "seed": seed},
            {"task": "tfbind8", "method": method, "noise": noise, "trajectories": trajectories, "seed": seed},
            tuple(given.set),
        )
        for trajectories in given.trajectories
        for noise in given.noise
        for method in given.methods
        for seed in range(given.seeds)
    ]
    frame = sweep(cases, given.name, given.jobs)
    frame["dynamics_excess"] = frame["dynamics_ce"].astype(float) - frame["dynamics_ce_floor"]
    table = medians(frame, ["method", "noise", "trajectories"], COLUMNS)
    publish(table, given.name, f"TFBind8 SIX6, β = 3, medians over {given.seeds} seeds {' '.join(given.set)}")


if __name__ == "__main__":
    main()

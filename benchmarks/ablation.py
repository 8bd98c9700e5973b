"""What the entropy ratio and the dynamics loss do to regret (λ_r, λ_d, γ, q), against the KL alone.

python -m benchmarks.ablation
"""

from benchmarks.sweep import Case, medians, parser, publish, sweep

OFF = {"lambda_ratio": 0.0, "lambda_dynamics": 0.0, "gammas": [0.5], "quantile": 0.75, "lambda_schedule": "linear"}
VARIANTS = [
    {},
    {"lambda_ratio": 0.003},
    {"lambda_ratio": 0.03},
    {"lambda_ratio": 0.3},
    {"lambda_dynamics": 0.003},
    {"lambda_dynamics": 0.03},
    {"lambda_dynamics": 0.3},
    {"lambda_ratio": 0.03, "gammas": [0.25]},
    {"lambda_ratio": 0.03, "gammas": [0.75]},
    {"lambda_ratio": 0.03, "gammas": [0.25, 0.5, 0.75]},
    {"lambda_ratio": 0.03, "quantile": 0.6},
    {"lambda_ratio": 0.03, "quantile": 0.9},
    {"lambda_ratio": 0.03, "lambda_schedule": "constant"},
    {"lambda_ratio": 0.03, "lambda_dynamics": 0.03, "gammas": [0.25, 0.5, 0.75]},
]


def main() -> None:
    options = parser(__doc__)
    options.set_defaults(seeds=3)
    options.add_argument("--methods", nargs="+", default=["sgfn-kl", "sgfn-kl-trajectory"])
    options.add_argument("--noise", type=float, default=0.25)
    options.add_argument("--trajectories", type=int, default=8_000)
    options.add_argument("--name", default="ablation")
    given = options.parse_args()
    cases = [
        Case(
            {"method": method, **OFF, **variant, "gammas": str((OFF | variant)["gammas"]), "seed": seed},
            {
                "task": "tfbind8",
                "method": method,
                "noise": given.noise,
                "trajectories": given.trajectories,
                "seed": seed,
                "config": {"objective": OFF | variant},
            },
        )
        for method in given.methods
        for variant in VARIANTS
        for seed in range(given.seeds)
    ]
    frame = sweep(cases, given.name, given.jobs)
    table = medians(frame, ["method", *OFF], ["regret", "tv", "mean_score", "num_modes", "top100_mean"])
    baseline = table[(table["lambda_ratio"] == 0) & (table["lambda_dynamics"] == 0)].set_index("method")["regret"]
    table["change"] = table["regret"] - table["method"].map(baseline)
    publish(
        table,
        given.name,
        f"TFBind8, α = {given.noise}, {given.trajectories:,} trajectories, medians over {given.seeds} seeds; "
        "change: regret minus that of the KL alone (below zero helps)",
    )


if __name__ == "__main__":
    main()

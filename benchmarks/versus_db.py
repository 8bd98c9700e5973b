"""How many trajectories SGFN-KL needs for the regret that SGFN-DB has after 192,000 (TFBind8, α = 0.5).

python -m benchmarks.versus_db
"""

from benchmarks.regret import COLUMNS
from benchmarks.sweep import Case, medians, parser, publish, sweep

DB_TRAJECTORIES = 192_000
KL_TRAJECTORIES = DB_TRAJECTORIES // 10


def main() -> None:
    given = parser(__doc__).parse_args()
    budgets = {"sgfn-kl": KL_TRAJECTORIES, "sgfn-db": DB_TRAJECTORIES}
    cases = [
        Case(
            {"method": method, "trajectories": budget, "seed": seed},
            {"task": "tfbind8", "method": method, "noise": 0.5, "trajectories": budget, "seed": seed},
        )
        for seed in range(given.seeds)
        for method, budget in budgets.items()
    ]
    frame = sweep(cases, "versus_db", given.jobs)
    frame["dynamics_excess"] = frame["dynamics_ce"] - frame["dynamics_ce_floor"]
    table = medians(frame, ["method", "trajectories"], COLUMNS)
    regrets = table.set_index("method")["regret"]
    verdict = "reaches" if regrets["sgfn-kl"] <= regrets["sgfn-db"] else "DOES NOT reach"
    publish(
        table,
        "versus_db",
        f"α = 0.5: SGFN-KL with {KL_TRAJECTORIES:,} trajectories {verdict} the regret of SGFN-DB "
        f"with {DB_TRAJECTORIES:,}",
    )


if __name__ == "__main__":
    main()

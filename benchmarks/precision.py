"""What products in bfloat16 save, and what they cost in regret: SGFN-KL with networks of several widths.

python -m benchmarks.precision --seeds 2 --jobs 1
"""

import argparse

from benchmarks.sweep import Case, medians, parser, publish, sweep

WIDTHS = (128, 512, 1024)
PRECISIONS = ("float32", "bfloat16")
_TRAJECTORIES = 4_000


def main() -> None:
    options: argparse.Namespace = parser(__doc__).parse_args()
    # one after the other: whatever else the machine does meets both alike
    cases = [
        Case(
            label={"width": width, "precision": precision, "seed": seed},
            arguments={"task": "tfbind8", "noise": 0.25, "trajectories": _TRAJECTORIES, "seed": seed},
            settings=(f"model.width={width}", f"model.precision={precision}"),
        )
        for width in WIDTHS
        for seed in range(options.seeds)
        for precision in PRECISIONS
    ]
    frame = sweep(cases, "precision", options.jobs)
    table = medians(frame, ["width", "precision"], ["regret", "tv", "seconds"])
    title = (
        f"sgfn-kl on TFBind8, α = 0.25, {_TRAJECTORIES:,} trajectories, one thread: medians over seeds; "
        "seconds are those of training"
    )
    publish(table, "precision", title)


if __name__ == "__main__":
    main()

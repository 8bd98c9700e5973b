"""One sampler for several tasks: pre-train it on three transcription factors, then design for a fourth.

The sampler reads a support set, a few measured sequences of a task, and designs for that task at once; fine-tuning
goes on from there. The settings are small; `stochflow pretrain` and `stochflow train --from` do the same.

python examples/conditional.py
"""

import tempfile
from pathlib import Path

import stochflow

FACTORS = ["tfbind8:ARX", "tfbind8:MSX2", "tfbind8:PITX2"]
SMALL = ["model.width=32", "pretraining.support_size=64", "pretraining.context_width=16"]
TUNING = ["dynamics.kind=known", "optimiser.learning_rate=1e-3", "optimiser.batch_size=64", "optimiser.updates=8"]


def main(folder: Path, steps: int = 150) -> tuple[float, float]:
    # the tables of these are known in full, so nothing is sampled and no oracle is asked
    many = stochflow.pretrain(FACTORS, noise=0.25, steps=steps, settings=SMALL, out=folder / "many")
    print(f"zero-shot, mean over the {len(FACTORS)} factors: regret {many.summary.regret:.3f} nats")
    # VAX2 was held out: 64 of its sequences are measured, then 256 are designed and scored
    budget = {"support": 64, "trajectories": 256}
    run = stochflow.train("tfbind8:VAX2", pretrained=many.path, settings=TUNING, out=folder / "vax2", **budget)
    zero_shot, fine_tuned = run.metrics["start_regret"].iloc[0], run.summary.regret
    print(f"VAX2: regret {zero_shot:.3f} from its support alone, {fine_tuned:.3f} after fine-tuning")
    return zero_shot, fine_tuned


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(Path(place))

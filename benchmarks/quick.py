"""A look at speed and quality in a minute: ratios of CPU time within one run, and the regret each method reached.

python -m benchmarks.quick
"""

import time

from stochflow.config.methods import METHODS
from stochflow.experiments.build import build
from stochflow.experiments.launch import resolve_config
from stochflow.experiments.torch_settings import torch_threads

TRAJECTORIES = 4096


def main() -> None:
    with torch_threads(1):
        measure()


def measure() -> None:
    print(f"TFBind8, α = 0.25, {TRAJECTORIES:,} trajectories, one thread; CPU time as a ratio to sgfn-kl-trajectory")
    results = {}
    for method in METHODS:
        experiment = build(resolve_config([{"method": method, "budget": {"trajectories": TRAJECTORIES}}]))
        started = time.process_time()
        while not experiment.trainer.finished:
            experiment.trainer.train_step()
        seconds = time.process_time() - started
        assert experiment.truth is not None
        results[method] = (seconds, experiment.truth.evaluate(experiment.policy)["regret"])
    reference = results["sgfn-kl-trajectory"][0]
    for method, (seconds, regret) in results.items():
        print(f"  {method:<20} CPU × {seconds / reference:5.2f}   regret {regret:.4f}")
    evaluation = build(resolve_config([{}]))
    assert evaluation.truth is not None
    evaluation.truth.evaluate(evaluation.policy)  # the first call reads the table and solves the optimum
    started = time.process_time()
    evaluation.truth.evaluate(evaluation.policy)
    step_started = time.process_time()
    evaluation.trainer.train_step()
    step = time.process_time() - step_started
    print(f"  exact evaluation of 65,536 leaves costs {(step_started - started) / step:.2f} training steps of sgfn-kl")


if __name__ == "__main__":
    main()

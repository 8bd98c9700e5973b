"""stochflow's worker: a timed stretch of training steps, or a curve of exact figures against CPU time."""

import argparse

from benchmarks.peers.clock import Stopwatch, say
from benchmarks.peers.settings import CHECKPOINTS, CURVES, GROUNDS, REFERENCE_CURVES, step_settings
from stochflow.experiments.build import build
from stochflow.experiments.experiment import Experiment
from stochflow.experiments.launch import resolve_config
from stochflow.experiments.torch_settings import torch_threads
from stochflow.models.flow_network import FlowNetwork


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--batch", type=int, help="time steps of trajectory balance with this batch")
    options.add_argument("--iterations", type=int)
    options.add_argument("--warm-up", type=int, default=0)
    options.add_argument("--ground", choices=GROUNDS, default="tfbind8")
    options.add_argument("--curve", choices=CURVES)
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    if given.curve is None:
        config = resolve_config([{**step_settings(given.batch, given.ground), "seed": given.seed}])
        with torch_threads(1):
            time_steps(build(config), given.iterations, given.warm_up)
        return
    experiment = build(resolve_config([{**CURVES[given.curve], "seed": given.seed}]))
    # the reference evaluates every prefix of every episode, and once more for the loss
    assert isinstance(experiment.network, FlowNetwork)
    experiment.network.use_engine = given.curve not in REFERENCE_CURVES
    with torch_threads(1):
        draw_curve(experiment)


def time_steps(experiment: Experiment, iterations: int, warm_up: int) -> None:
    take_steps(experiment, warm_up)
    watch = Stopwatch()
    with watch:
        take_steps(experiment, iterations)
    say(parameters=count(experiment), iterations=iterations, **watch.per_iteration(iterations))


def draw_curve(experiment: Experiment) -> None:
    """Train to the end of the budget; evaluate at equal shares of it, outside the clock."""
    watch, trainer = Stopwatch(), experiment.trainer
    for checkpoint in range(1, CHECKPOINTS + 1):
        if trainer.progress >= checkpoint / CHECKPOINTS:
            continue  # a step was longer than the way to this checkpoint
        with watch:
            while trainer.progress < checkpoint / CHECKPOINTS:
                trainer.train_step()
        figures = experiment.evaluate()
        say(
            iterations=trainer.step,
            trajectories=trainer.trajectories,
            **watch.seconds(),
            tv=figures["tv"],
            regret=figures["regret"],
        )


def take_steps(experiment: Experiment, num: int) -> None:
    for _ in range(num):
        experiment.trainer.train_step()


def count(experiment: Experiment) -> int:
    """Weights that training moves."""
    modules = [part for name, part in experiment.trainer.modules().items() if name != "dynamics"]
    return sum(weight.numel() for module in modules for weight in module.parameters() if weight.requires_grad)


if __name__ == "__main__":
    main()

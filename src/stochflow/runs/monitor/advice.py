"""Which method was the better one for a task and a budget, as far as that was measured; elsewhere none is recommended.

The runs behind it are in benchmarks/results, and `tests/runs/monitor/test_advice.py` holds the advice against them.
"""

from typing import NamedTuple

from stochflow.config.schema import Config
from stochflow.environments.registry import names_graph
from stochflow.runs.monitor.history import History

# lowest regret on tfbind8, dmsc and gb1; nobody has tried with fewer trajectories
ENUMERABLE_BEST, FEWEST_TRAJECTORIES = "sgfn-kl", 2000
_NO_WORSE = {"sgfn-kl", "sgfn-kl-gamma"}
_NO_WORSE_ON_GRIDS = _NO_WORSE | {"sgfn-db"}
_SIMILAR_BUDGET = 2.0  # times the calls that were measured, or a half of them


class LongCase(NamedTuple):
    """What methods reached on a task that cannot be enumerated.

    Attributes:
        noise: slip α.
        calls: scores that each method could pay for.
        highest_j: the method whose policy had the highest J, or None where that is not clear.
        best_designs: the method that paid for the best designs; of equal ones, the one that took the least CPU time.
    """

    task: str
    noise: float
    beta: float
    calls: int
    highest_j: str | None
    best_designs: str


LONG_CASES = (
    LongCase("rna-fold:50", 0.1, 40.0, 8000, None, "adalead"),
    LongCase("motifs:RUNX1+YY1,50", 0.1, 60.0, 8000, "sgfn-kl", "genetic"),
    LongCase("bits:120,8", 0.1, 240.0, 8000, "sgfn-kl", "sgfn-kl"),
    # at this β the target is close to uniform, and J says little
    LongCase("rna-bind:RNA1,50", 0.0, 8.0, 1280, None, "sgfn-kl"),
    LongCase("rna-bind:RNA1,50", 0.1, 8.0, 1280, None, "sgfn-kl"),
    LongCase("rna-bind:RNA1,50", 0.25, 8.0, 1280, None, "sgfn-kl"),
)


def better_sampler(history: History) -> str | None:
    """A method whose policy comes closer to the target on this task with this budget; None where none is known to."""
    config = history.config
    if config.objective.record.pretrains:
        return None
    if history.start_regret is not None and history.start_j is None:
        return _better_where_enumerable(config)
    case = long_case(config)
    return None if case is None or case.highest_j == config.method else case.highest_j


def or_better(history: History) -> str:
    """`better_sampler` as the end of a remedy, or nothing."""
    better = better_sampler(history)
    return "" if better is None else f", or use --method {better}"


def long_case(config: Config) -> LongCase | None:
    """What was measured on the task of a config, with its noise, its target and about as many calls."""
    noise, num = _slip(config), _num_designs(config)
    for case in LONG_CASES:
        same = (case.task, case.noise, case.beta) == (config.task, noise, config.reward.beta)
        if same and num is not None and case.calls / _SIMILAR_BUDGET <= num <= case.calls * _SIMILAR_BUDGET:
            return case
    return None


def _better_where_enumerable(config: Config) -> str | None:
    """SGFN-KL, except for tiny budgets, for graphs that were not measured, and for methods that are as good."""
    if names_graph(config.task) and not config.task.startswith("hypergrid"):
        return None
    num = _num_designs(config)
    if num is not None and num < FEWEST_TRAJECTORIES:
        return None
    return None if config.method in (_NO_WORSE_ON_GRIDS if names_graph(config.task) else _NO_WORSE) else ENUMERABLE_BEST


def _num_designs(config: Config) -> int | None:
    """Designs that a budget allows, paid for or drawn; None for a budget in minutes."""
    budget = config.budget
    if budget.steps is not None:
        return budget.steps * config.optimiser.batch_size
    return budget.oracle_calls or budget.trajectories


def _slip(config: Config) -> float | None:
    """α of a uniform slip, zero without noise; None for other channels."""
    channel = config.channel
    if channel.kind == "none":
        return 0.0
    return channel.noise if channel.kind == "uniform-slip" and isinstance(channel.noise, float) else None

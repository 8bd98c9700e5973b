"""Graphs by name, with what their settings are by default and which settings only sequences have."""

import math
from collections.abc import Callable

from stochflow.config.schema import Config, ConstraintConfig, OracleConfig, TableConfig
from stochflow.core.errors import ConfigError
from stochflow.environments.graphs import gymnasium, hypergrid
from stochflow.environments.graphs.graph import Graph

# what stands before the colon → the graph of what stands after it under a slip α
FAMILIES: dict[str, Callable[[str, float], Graph]] = {
    "hypergrid": hypergrid.hypergrid,
    "gym": gymnasium.gym_graph,
}
# what `stochflow tasks` lists, with a form for all of its kind
GRAPHS = {"hypergrid": hypergrid.FORM, gymnasium.EXAMPLE: gymnasium.FORM}
_MAX_LOG_REWARD = 300 * math.log(10.0)


def names_graph(task: str) -> bool:
    """True where a task's name is that of a graph."""
    return task.partition(":")[0] in FAMILIES


def graph_defaults(task: str) -> dict[str, object]:
    """Settings that graphs have by default, in the place of those of sequences."""
    settings: dict[str, object] = {"reward": {"beta": 1.0}, "dynamics": {"depends_on": "state"}}
    if task.partition(":")[0] == "gym":
        # the world is noisy already, and what scores nothing must stay reachable
        settings |= {"reward": {"beta": 1.0, "floor": 0.01}, "channel": {"kind": "none"}}
    return settings


def configured_graph(config: Config) -> Graph:
    """The graph that the settings describe, or a sentence about a setting that only sequences have."""
    family, _, parameters = config.task.partition(":")
    graph = FAMILIES[family](parameters, _slip(config))
    _check_settings(config)
    _check_reward(config, float(graph.scores.max()))
    return graph


def _slip(config: Config) -> float:
    channel = config.channel
    if channel.kind == "none":
        return 0.0
    if channel.kind != "uniform-slip" or isinstance(channel.noise, list):
        possible = "none" if config.task.partition(":")[0] == "gym" else "α in [0, 1) or none"
        raise ConfigError(f"{config.task} knows no noise of the kind '{channel.kind}'; give --noise {possible}")
    if not 0.0 <= channel.noise < 1.0:
        raise ConfigError(f"noise is {channel.noise:g}; the slip probability must be at least 0 and below 1")
    return channel.noise


def _check_settings(config: Config) -> None:
    """Refuse what only sequences have."""
    unfit = {
        "constraints": config.constraints != ConstraintConfig(),
        "a table": config.table != TableConfig(),
        "an oracle": config.oracle != OracleConfig(),
        "variable length": config.lengths.variable,
        "deletion and duplication": config.channel.deletion > 0 or config.channel.duplication > 0,
        "noise in the reward": config.reward_noise != "none",
        "a file of known sequences": config.evaluation.reference is not None,
        "a transformer": config.model.body != "kmer",
        "a lower precision": config.model.precision != "float32",
        "restarts": config.exploration.restarts > 0,
    }
    for what, given in unfit.items():
        if given:
            raise ConfigError(f"{what} cannot be had with {config.task}, whose states are no sequences; leave it out")


def _check_reward(config: Config, best_score: float) -> None:
    """Refuse rewards that all end at the floor, or beyond what a number can hold."""
    if not best_score > 0:
        raise ConfigError(
            f"all that {config.task} can make scores 0, so there is nothing to prefer; give it more steps (:horizon=20)"
        )
    reward = config.reward
    log_power = reward.beta * math.log(best_score)
    if not math.log(reward.floor) < log_power < _MAX_LOG_REWARD:
        raise ConfigError(
            f"the best score of {config.task}, {best_score:g}, gives a reward that is not above reward.floor "
            f"({reward.floor:g}) or not below 1e300; lower reward.floor or reward.beta"
        )

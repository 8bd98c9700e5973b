"""Graphs by name, under the noise and the reward that settings describe."""

import math
from collections.abc import Callable

from stochflow.config.schema import Config
from stochflow.core.errors import ConfigError
from stochflow.environments.graphs import gymnasium, hypergrid
from stochflow.environments.graphs.graph import Graph

# what stands before the colon → the graph of what stands after it under a slip α
FAMILIES: dict[str, Callable[[str, float], Graph]] = {
    "hypergrid": hypergrid.hypergrid,
    "gym": gymnasium.gym_graph,
}
_MAX_LOG_REWARD = 300 * math.log(10.0)


def configured_graph(config: Config) -> Graph:
    """The graph that the settings describe, or a sentence about a setting that only sequences have."""
    family, _, parameters = config.task.partition(":")
    graph = FAMILIES[family](parameters, _slip(config))
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


def _check_reward(config: Config, best_score: float) -> None:
    """Refuse rewards that all end at the floor, or beyond what a number can hold."""
    reward = config.reward
    log_power = reward.beta * math.log(best_score)
    if not math.log(reward.floor) < log_power < _MAX_LOG_REWARD:
        raise ConfigError(
            f"the best score of {config.task}, {best_score:g}, gives a reward that is not above reward.floor "
            f"({reward.floor:g}) or not below 1e300; lower reward.floor or reward.beta"
        )

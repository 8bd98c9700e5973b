"""Tasks whose states form a directed acyclic graph, by name."""

from collections.abc import Callable

from stochflow.config.schema import Config
from stochflow.core.errors import ConfigError
from stochflow.environments.graphs import gymnasium, hypergrid
from stochflow.environments.graphs.graph import Graph

__all__ = ["FAMILIES", "Graph", "configured_graph", "is_graph"]

# what stands before the colon → the graph of what stands after it under a slip α
FAMILIES: dict[str, Callable[[str, float], Graph]] = {
    "hypergrid": hypergrid.hypergrid,
    "gym": gymnasium.gym_graph,
}


def is_graph(task: str) -> bool:
    """True for the name of a task of this folder."""
    return task.partition(":")[0] in FAMILIES


def configured_graph(config: Config) -> Graph:
    """The graph that the settings describe, or a sentence about a setting that only sequences have."""
    family, _, parameters = config.task.partition(":")
    return FAMILIES[family](parameters, _slip(config))


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

"""Stochastic generative flow networks: samplers that build objects when outcomes differ from intentions.

The functions of the command line (`train`, `sample`, `evaluate`, `exact`, `compare`, …) and the parts that they are
made of (`Environment`, `FlowModel`, `Objective`, `Trainer`, `truth_of`, …) are all here.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stochflow.api import Run, build, doctor, evaluate, exact, load, report, sample, train
    from stochflow.config.methods import Method, register_method
    from stochflow.config.objectives import ObjectiveRecord
    from stochflow.config.schema import Config
    from stochflow.core.errors import ConfigError, DataError, NumericsError, OracleError, StochflowError
    from stochflow.environments.base import Environment, Episodes
    from stochflow.environments.channels import (
        Channel,
        confusion,
        dna_synthesis,
        noiseless,
        positional_slip,
        uniform_slip,
    )
    from stochflow.environments.graphs.environment import GraphEnvironment
    from stochflow.environments.graphs.graph import Graph
    from stochflow.environments.graphs.hypergrid import hypergrid
    from stochflow.environments.graphs.world import World, explore
    from stochflow.environments.registry import make_task
    from stochflow.environments.rewards import Reward
    from stochflow.environments.sequences.environment import SequenceEnvironment
    from stochflow.environments.sequences.task import Alphabet, Task
    from stochflow.evaluation.summary import Summary
    from stochflow.experiments.experiment import Experiment
    from stochflow.experiments.sweep.compare import Comparison, compare
    from stochflow.models.base import FlowModel, Sampler
    from stochflow.models.evaluation import AlongPaths, AtPrefixes, Evaluation
    from stochflow.models.flow_network import FlowNetwork
    from stochflow.models.graph_network import GraphNetwork
    from stochflow.objectives.base import Learner, Objective
    from stochflow.objectives.path_terms import PathBalance, Steps
    from stochflow.sampling.policies import Policy, policy_of
    from stochflow.sampling.rollout import Exploration, Walk, rollout
    from stochflow.sampling.trajectories import Trajectories
    from stochflow.training.trainer import Trainer
    from stochflow.truth.truth import Truth, truth_of

    __version__: str

# where every public name is
_PLACES = {
    "api": (
        "Run",
        "build",
        "doctor",
        "evaluate",
        "exact",
        "load",
        "report",
        "sample",
        "train",
    ),
    "config.methods": (
        "Method",
        "register_method",
    ),
    "config.objectives": ("ObjectiveRecord",),
    "config.schema": ("Config",),
    "core.errors": (
        "ConfigError",
        "DataError",
        "NumericsError",
        "OracleError",
        "StochflowError",
    ),
    "environments.base": (
        "Environment",
        "Episodes",
    ),
    "environments.channels": (
        "Channel",
        "confusion",
        "dna_synthesis",
        "noiseless",
        "positional_slip",
        "uniform_slip",
    ),
    "environments.graphs.environment": ("GraphEnvironment",),
    "environments.graphs.graph": ("Graph",),
    "environments.graphs.hypergrid": ("hypergrid",),
    "environments.graphs.world": (
        "World",
        "explore",
    ),
    "environments.registry": ("make_task",),
    "environments.rewards": ("Reward",),
    "environments.sequences.environment": ("SequenceEnvironment",),
    "environments.sequences.task": (
        "Alphabet",
        "Task",
    ),
    "evaluation.summary": ("Summary",),
    "experiments.experiment": ("Experiment",),
    "experiments.sweep.compare": (
        "Comparison",
        "compare",
    ),
    "models.base": (
        "FlowModel",
        "Sampler",
    ),
    "models.evaluation": (
        "AlongPaths",
        "AtPrefixes",
        "Evaluation",
    ),
    "models.flow_network": ("FlowNetwork",),
    "models.graph_network": ("GraphNetwork",),
    "objectives.base": (
        "Learner",
        "Objective",
    ),
    "objectives.path_terms": (
        "PathBalance",
        "Steps",
    ),
    "sampling.policies": (
        "Policy",
        "policy_of",
    ),
    "sampling.rollout": (
        "Exploration",
        "Walk",
        "rollout",
    ),
    "sampling.trajectories": ("Trajectories",),
    "training.trainer": ("Trainer",),
    "truth.truth": (
        "Truth",
        "truth_of",
    ),
}
_MODULES = {name: module for module, names in _PLACES.items() for name in names}
__all__ = [
    "AlongPaths",
    "Alphabet",
    "AtPrefixes",
    "Channel",
    "Comparison",
    "Config",
    "ConfigError",
    "DataError",
    "Environment",
    "Episodes",
    "Evaluation",
    "Experiment",
    "Exploration",
    "FlowModel",
    "FlowNetwork",
    "Graph",
    "GraphEnvironment",
    "GraphNetwork",
    "Learner",
    "Method",
    "NumericsError",
    "Objective",
    "ObjectiveRecord",
    "OracleError",
    "PathBalance",
    "Policy",
    "Reward",
    "Run",
    "Sampler",
    "SequenceEnvironment",
    "Steps",
    "StochflowError",
    "Summary",
    "Task",
    "Trainer",
    "Trajectories",
    "Truth",
    "Walk",
    "World",
    "__version__",
    "build",
    "compare",
    "confusion",
    "dna_synthesis",
    "doctor",
    "evaluate",
    "exact",
    "explore",
    "hypergrid",
    "load",
    "make_task",
    "noiseless",
    "policy_of",
    "positional_slip",
    "register_method",
    "report",
    "rollout",
    "sample",
    "train",
    "truth_of",
    "uniform_slip",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use: the command line must be able to start, and be stopped, without torch."""
    if name == "__version__":
        return import_module("importlib.metadata").version("stochflow")
    if name in _MODULES:
        globals()[name] = found = getattr(import_module(f"stochflow.{_MODULES[name]}"), name)
        return found
    if name.startswith("_") or find_spec(f"stochflow.{name}") is None:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return import_module(f"stochflow.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

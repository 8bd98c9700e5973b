"""Stochastic generative flow networks: samplers that build objects when outcomes differ from intentions.

The functions of the command line (`train`, `sample`, `evaluate`, `exact`, `compare`, …) and the parts that they are
made of (`Environment`, `FlowModel`, `Objective`, `Trainer`, `truth_of`, …) are all here.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stochflow.api import build as build
    from stochflow.api import doctor as doctor
    from stochflow.api import evaluate as evaluate
    from stochflow.api import exact as exact
    from stochflow.api import load as load
    from stochflow.api import pretrain as pretrain
    from stochflow.api import report as report
    from stochflow.api import sample as sample
    from stochflow.api import status as status
    from stochflow.api import train as train
    from stochflow.campaigns.campaign import Campaign as Campaign
    from stochflow.config.methods import Method as Method
    from stochflow.config.methods import register_method as register_method
    from stochflow.config.objectives import ObjectiveRecord as ObjectiveRecord
    from stochflow.config.schema import Config as Config
    from stochflow.core.errors import ConfigError as ConfigError
    from stochflow.core.errors import DataError as DataError
    from stochflow.core.errors import NumericsError as NumericsError
    from stochflow.core.errors import OracleError as OracleError
    from stochflow.core.errors import StochflowError as StochflowError
    from stochflow.environments.base import Environment as Environment
    from stochflow.environments.base import Episodes as Episodes
    from stochflow.environments.channel_fit import fit_channel as fit_channel
    from stochflow.environments.channels import Channel as Channel
    from stochflow.environments.channels import confusion as confusion
    from stochflow.environments.channels import dna_synthesis as dna_synthesis
    from stochflow.environments.channels import noiseless as noiseless
    from stochflow.environments.channels import positional_slip as positional_slip
    from stochflow.environments.channels import uniform_slip as uniform_slip
    from stochflow.environments.fitted_channel import FittedChannel as FittedChannel
    from stochflow.environments.graphs.environment import GraphEnvironment as GraphEnvironment
    from stochflow.environments.graphs.graph import Graph as Graph
    from stochflow.environments.graphs.hypergrid import hypergrid as hypergrid
    from stochflow.environments.graphs.world import World as World
    from stochflow.environments.graphs.world import explore as explore
    from stochflow.environments.registry import make_task as make_task
    from stochflow.environments.rewards import Reward as Reward
    from stochflow.environments.sequences.environment import SequenceEnvironment as SequenceEnvironment
    from stochflow.environments.sequences.task import Alphabet as Alphabet
    from stochflow.environments.sequences.task import Task as Task
    from stochflow.evaluation.summary import Summary as Summary
    from stochflow.experiments.experiment import Experiment as Experiment
    from stochflow.experiments.finished_run import Run as Run
    from stochflow.experiments.sweep.compare import Comparison as Comparison
    from stochflow.experiments.sweep.compare import compare as compare
    from stochflow.models.base import FlowModel as FlowModel
    from stochflow.models.base import Sampler as Sampler
    from stochflow.models.evaluation import AlongPaths as AlongPaths
    from stochflow.models.evaluation import AtPrefixes as AtPrefixes
    from stochflow.models.evaluation import Evaluation as Evaluation
    from stochflow.models.flow_network import FlowNetwork as FlowNetwork
    from stochflow.models.graph_network import GraphNetwork as GraphNetwork
    from stochflow.objectives.base import Learner as Learner
    from stochflow.objectives.base import Objective as Objective
    from stochflow.objectives.path_terms import PathBalance as PathBalance
    from stochflow.objectives.path_terms import Steps as Steps
    from stochflow.sampling.policies import Policy as Policy
    from stochflow.sampling.policies import policy_of as policy_of
    from stochflow.sampling.rollout import Exploration as Exploration
    from stochflow.sampling.rollout import Walk as Walk
    from stochflow.sampling.rollout import rollout as rollout
    from stochflow.sampling.trajectories import Trajectories as Trajectories
    from stochflow.surrogates.base import HeldOut as HeldOut
    from stochflow.surrogates.base import Prediction as Prediction
    from stochflow.surrogates.base import Surrogate as Surrogate
    from stochflow.surrogates.ensemble import Ensemble as Ensemble
    from stochflow.surrogates.forest import Forest as Forest
    from stochflow.surrogates.gaussian_process import GaussianProcess as GaussianProcess
    from stochflow.surrogates.kmer_ridge import KmerRidge as KmerRidge
    from stochflow.surrogates.letter_distances import LetterDistance as LetterDistance
    from stochflow.surrogates.letter_distances import letter_distance as letter_distance
    from stochflow.surrogates.registry import make_surrogate as make_surrogate
    from stochflow.training.trainer import Trainer as Trainer
    from stochflow.truth.truth import Truth as Truth
    from stochflow.truth.truth import truth_of as truth_of

    __version__: str

# where every public name is
_PLACES = {
    "api": "build doctor evaluate exact load pretrain report sample status train",
    "campaigns.campaign": "Campaign",
    "config.methods": "Method register_method",
    "config.objectives": "ObjectiveRecord",
    "config.schema": "Config",
    "core.errors": "ConfigError DataError NumericsError OracleError StochflowError",
    "environments.base": "Environment Episodes",
    "environments.channel_fit": "fit_channel",
    "environments.channels": "Channel confusion dna_synthesis noiseless positional_slip uniform_slip",
    "environments.fitted_channel": "FittedChannel",
    "environments.graphs.environment": "GraphEnvironment",
    "environments.graphs.graph": "Graph",
    "environments.graphs.hypergrid": "hypergrid",
    "environments.graphs.world": "World explore",
    "environments.registry": "make_task",
    "environments.rewards": "Reward",
    "environments.sequences.environment": "SequenceEnvironment",
    "environments.sequences.task": "Alphabet Task",
    "evaluation.summary": "Summary",
    "experiments.experiment": "Experiment",
    "experiments.finished_run": "Run",
    "experiments.sweep.compare": "Comparison compare",
    "models.base": "FlowModel Sampler",
    "models.evaluation": "AlongPaths AtPrefixes Evaluation",
    "models.flow_network": "FlowNetwork",
    "models.graph_network": "GraphNetwork",
    "objectives.base": "Learner Objective",
    "objectives.path_terms": "PathBalance Steps",
    "sampling.policies": "Policy policy_of",
    "sampling.rollout": "Exploration Walk rollout",
    "sampling.trajectories": "Trajectories",
    "surrogates.base": "HeldOut Prediction Surrogate",
    "surrogates.ensemble": "Ensemble",
    "surrogates.forest": "Forest",
    "surrogates.gaussian_process": "GaussianProcess",
    "surrogates.kmer_ridge": "KmerRidge",
    "surrogates.letter_distances": "LetterDistance letter_distance",
    "surrogates.registry": "make_surrogate",
    "training.trainer": "Trainer",
    "truth.truth": "Truth truth_of",
}
_MODULES = {name: module for module, names in _PLACES.items() for name in names.split()}
__all__ = sorted([*_MODULES, "__version__"])


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

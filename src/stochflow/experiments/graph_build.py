"""Builds a whole run on a graph from a config, as `stochflow.experiment` does for sequences."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import pandas as pd
import torch

from stochflow.config.methods import METHODS, method_settings
from stochflow.config.objectives import load_class
from stochflow.config.schema import ChannelConfig, Config, ObjectiveConfig
from stochflow.core.errors import ConfigError
from stochflow.core.random import Generators
from stochflow.environments.graphs import Graph, configured_graph
from stochflow.environments.sequences.task import Reward
from stochflow.environments.settings import check_settings
from stochflow.evaluation.graph_truth import (
    GraphTruth,
    draw_objects,
    graph_dynamics_metrics,
    object_metrics,
    objects_frame,
)
from stochflow.evaluation.schedule import Space, judged_every
from stochflow.evaluation.summary import Summary
from stochflow.experiments.build import choose_device, load_state
from stochflow.models.dynamics.counted import CountedDynamics, GraphDynamics, KnownGraphDynamics
from stochflow.models.graph_network import GraphNetwork
from stochflow.objectives.graph_base import GraphLearner, GraphObjective, ObjectMemory
from stochflow.runs.directory import RunDirectory
from stochflow.sampling.replay_buffer import MAX_TOKENS, Replay
from stochflow.training.graph_trainer import GraphTrainer
from stochflow.training.memory_estimate import check_needs

_MAX_LOG_REWARD = 300 * math.log(10.0)
_FEW_STEPS = 4  # an episode may stop early


@dataclass(frozen=True)
class GraphExperiment:
    """All parts of one run on a graph, wired together."""

    config: Config
    graph: Graph
    truth: GraphTruth
    trainer: GraphTrainer

    @property
    def log_policy(self) -> torch.Tensor:
        """What is judged and sampled from, log π(a|s), [S, A]."""
        return self.trainer.learner.network.policy_table()

    def under(self, channel: ChannelConfig) -> "GraphExperiment":
        """The same policy in a world with other noise."""
        graph = configured_graph(self.config.model_copy(update={"channel": channel}))
        return replace(self, graph=graph, truth=GraphTruth(graph, self.truth.reward))

    @cached_property
    def judged_every(self) -> float:
        graph, sizes = self.graph, self.graph.depths[: self.graph.num_states].bincount().tolist()
        return judged_every(self.config, Space(sizes, graph.num_actions, graph.num_objects, _FEW_STEPS))

    def judge(self) -> dict[str, float]:
        """Exact KL, regret, TV and expected score of the policy as it is now."""
        return self.truth.judge(self.log_policy)

    def samples(self, num: int, generator: torch.Generator) -> pd.DataFrame:
        """Objects from the policy itself, one row each."""
        sampled = draw_objects(self.graph, self.log_policy, num, generator)
        return objects_frame(sampled, self.graph, self.truth.reward)

    def conclude(self) -> tuple[Summary, pd.DataFrame]:
        """Every metric of the policy as it is now, and the objects it drew for them."""
        config, graph, trainer = self.config, self.graph, self.trainer
        log_policy = self.log_policy
        # from the seed alone, not from where training left its generators: evaluating again gives the same numbers
        generator = Generators(config.seed)["evaluation"]
        sampled = draw_objects(graph, log_policy, config.evaluation.num_samples, generator)
        summary = Summary(
            **trainer.standing
            | self.truth.optimum()
            | self.truth.judge(log_policy)
            | object_metrics(sampled, graph, config.evaluation.mode_threshold)
            | graph_dynamics_metrics(graph, log_policy, trainer.learner.dynamics),
            task=graph.name,
            noise=graph.noise,
            log_z=trainer.objective.log_z(),
        )
        return summary, objects_frame(sampled, graph, self.truth.reward)

    def close(self) -> None:
        """Nothing is held open."""


def build_graph_experiment(config: Config) -> GraphExperiment:
    """Everything a config asks for, freshly initialised."""
    graph = configured_graph(config)
    check_graph_settings(config, graph)
    reward = Reward(**config.reward.model_dump())
    generators = Generators(config.seed)
    check_needs(config, max(graph.num_actions, graph.num_outcomes), graph.max_steps, graph.features.shape[1])
    width, num_layers = config.model.width, config.model.num_layers
    network = GraphNetwork(graph, width, num_layers)
    network.initialise(generators["init"])
    dynamics: GraphDynamics
    if config.dynamics.kind == "known":
        dynamics = KnownGraphDynamics(graph)
    else:
        dynamics = CountedDynamics(graph, by_state=config.dynamics.depends_on == "state")
    learner = GraphLearner(
        config=config,
        graph=graph,
        network=network.to(choose_device(config.device)),
        dynamics=dynamics,
        reward=reward,
        memory=ObjectMemory(graph.num_objects),
        replay=Replay(config.optimiser.replay_size, graph.max_steps),
        generators=generators,
    )
    return GraphExperiment(config, graph, GraphTruth(graph, reward), GraphTrainer(learner, _objective(learner)))


def restore_graph_experiment(directory: RunDirectory, config: Config) -> GraphExperiment:
    """The experiment of a run directory in the state of its newest checkpoint."""
    experiment = build_graph_experiment(config)
    load_state(experiment.trainer, directory.load_checkpoint(), directory)
    return experiment


def check_graph_settings(config: Config, graph: Graph) -> None:
    """Refuse what only sequences have, and methods that are not made for graphs."""
    check_settings(config)
    _check_reward(config, float(graph.scores.max()))
    objective = config.objective
    blind = objective.path == "realised" and not graph.outcomes_are_intentions
    if blind or objective.record.graphs is None or objective.backward != "learned":
        possible = ", ".join(graph_methods(graph.outcomes_are_intentions))
        raise ConfigError(f"{config.method} cannot be trained on {config.task}; possible are: {possible}")
    if objective.lambda_ratio or objective.lambda_dynamics:
        raise ConfigError(
            f"the entropy terms of {config.method} are not made for {config.task}; set objective.lambda_ratio and "
            "objective.lambda_dynamics to 0"
        )
    if max(graph.num_actions, graph.num_outcomes) > MAX_TOKENS:
        raise ConfigError(f"{config.task} has a state with more than {MAX_TOKENS} outcomes; choose a smaller one")


def graph_methods(blind: bool) -> list[str]:
    """Methods that can be trained on graphs, those that are blind to noise only if asked for."""
    chosen = {name: ObjectiveConfig.model_validate(method_settings(name)["objective"]) for name in METHODS}
    return [
        name
        for name, objective in chosen.items()
        if objective.record.graphs is not None
        and (blind or objective.path == "intended")
        and not (objective.lambda_ratio or objective.lambda_dynamics)
    ]


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


def _objective(learner: GraphLearner) -> GraphObjective:
    place = learner.config.objective.record.graphs
    if place is None:  # which check_graph_settings has refused already
        raise ConfigError(f"{learner.config.method} cannot be trained on graphs; choose another method")
    objective: GraphObjective = load_class(place)(learner)
    return objective

"""Builds a whole run from a config: the one file that names the concrete classes."""

from functools import singledispatch
from pathlib import Path

import torch

from stochflow.config.context import ReadingConfig
from stochflow.config.objectives import load_class
from stochflow.config.schema import Config, ModelConfig
from stochflow.core.errors import ConfigError, DataError
from stochflow.core.random import RandomStreams
from stochflow.environments.base import Environment
from stochflow.environments.graphs.environment import GraphEnvironment
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.environment import SequenceEnvironment
from stochflow.environments.sequences.oracles.task import OracleFunction
from stochflow.environments.sequences.task import MAX_ENUMERABLE, Task
from stochflow.environments.sequences.variable_length import VariableTask
from stochflow.experiments.experiment import Experiment
from stochflow.experiments.torch_settings import choose_device
from stochflow.experiments.world import configured_world
from stochflow.models.dynamics.counted import CountedDynamics, GraphDynamics, KnownGraphDynamics
from stochflow.models.dynamics.tabular import DynamicsModel, KnownDynamics
from stochflow.models.flow_network import FlowNetwork
from stochflow.models.graph_network import GraphNetwork
from stochflow.models.history import HistoryDynamics, HistoryNetwork
from stochflow.models.kmer_body import MAX_BUCKETS, num_rows
from stochflow.models.kmers import Kmers, kmers_of_long_sequences, suitable_kmers
from stochflow.models.transformer_body import TransformerBody
from stochflow.objectives.base import Learner, Objective
from stochflow.objectives.learners import GraphLearner, SequenceLearner
from stochflow.runs.directory import RunDirectory
from stochflow.sampling.history_memory import HistoryMemory
from stochflow.sampling.object_memory import ObjectMemory
from stochflow.sampling.replay_buffer import MAX_TOKENS, ReplayBuffer
from stochflow.sampling.score_memory import ScoreMemory
from stochflow.training.distributed import DistributedTrainer, ProcessGroup, ShardedFlowNetwork
from stochflow.training.dynamics_fitter import CountingFitter, GradientFitter
from stochflow.training.memory_estimate import check_needs
from stochflow.training.trainer import Trainer
from stochflow.truth.truth import truth_of

_MAX_WEIGHTS = 2**27  # of the k-mer tables: half a gigabyte, and three times that while they are trained
_MAX_CODE = 2**56  # k-mers are numbered in 64 bits, hashing included
_MAX_STATE_TOKENS = 64


def build(
    config: Config,
    environment: Environment | None = None,
    network: FlowNetwork | None = None,
    function: OracleFunction = None,
    team: ProcessGroup | None = None,
) -> Experiment:
    """Everything a config describes, freshly initialised, or with a network that was trained before.

    Args:
        environment: what `configure` has made of the config; without it, it is made here.
        function: the oracle as the user has named it, without which it is never imported; or the oracle itself.
        team: the processes that share the run.
    """
    if team is not None and not config.objective.record.shareable:
        raise ConfigError(f"'{config.method}' cannot be shared out among processes; start it without torchrun")
    if environment is None:
        configured = configured_world(config, function)
        config, environment = configured.config, configured.environment
    trainer = make_trainer(environment, config, network, team)
    known = config.evaluation.reference
    evidence = None if environment.evidence is None else environment.evidence.tokens
    reference = evidence if known is None else environment.read_designs(Path(known))
    return Experiment(config, environment, truth_of(environment, trainer.learner.reward), trainer, reference)


@singledispatch
def make_trainer(
    environment: Environment, config: Config, network: FlowNetwork | None, team: ProcessGroup | None
) -> Trainer:
    """What trains in an environment: learner, objective and the fitter of P̂; the arguments are those of `build`."""
    raise TypeError(f"{type(environment).__name__} is built from parts")


@make_trainer.register
def _(
    environment: SequenceEnvironment, config: Config, network: FlowNetwork | None, team: ProcessGroup | None
) -> Trainer:
    if team is not None and config.context.reads == "history":
        raise ConfigError("a policy that reads history is trained by one process; start it without torchrun")
    if team is not None:  # chains and parents of a surrogate are drawn by one process
        config = config.model_copy(update={"imagination": config.imagination.model_copy(update={"updates": 0})})
    kind = FlowNetwork if team is None else ShardedFlowNetwork
    learner = make_sequence_learner(config, environment, network, kind)
    objective = make_objective(learner)
    fitter = GradientFitter(learner, config.dynamics, idle=not objective.reads_dynamics)
    return Trainer(learner, objective, fitter) if team is None else DistributedTrainer(team, learner, objective, fitter)


@make_trainer.register
def _(environment: GraphEnvironment, config: Config, network: FlowNetwork | None, team: ProcessGroup | None) -> Trainer:
    if config.context.reads != "none":
        raise ConfigError(
            f"--context {config.context.reads} is for sequences, and {config.task} is a graph; leave it out"
        )
    if team is not None:
        raise ConfigError(f"training on the graph '{config.task}' cannot be shared out; start it without torchrun")
    learner = make_graph_learner(config, environment)
    return Trainer(learner, make_objective(learner), CountingFitter(learner))


def make_sequence_learner(
    config: Config,
    environment: SequenceEnvironment,
    network: FlowNetwork | None = None,
    kind: type[FlowNetwork] = FlowNetwork,
) -> SequenceLearner:
    """Networks, P̂, memory and replay of a run over sequences, freshly initialised unless a network is given."""
    task, rules, reward = environment.task, environment.rules, Reward(**config.reward.model_dump())
    environment.check_method(config)
    _check_alphabet(task, config)
    check_needs(config, task.num_tokens, task.length)
    device, generators = choose_device(config.device), RandomStreams(config.seed)
    if network is None:
        # of a pre-training run, and of one that began with its sampler
        context_width = config.pretraining.context_width if config.pretraining.tasks else 0
        network = make_network(config.model, task, kind, context_width, config.context)
        network.initialise(generators["init"])
    network.mask, network.stop = environment.mask, None if rules is None else rules.stop
    dynamics: DynamicsModel | KnownDynamics
    if config.dynamics.kind == "known":
        dynamics = KnownDynamics(environment.channel, task.length)
    else:
        possible = None if rules is None else rules.outcomes
        shape = (task.num_tokens, task.length, config.dynamics.depends_on)
        if config.context.reads == "history":
            dynamics = HistoryDynamics(*shape, config.context, possible)
        else:
            dynamics = DynamicsModel(*shape, possible=possible)
        dynamics.initialise(generators["init"])
    return SequenceLearner(
        config=config,
        environment=environment,
        network=network.to(device),
        dynamics=dynamics.to(device),
        reward=reward,
        memory=make_memory(task, reward if task.noisy else None),
        replay=ReplayBuffer(config.optimiser.replay_size, task.length),
        generators=generators,
        log_shares=rules.log_shares if rules is not None and rules.edits else None,
    )


def make_graph_learner(config: Config, environment: GraphEnvironment) -> GraphLearner:
    """The same of a run on a graph."""
    graph = environment.graph
    environment.check_method(config)
    num_tokens = max(graph.num_actions, graph.num_outcomes)
    if num_tokens > MAX_TOKENS:
        raise ConfigError(f"{config.task} has a state with more than {MAX_TOKENS} outcomes; choose a smaller one")
    check_needs(config, num_tokens, graph.max_steps, graph.features.shape[1])
    generators = RandomStreams(config.seed)
    network = GraphNetwork(graph, config.model.width, config.model.num_layers)
    network.initialise(generators["init"])
    dynamics: GraphDynamics
    if config.dynamics.kind == "known":
        dynamics = KnownGraphDynamics(graph)
    else:
        dynamics = CountedDynamics(graph, by_state=config.dynamics.depends_on == "state")
    return GraphLearner(
        config=config,
        environment=environment,
        network=network.to(choose_device(config.device)),
        dynamics=dynamics,
        reward=Reward(**config.reward.model_dump()),
        memory=ObjectMemory(graph.scores),
        replay=ReplayBuffer(config.optimiser.replay_size, graph.max_steps),
        generators=generators,
    )


def restore(
    directory: RunDirectory,
    config: Config,
    environment: Environment | None = None,
    function: OracleFunction = None,
    team: ProcessGroup | None = None,
    begin: bool = False,
) -> Experiment:
    """The experiment of a run directory in the state of its newest checkpoint.

    Args:
        begin: at its beginning instead.
    """
    experiment = build(config, environment, function=function, team=team)
    if team is None or team.leads:
        experiment.environment.open(directory.path)
    if not begin:
        load_state(experiment.trainer, directory.load_checkpoint(), directory)
    return experiment


def load_state(trainer: Trainer, state: dict[str, torch.Tensor], directory: RunDirectory) -> None:
    """Take up a checkpoint, or say that it cannot be this run's."""
    try:
        trainer.load_state_dict(state)
        if not all(
            bool(weight.isfinite().all()) for part in trainer.modules().values() for weight in part.parameters()
        ):
            raise ValueError("weights that are no numbers")
    except (KeyError, ValueError, RuntimeError, IndexError, TypeError, OverflowError, AttributeError):
        raise DataError(
            f"the checkpoint in {directory.path} does not fit its config.yaml; restore the config or train again"
        ) from None


def make_memory(task: Task, reward: Reward | None) -> ScoreMemory:
    """What remembers paid scores: by design where several histories may write one."""
    if isinstance(task, VariableTask) and task.rules.edits:
        return HistoryMemory(task.num_tokens, task.length, task.rules.canonical, reward)
    return ScoreMemory(task.num_tokens, task.length, reward)


def make_network(
    model: ModelConfig,
    task: Task,
    kind: type[FlowNetwork] = FlowNetwork,
    context_width: int = 0,
    context: ReadingConfig | None = None,
) -> FlowNetwork:
    """The flow network that the config names, its weights not yet drawn; conditional where a context has a width.

    Args:
        context: what it reads; a network that reads history is no `kind` but one of its own.
    """
    reading = context if context is not None and context.reads == "history" else None
    shape = (task.num_tokens, task.length)
    if model.body == "transformer":
        body = TransformerBody(*shape, model.width, model.num_layers, model.heads)
        if reading is not None:
            return HistoryNetwork(*shape, (), model.width, model.num_layers, reading, body)
        return kind(*shape, (), model.width, model.num_layers, body, context_width)
    kmers = _kmers(model, task)
    if num_rows(*shape, kmers) * model.width > _MAX_WEIGHTS or task.num_tokens**kmers.longest > _MAX_CODE:
        raise ConfigError(
            f"tables for model.kmers {list(kmers.placed)} are too large for {task.length} positions and "
            f"{task.num_tokens} letters; set model.kmers to null or to fewer and shorter ones, or lower model.width"
        )
    if reading is not None:
        return HistoryNetwork(*shape, kmers, model.width, model.num_layers, reading, plain=model.trunk == "plain")
    network = kind(*shape, kmers, model.width, model.num_layers, None, context_width, model.trunk == "plain")
    if model.precision == "bfloat16":
        network.body.precision = torch.bfloat16
    return network


def _kmers(model: ModelConfig, task: Task) -> Kmers:
    """As configured, or suited to the task."""
    suited = Kmers(tuple(model.kmers or ()))
    if model.kmers is None:
        suited = (
            Kmers(suitable_kmers(task.num_tokens, task.length, MAX_BUCKETS))
            if task.size <= MAX_ENUMERABLE
            else kmers_of_long_sequences(task.num_tokens, MAX_BUCKETS)
        )
    anywhere, recent = model.anywhere, model.recent
    return Kmers(
        suited.placed,
        suited.anywhere if anywhere is None else tuple(anywhere),
        suited.recent if recent is None else tuple(recent),
    )


def _check_alphabet(task: Task, config: Config) -> None:
    """Refuse what would not fit: tokens are remembered as bytes, and a state network gives K² numbers per state."""
    if task.num_tokens > MAX_TOKENS:
        raise ConfigError(f"{task.name} has {task.num_tokens} letters; an alphabet may have at most {MAX_TOKENS}")
    large = config.dynamics.depends_on == "state" or config.context.reads == "history"
    if large and task.num_tokens > _MAX_STATE_TOKENS:
        raise ConfigError(
            f"dynamics that depend on state or history need {task.num_tokens}² numbers per state for {task.name}; "
            "set dynamics.depends_on to position, and leave out --context history"
        )


def make_objective(learner: Learner) -> Objective:
    """The objective that the config names."""
    place = learner.config.objective.record.place(on_graph=not learner.environment.is_tree)
    objective: Objective = load_class(place)(learner)
    return objective

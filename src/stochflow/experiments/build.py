"""Builds a whole run from a config, and runs it."""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Protocol

import pandas as pd
import torch
from threadpoolctl import threadpool_limits

from stochflow.config.objectives import load_class
from stochflow.config.schema import Config, ModelConfig
from stochflow.core.errors import ConfigError, DataError
from stochflow.core.random import Generators
from stochflow.environments.channels import Channel
from stochflow.environments.factory import configured_channel, configured_task
from stochflow.environments.sequences.constraints import ConstrainedTask, PrefixMask
from stochflow.environments.sequences.fasta import read_sequences
from stochflow.environments.sequences.oracles.task import Named
from stochflow.environments.sequences.task import Reward, Task
from stochflow.environments.sequences.variable_length import LengthMask, VariableTask
from stochflow.evaluation.design_metrics import mean_pairwise_hamming
from stochflow.evaluation.schedule import judged_every, sequence_space
from stochflow.evaluation.summary import Sampled, Summary, Truth, design_metrics, draw, dynamics_metrics, samples_frame
from stochflow.models.dynamics.tabular import Dynamics, DynamicsModel, KnownDynamics
from stochflow.models.flow_network import FlowNetwork
from stochflow.models.kmer_body import MAX_BUCKETS, num_rows
from stochflow.models.kmers import suitable_kmers
from stochflow.models.transformer_body import TransformerBody
from stochflow.objectives.base import Learner, Objective
from stochflow.runs.directory import RunDirectory
from stochflow.sampling.history_memory import HistoryMemory
from stochflow.sampling.policies import Policy
from stochflow.sampling.replay_buffer import MAX_TOKENS, Replay
from stochflow.sampling.score_memory import ScoreMemory
from stochflow.training.distributed import Team, TeamTrainer
from stochflow.training.memory_estimate import check_needs
from stochflow.training.optimizer import Record
from stochflow.training.trainer import MAX_IDLE_STEPS, Loop, Trainer

Listener = Callable[[Record, float], None]

_MAX_WEIGHTS = 2**27  # of the k-mer tables: half a gigabyte, and three times that while they are trained
_MAX_CODE = 2**56  # k-mers are numbered in 64 bits, hashing included
_MAX_STATE_TOKENS = 64


class Runnable(Protocol):
    """What `run` needs of an experiment, on sequences or on a graph."""

    @property
    def config(self) -> Config: ...

    @property
    def trainer(self) -> Loop: ...

    @property
    def judged_every(self) -> float:
        """Share of the budget after which the policy is judged again."""

    def judge(self) -> dict[str, float]:
        """Exact figures of the policy as it is now; where the truth cannot be computed, what its last batch shows."""

    def conclude(self) -> tuple[Summary, pd.DataFrame]:
        """Every metric of the policy as it is now, and the designs it drew for them."""

    def close(self) -> None:
        """Let go of processes and files."""


@dataclass(frozen=True)
class Experiment:
    """All parts of one run, wired together."""

    config: Config
    task: Task
    channel: Channel
    truth: Truth | None
    trainer: Trainer
    reference: torch.Tensor | None
    # the newest exact figures, by the step after which they were computed
    _verdict: dict[int, dict[str, float]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def network(self) -> FlowNetwork:
        return self.trainer.learner.network

    @property
    def policy(self) -> Policy:
        """What is judged and sampled from, as training has left it."""
        return self.trainer.objective.policy()

    @property
    def dynamics(self) -> Dynamics | None:
        """P̂ as training has left it; None where the objective never asked for it and nothing was learned."""
        trainer, known = self.trainer, self.config.dynamics.kind == "known"
        return trainer.learner.dynamics if known or trainer.objective.reads_dynamics else None

    @cached_property
    def judged_every(self) -> float:
        space = None if self.truth is None else sequence_space(self.task.num_tokens, self.task.length)
        return judged_every(self.config, space)

    def judge(self) -> dict[str, float]:
        if self.truth is not None:
            self._verdict.clear()
            self._verdict[self.trainer.step] = self.truth.judge(self.policy)
            return dict(self._verdict[self.trainer.step])
        latest = self.trainer.learner.replay.newest(self.config.optimiser.batch_size)
        return {"intended_spread": mean_pairwise_hamming(latest) / self.task.length}

    @property
    def last_judgement(self) -> dict[str, float] | None:
        """Exact figures of the policy as it is now, if it was judged after the latest step."""
        return self._verdict.get(self.trainer.step)

    def conclude(self) -> tuple[Summary, pd.DataFrame]:
        summary, sampled = summarise(self, pay=self.config.oracle.score_samples)
        return summary, samples_frame(sampled, self.task, self.trainer.learner.reward)

    def close(self) -> None:
        self.task.close()


def build(
    config: Config,
    network: FlowNetwork | None = None,
    function: Named = None,
    team: Team | None = None,
) -> Experiment:
    """Everything a config asks for, freshly initialised, or with a network that was trained before.

    Args:
        function: the oracle as the user has named it, without which it is never imported; or the oracle itself.
        team: the processes that share the run.
    """
    if team is not None and not config.objective.record.shareable:
        raise ConfigError(f"'{config.method}' cannot be shared out among processes; start it without torchrun")
    task = configured_task(config, function)
    _check_alphabet(task, config)
    check_needs(config, task.num_tokens, task.length)
    channel = configured_channel(config.channel, task)
    reward = Reward(**config.reward.model_dump())
    device = choose_device(config.device)
    generators = Generators(config.seed)
    if network is None:
        network = make_network(config.model, task)
        network.initialise(generators["init"])
    if isinstance(task, ConstrainedTask):
        network.mask = PrefixMask(task.prefixes, channel)
    rules = task.rules if isinstance(task, VariableTask) else None
    if rules is not None:
        network.mask, network.stop = LengthMask(rules), rules.stop
    dynamics: DynamicsModel | KnownDynamics
    if config.dynamics.kind == "known":
        dynamics = KnownDynamics(channel, task.length)
    else:
        possible = None if rules is None else rules.outcomes
        dynamics = DynamicsModel(task.num_tokens, task.length, config.dynamics.depends_on, possible=possible)
        dynamics.initialise(generators["init"])
    learner = Learner(
        config=config,
        network=network.to(device),
        dynamics=dynamics.to(device),
        reward=reward,
        memory=make_memory(task, reward if task.noisy else None),
        replay=Replay(config.optimiser.replay_size, task.length),
        generators=generators,
        log_shares=rules.log_shares if rules is not None and rules.edits else None,
    )
    # how a measurement comes out is the world's doing, like the outcome of a step
    oracle = partial(task.measure, generator=generators["channel"])
    objective = make_objective(learner)
    trainer: Trainer
    if team is None:
        # asked only where an answer may cost nothing: the question takes time
        free = None if type(task).free is Task.free else task.free
        trainer = Trainer(learner, objective, channel, oracle, free)
    else:
        trainer = TeamTrainer(team, learner, objective, channel, oracle, task.free)
    truth = Truth(task, channel, reward) if task.enumerable else None
    known = config.evaluation.reference
    reference = None if known is None else reference_tokens(Path(known), task)
    return Experiment(config, task, channel, truth, trainer, reference)


def restore(
    directory: RunDirectory,
    config: Config,
    function: Named = None,
    team: Team | None = None,
    begin: bool = False,
) -> Experiment:
    """The experiment of a run directory in the state of its newest checkpoint.

    Args:
        begin: at its beginning instead.
    """
    experiment = build(config, function=function, team=team)
    if team is None or team.leads:
        experiment.task.open(directory.path)
    if begin:
        return experiment
    state = directory.load_checkpoint()
    load_state(experiment.trainer, state, directory)
    return experiment


def load_state(trainer: Loop, state: dict[str, torch.Tensor], directory: RunDirectory) -> None:
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


def make_network(model: ModelConfig, task: Task) -> FlowNetwork:
    """The flow network that the config names, its weights not yet drawn."""
    shape = (task.num_tokens, task.length)
    if model.body == "transformer":
        body = TransformerBody(*shape, model.width, model.num_layers, model.heads)
        return FlowNetwork(*shape, (), model.width, model.num_layers, body)
    kmers = suitable_kmers(*shape, MAX_BUCKETS) if model.kmers is None else tuple(model.kmers)
    if num_rows(*shape, kmers) * model.width > _MAX_WEIGHTS or task.num_tokens ** max(kmers) > _MAX_CODE:
        raise ConfigError(
            f"tables for model.kmers {list(kmers)} are too large for {task.length} positions and {task.num_tokens} "
            "letters; set model.kmers to null or to fewer and shorter ones, or lower model.width"
        )
    network = FlowNetwork(*shape, kmers, model.width, model.num_layers, plain=model.trunk == "plain")
    if model.precision == "bfloat16":
        network.body.precision = torch.bfloat16
    return network


def _check_alphabet(task: Task, config: Config) -> None:
    """Refuse what would not fit: tokens are remembered as bytes, and a state network gives K² numbers per state."""
    if task.num_tokens > MAX_TOKENS:
        raise ConfigError(f"{task.name} has {task.num_tokens} letters; an alphabet may have at most {MAX_TOKENS}")
    if config.dynamics.depends_on == "state" and task.num_tokens > _MAX_STATE_TOKENS:
        raise ConfigError(
            f"dynamics that depend on the state need {task.num_tokens}² numbers per state for {task.name}; "
            "set dynamics.depends_on to position"
        )


def make_objective(learner: Learner) -> Objective:
    """The objective that the config names."""
    objective: Objective = load_class(learner.config.objective.record.sequences)(learner)
    return objective


def run(experiment: Runnable, directory: RunDirectory, listen: Listener, stop: Callable[[], bool]) -> None:
    """Train to the end of the budget or until asked to stop, keeping what was learned along the way."""
    trainer = experiment.trainer
    with computing(experiment.config), closing(experiment):
        untrained = {}
        if trainer.step == 0:
            directory.save_checkpoint(trainer.state_dict(), 0)
            untrained = untrained_figures(experiment)
        while not trainer.finished and not stop():
            before = trainer.progress
            record = trainer.train_step() | untrained
            untrained = {}
            keep_step(experiment, directory, record, before)
            listen(record, trainer.progress)
        conclude_run(experiment, directory)


def untrained_figures(experiment: Runnable) -> dict[str, float]:
    """The regret before the first step, where it can be known: what every later one is measured against."""
    return {f"start_{name}": value for name, value in experiment.judge().items() if name == "regret"}


def keep_step(experiment: Runnable, directory: RunDirectory, record: Record, before: float) -> None:
    """Judge the policy where that is due, write the record down with what was found, and keep a checkpoint if due.

    Args:
        before: progress before the step.
    """
    config, trainer = experiment.config, experiment.trainer
    if crossed(before, trainer.progress, experiment.judged_every):
        record |= experiment.judge()
    directory.append_metrics(record)
    if crossed(before, trainer.progress, config.checkpoint_every):
        directory.save_checkpoint(trainer.state_dict(), trainer.step)


def conclude_run(experiment: Runnable, directory: RunDirectory) -> None:
    """Write down what was reached, with a checkpoint to go on from where the budget is not spent."""
    trainer = experiment.trainer
    if not trainer.finished:
        directory.save_checkpoint(trainer.state_dict(), trainer.step)
    if trainer.exhausted:
        warnings.warn(
            f"training ended with {trainer.calls} of {experiment.config.budget.oracle_calls} oracle calls, because "
            f"{MAX_IDLE_STEPS} steps in a row brought no new design",
            stacklevel=3,
        )
    summary, designs = experiment.conclude()
    directory.write_samples(designs)
    directory.write_summary(summary)


def follow(experiment: Runnable, stop: Callable[[], bool]) -> None:
    """Train beside the process that leads the run, which alone judges it and writes down what happened."""
    trainer = experiment.trainer
    with computing(experiment.config):
        while not trainer.finished and not stop():
            trainer.train_step()


def summarise(experiment: Experiment, channel: Channel | None = None, pay: bool = False) -> tuple[Summary, Sampled]:
    """Every metric of the policy as it is now, under its own channel or another, and the designs it drew for them.

    Args:
        pay: score designs that were never paid for.
    """
    config, task, trainer = experiment.config, experiment.task, experiment.trainer
    truth = experiment.truth
    if channel is None:
        channel = experiment.channel
    elif truth is not None:
        truth = Truth(task, channel, trainer.learner.reward)
    policy = experiment.policy
    # from the seed alone, not from where training left its generators: evaluating again gives the same numbers
    generator = Generators(config.seed)["evaluation"]
    sampled = draw(policy, task, channel, config.evaluation.num_samples, generator, pay)
    exact: Mapping[str, float | None]
    if truth is None:
        exact = {"mean_score": _mean_of_known(sampled)}
    else:
        # the last step has been judged already
        judged = experiment.last_judgement if truth is experiment.truth else None
        exact = truth.optimum() | (truth.judge(policy) if judged is None else judged)
    unknown = dict.fromkeys(("kl", "min_kl", "regret", "tv", "min_tv", "attainable_score", "log_z_true"))
    summary = Summary(
        **trainer.standing
        | unknown
        | {**exact}
        | design_metrics(sampled, task, config.evaluation, experiment.reference)
        | dynamics_metrics(policy, experiment.dynamics, channel, sampled.walk),
        task=task.name,
        noise=channel.noise,
        log_z=trainer.objective.log_z(),
        reward_noise=config.reward_noise,
        reward_mean=trainer.objective.reward_mean if task.noisy else None,
    )
    return summary, sampled


def reference_tokens(path: Path, task: Task) -> torch.Tensor:
    """Known sequences of a file as tokens of the task, [num_sequences, L]."""
    tokens = task.alphabet.encode(read_sequences(path))
    if task.padding is not None:
        return tokens
    if tokens.shape[1] != task.length:
        raise DataError(f"{path} holds sequences of length {tokens.shape[1]}, but {task.name} has length {task.length}")
    return tokens


def choose_device(name: str) -> torch.device:
    """The named device, or the best one there is for "auto"."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError, ImportError):
        raise ConfigError(f"device '{name}' is not available here; use --device auto or cpu") from None
    return device


@contextmanager
def computing(config: Config) -> Iterator[None]:
    """Let torch compute as the config says, then as before."""
    deterministic = _same_every_time(config.device) if config.deterministic else nullcontext()
    with torch_threads(config.threads, one_dnn=config.model.precision != "float32"), deterministic:
        yield


@contextmanager
def _same_every_time(device: str) -> Iterator[None]:
    """Ask torch for operations that give the same numbers every time; not asked for nothing: it takes two seconds."""
    before = torch.are_deterministic_algorithms_enabled()
    # cuBLAS reads it when a process first asks it for something
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    try:
        yield
    except RuntimeError as error:
        if "deterministic" not in str(error):
            raise
        raise ConfigError(
            f"torch cannot do all of this deterministically on {device} ({str(error).splitlines()[0][:120]}); "
            "add --device cpu, or leave out --deterministic"
        ) from None
    finally:
        torch.use_deterministic_algorithms(before)


@contextmanager
def torch_threads(num_threads: int, one_dnn: bool = False) -> Iterator[None]:
    """Let torch and the linear algebra under numpy use so many threads, then as many as before.

    Without oneDNN, whose fixed cost per activation is several times that of torch's own on matrices of a few rows; only
    products in a lower precision need it.
    """
    before, had_one_dnn = torch.get_num_threads(), torch.backends.mkldnn.enabled
    torch.set_num_threads(num_threads)
    torch.backends.mkldnn.enabled = one_dnn  # type: ignore[assignment]  # the stubs know the descriptor only
    try:
        with threadpool_limits(num_threads, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)
        torch.backends.mkldnn.enabled = had_one_dnn


def _mean_of_known(sampled: Sampled) -> float | None:
    scores = sampled.scores[~sampled.scores.isnan()]
    return float(scores.mean()) if len(scores) else None


def crossed(before: float, after: float, share: float) -> bool:
    """True when progress passed a multiple of `share`, or the end."""
    return after >= 1.0 or int(after / share) > int(before / share)

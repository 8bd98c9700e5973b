"""The command line as Python functions: same names, same defaults."""

import contextlib
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from stochflow import experiment as experiments
from stochflow.channel_config import parse_noise, with_matrix_inside
from stochflow.config import Config, merge, parse_assignment, read_yaml, resolve
from stochflow.enumerated.tree import infeasible_share
from stochflow.errors import ConfigError
from stochflow.evaluation import Summary, Truth, draw, samples_frame
from stochflow.experiment import restore
from stochflow.graph_training.experiment import (
    GraphExperiment,
    build_graph_experiment,
    check_graph_settings,
    restore_graph_experiment,
)
from stochflow.graph_training.truth import GraphTruth
from stochflow.graphs import configured_graph, is_graph, settings_of
from stochflow.memory import require
from stochflow.methods import method_settings
from stochflow.oracles.task import PREFIX, Named, function_name
from stochflow.parallel import Team, joined
from stochflow.profiling import Profiled
from stochflow.reports.diagnosis import Diagnosis, diagnose
from stochflow.reports.page import write_report
from stochflow.runs import CONFIG, TABLE, RunDirectory, check_free, recover
from stochflow.seeding import Generators
from stochflow.sequences import read_sequences
from stochflow.task_config import (
    configured_channel,
    configured_task,
    copied_table,
    same_setting,
    table_name,
    with_table_pinned,
)
from stochflow.tasks import TABLE_TASK, Reward
from stochflow.trackers import Tracking
from stochflow.watching.course import course_of, records_of
from stochflow.watching.watcher import Watcher

Settings = Mapping[str, Any]
Function = Callable[[list[str]], Any]
# what may differ when a run is continued: how long, where and how it is watched, but not what is learned
_FREE_ON_RESUME = {"budget", "device", "threads", "deterministic", "evaluation", "checkpoint_every"}
_CHUNK = 4096
_BYTES_PER_DESIGN = 400  # two strings and three numbers, and the text that is made of them
_MIN_NEW_SHARE = 0.005
_MIN_MEASURED_SHARE = 0.01
_COUNTABLE = 1e300


class Run:
    """A run directory with its trained sampler.

    Args:
        oracle: the score function of the run, or its name: without it scores that were never paid for cannot be had.
    """

    def __init__(self, path: str | Path, oracle: str | Function | None = None) -> None:
        self._oracle = None if oracle is None else _oracle_task(oracle)[1]
        self.directory = RunDirectory.open(Path(path))
        self.path = self.directory.path
        self._experiment: experiments.Experiment | None = None
        self._graph_experiment: GraphExperiment | None = None

    @property
    def config(self) -> Config:
        return self.directory.config()

    @property
    def summary(self) -> Summary:
        """The metrics that were written when training ended."""
        return self.directory.summary()

    @property
    def metrics(self) -> pd.DataFrame:
        """One row per training step."""
        return self.directory.metrics()

    def sample(
        self,
        n: int = 1000,
        *,
        unique: bool = False,
        noise: float | str | None = None,
        seed: int | None = None,
        score_samples: bool = False,
    ) -> pd.DataFrame:
        """Designs from the trained policy: sequence, intended, score, log_reward, log_prob.

        Args:
            unique: draw until there are n different sequences, or until fewer than 1 in 200 draws is new.
            noise: another channel than the one of training, as for `train`.
            seed: draws differ by seed; the run's own by default.
            score_samples: ask the oracle, which the run must have been loaded with, for scores that were never paid
                for; without it they are NaN.
        """
        if n < 1:
            raise ConfigError(f"cannot draw {n} designs; give a number of at least 1")
        require({f"{n:,} designs": float(n) * _BYTES_PER_DESIGN}, "draw fewer at a time, each time with another seed")
        if is_graph(self.config.task):
            return self._objects(n, unique, noise, seed)
        experiment = self.experiment()
        config = experiment.config
        channel = experiment.channel if noise is None else _channel(config, noise)
        reward = experiment.trainer.learner.reward
        generator = Generators(config.seed if seed is None else seed)["evaluation"]

        def draws(num: int) -> pd.DataFrame:
            sampled = draw(experiment.policy, experiment.task, channel, num, generator, score_samples)
            return samples_frame(sampled, experiment.task, reward)

        with experiments.computing(config), contextlib.closing(experiment.task):
            return _drawn(draws, n, "sequence" if unique else None)

    def evaluate(self, *, noise: float | str | None = None, score_samples: bool = False) -> Summary:
        """Every metric again from the checkpoint, under the training channel or another.

        Args:
            score_samples: ask the oracle for scores that were never paid for.
        """
        if is_graph(self.config.task):
            graph_experiment = self.graph_experiment(noise)
            with experiments.computing(graph_experiment.config):
                return graph_experiment.conclude()[0]
        experiment = self.experiment()
        channel = None if noise is None else _channel(experiment.config, noise)
        with experiments.computing(experiment.config), contextlib.closing(experiment.task):
            return experiments.summarise(experiment, channel, score_samples)[0]

    def experiment(self) -> experiments.Experiment:
        """The parts of the run as its newest checkpoint left them."""
        if self._experiment is None:
            self._experiment = restore(self.directory, self.config, self._oracle)
        return self._experiment

    def graph_experiment(self, noise: float | str | None = None) -> GraphExperiment:
        """The same for a run on a graph, perhaps with other noise."""
        if self._graph_experiment is None:
            self._graph_experiment = restore_graph_experiment(self.directory, self.config)
        if noise is None:
            return self._graph_experiment
        return self._graph_experiment.under(resolve([{"channel": _whole_channel(noise)}]).channel)

    def _objects(self, n: int, unique: bool, noise: float | str | None, seed: int | None) -> pd.DataFrame:
        """Objects of a graph; see `sample`."""
        experiment = self.graph_experiment(noise)
        generator = Generators(experiment.config.seed if seed is None else seed)["evaluation"]
        with experiments.computing(experiment.config):
            return _drawn(lambda num: experiment.samples(num, generator), n, "object" if unique else None)


def train(
    task: str | None = None,
    *,
    oracle: str | Function | None = None,
    length: int | None = None,
    variable_length: bool = False,
    min_length: int | None = None,
    max_length: int | None = None,
    alphabet: str | None = None,
    oracle_calls: int | None = None,
    oracle_cache: str | Path | None = None,
    score_samples: bool = False,
    constraints: Settings | None = None,
    method: str | None = None,
    noise: float | str | None = None,
    deletion: float | None = None,
    duplication: float | None = None,
    seed: int | None = None,
    trajectories: int | None = None,
    steps: int | None = None,
    minutes: float | None = None,
    table: str | Path | None = None,
    sequence_column: str | None = None,
    score_column: str | None = None,
    variance_column: str | None = None,
    reward_noise: str | None = None,
    config: str | Path | Settings | None = None,
    settings: Sequence[str] = (),
    out: str | Path | None = None,
    device: str | None = None,
    deterministic: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    track: Sequence[str] = (),
    profile: bool = False,
    listen: experiments.Listener | None = None,
    stop: Callable[[], bool] | None = None,
) -> Run:
    """Train a sampler and return its run. Defaults: tfbind8, sgfn-kl, noise 0.25, seed 0, 32,000 trajectories.

    Args:
        oracle: "package.module:function" or the function itself, in the place of a task: it takes a list of strings
            and returns as many numbers that are not negative. A config or a run that names one is not enough, for it
            may be a stranger's: the oracle runs only if it is given here.
        length: letters of a design of the oracle.
        variable_length: let designs of the oracle or the table differ in length, by a stop action.
        min_length, max_length: fewest and most letters; either asks for variable length. A table has its own bounds by
            default, and an oracle needs `max_length`.
        alphabet: of the oracle or the table: "dna", "rna", "protein", or the letters; a table has the first that fits
            by default.
        oracle_calls: a budget too: how many different designs, or noisy measurements, to pay for.
        oracle_cache: SQLite file of paid scores that runs may share; by default it lies in the run directory.
        score_samples: pay for the designs drawn at the end as well.
        constraints: what designs must satisfy, as in the config: forbid, both_strands, gc, fixed, max_homopolymer,
            symmetric.
        noise: slip α in [0, 1), "none", "dna-synthesis[:rate]", one α per position separated by commas, or the path
            of a CSV or YAML confusion matrix.
        deletion, duplication: probabilities that an intended letter is not written, or written twice; they need
            variable length.
        trajectories, steps, minutes: the budget; at most one of them.
        table: a CSV or TSV file of sequences and scores instead of a task; see docs/your-own-task.md.
        sequence_column, score_column, variance_column: its columns; several score columns, separated by commas, are
            replicates.
        reward_noise: "none", "replicate", "gaussian" (the table's variances) or "gaussian:σ".
        config: a YAML file or a dictionary of settings; `settings` and the arguments here go over it.
        settings: assignments like "reward.beta=3".
        out: run directory; by default `runs/<task>-<method>-<noise>-seed<seed>`.
        deterministic: use only operations that give the same numbers every time, and refuse where there is none.
        resume: continue the run in `out` from its checkpoint.
        overwrite: replace the run in `out`.
        track: names of trackers that follow the run: tensorboard, wandb, mlflow.
        profile: write down where the time goes, by stage and by operation, as profile.txt in the run directory.
        listen: called after every training step with its record and the share of the budget spent.
        stop: asked before every training step; True ends the run as Ctrl-C does.
    """
    layers = [_config_layer(config), *(parse_assignment(text) for text in settings)]
    resumed = RunDirectory.open(Path(out)).config().model_dump() if resume and out else {}
    by_table = table is not None or any(_names_table(layer) for layer in [resumed, *layers])
    budget = {"trajectories": trajectories, "steps": steps, "minutes": minutes, "oracle_calls": oracle_calls}
    columns = {
        "file": None if table is None else str(table),
        "sequence_column": sequence_column,
        "score_column": score_column,
        "variance_column": variance_column,
        "alphabet": alphabet if by_table else None,
    }
    about_oracle = {
        "length": length,
        "alphabet": None if by_table else alphabet,
        "cache": None if oracle_cache is None else str(Path(oracle_cache).resolve()),
        "score_samples": score_samples or None,
    }
    flags = _flags(task, method, noise, seed, device, budget) | _table_flags(task, columns, reward_noise)
    flags["oracle"] = {name: value for name, value in about_oracle.items() if value is not None}
    if constraints:
        flags["constraints"] = dict(constraints)
    if deterministic:
        flags["deterministic"] = True
    flags = merge(flags, _length_flags(variable_length, min_length, max_length, deletion, duplication))
    function: Named = None
    if oracle is not None:
        if task is not None:
            raise ConfigError(f"--oracle takes the place of a task; leave out '{task}'")
        flags["task"], function = _oracle_task(oracle)
    layers.append(flags)
    if resume and overwrite:
        raise ConfigError("--resume continues a run and --overwrite replaces it; give one of them")
    tracking = Tracking(track)
    with joined() as team, contextlib.ExitStack() as held:
        if resume:
            directory, experiment = _reopen(Path(out) if out else None, layers, function, team, held)
        else:
            directory, experiment = _begin(Path(out) if out else None, layers, overwrite, function, team, held)
        # torchrun passes on a Ctrl-C that the terminal has sent to everybody already: twice is not a second one
        with stop_signal(patient=team is not None) as signalled:

            def ended() -> bool:
                asked = signalled() or (stop is not None and stop())
                return asked if team is None else team.any(asked)

            if _leads(team):
                tracking.start(experiment.config, directory.path, experiment.trainer.step if resume else None)
                _run(experiment, directory, tracking, listen, ended, profile)
            else:
                experiments.follow(experiment, ended)
        if team is not None:
            team.wait()
    return Run(directory.path, oracle)


def sample(
    run: str | Path | Run, n: int = 1000, *, oracle: str | Function | None = None, **options: Any
) -> pd.DataFrame:
    """Designs from a finished run; see `Run.sample`."""
    return load(run, oracle).sample(n, **options)


def evaluate(
    run: str | Path | Run,
    *,
    noise: float | str | None = None,
    score_samples: bool = False,
    oracle: str | Function | None = None,
) -> Summary:
    """Every metric of a run, recomputed from its checkpoint; see `Run.evaluate`."""
    return load(run, oracle).evaluate(noise=noise, score_samples=score_samples)


def exact(
    task: str | None = None,
    *,
    variable_length: bool = False,
    min_length: int | None = None,
    max_length: int | None = None,
    alphabet: str | None = None,
    constraints: Settings | None = None,
    noise: float | str | None = None,
    deletion: float | None = None,
    duplication: float | None = None,
    beta: float | None = None,
    floor: float | None = None,
    table: str | Path | None = None,
    sequence_column: str | None = None,
    score_column: str | None = None,
    variance_column: str | None = None,
    reward_noise: str | None = None,
    settings: Sequence[str] = (),
) -> dict[str, Any]:
    """The attainable optimum of a task or a table under a channel, without any training; of E[R] where rewards differ.

    Returns `task, noise, beta, floor, min_kl, min_tv, attainable_score, log_z_true` and, for sequences of one length
    under uniform slip, `infeasible_share`: per depth, the share of prefixes that no policy can balance.

    Args:
        beta, floor: of the reward, by default 3 and 1e-6 for sequences.

    All others as for `train`.
    """
    layers = [parse_assignment(text) for text in settings]
    if task is not None and task.startswith(PREFIX):
        raise ConfigError(
            "every score of an oracle costs something, so its optimum cannot be computed; train it instead"
        )
    columns = {
        "file": None if table is None else str(table),
        "sequence_column": sequence_column,
        "score_column": score_column,
        "variance_column": variance_column,
        "alphabet": alphabet,
    }
    flags = _flags(task, None, noise, None, None, {}) | _table_flags(task, columns, reward_noise)
    flags["constraints"] = dict(constraints or {})
    flags["reward"] = {name: value for name, value in {"beta": beta, "floor": floor}.items() if value is not None}
    flags = merge(flags, _length_flags(variable_length, min_length, max_length, deletion, duplication))
    config = resolve_config([*layers, flags])
    the_reward = Reward(**config.reward.model_dump())
    terms = {"beta": config.reward.beta, "floor": config.reward.floor}
    if is_graph(config.task):
        graph = configured_graph(config)
        return {"task": graph.name, "noise": graph.noise, **terms, **GraphTruth(graph, the_reward).optimum()}
    the_task = configured_task(config)
    if not the_task.enumerable:
        raise ConfigError(
            f"task '{the_task.name}' is too large to enumerate, so its optimum cannot be computed; train it instead"
        )
    channel = configured_channel(config.channel, the_task)
    truth = Truth(the_task, channel, the_reward)
    result: dict[str, Any] = {"task": the_task.name, "noise": channel.noise, **terms, **truth.optimum()}
    if channel.slip is not None:
        result["infeasible_share"] = infeasible_share(truth.log_rewards, channel.slip, the_task.num_tokens)
    return result


def report(path: str | Path, out: str | Path | None = None) -> Path:
    """Write one HTML page about a run, or about a sweep that holds runs/; by default `report.html` beside its files."""
    recover(Path(path))
    return write_report(Path(path), None if out is None else Path(out))


def doctor(run: str | Path | Run) -> list[Diagnosis]:
    """What is wrong with a run and what to do about it, from its files alone; of a comparison every run, worst first.

    A run of a comparison that cannot be read is left out with a warning.
    """
    found, problems = diagnose(run.path if isinstance(run, Run) else Path(run))
    for problem in problems:
        warnings.warn(problem, stacklevel=2)
    return found


def load(run: str | Path | Run, oracle: str | Function | None = None) -> Run:
    """A run from its directory; with its oracle, if new designs shall be scored."""
    if isinstance(run, Run):
        return run if oracle is None else Run(run.path, oracle)
    return Run(run, oracle)


def resolve_config(layers: list[dict[str, Any]]) -> Config:
    """A checked config: defaults, then the method's settings, then the layers in order."""
    method = next((layer["method"] for layer in reversed(layers) if "method" in layer), "sgfn-kl")
    task = next((str(layer["task"]) for layer in reversed(layers) if "task" in layer), "")
    resolved = resolve([*([settings_of(task)] if is_graph(task) else []), method_settings(str(method)), *layers])
    if is_graph(resolved.task):
        check_graph_settings(resolved, configured_graph(resolved))
    else:
        configured_task(resolved)
    return resolved


def default_path(config: Config) -> Path:
    """Where a run goes when nobody says where."""
    channel = config.channel
    if channel.file is not None:
        noise = Path(channel.file).stem
    elif channel.matrix is not None or channel.matrices is not None or channel.kind == "none":
        noise = channel.kind
    else:
        noise = f"{channel.kind.removeprefix('uniform-slip')}-{channel.noise}"
    edits = {"deletion": channel.deletion, "duplication": channel.duplication}
    noise += "".join(f"-{name}-{rate}" for name, rate in edits.items() if rate)
    text = re.sub(r"[^\w.]+", "-", noise).strip("-")
    task = config.task if config.table.file is None else table_name(config.table)
    task = re.sub(r"[^\w.]+", "-", task)
    return Path("runs") / f"{task}-{config.method}-{text}-seed{config.seed}"


@contextlib.contextmanager
def stop_signal(patient: bool = False) -> Iterator[Callable[[], bool]]:
    """A function that turns True after Ctrl-C, a termination request or the loss of the terminal.

    Unless patient, a second one stops at once; but a terminal that closes says so several times.
    """
    requested = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield requested.is_set
        return
    hangup = getattr(signal, "SIGHUP", None)
    terminals = [stream.fileno() for stream in (sys.__stdout__, sys.__stderr__) if stream and stream.isatty()]

    def on_signal(number: int, frame: object) -> None:
        requested.set()
        if number == hangup:
            for descriptor in terminals:  # nobody reads there any more, and writing would fail
                os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
        elif not patient:
            signal.signal(number, previous[number])

    previous: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    if hangup is not None and signal.getsignal(hangup) != signal.SIG_IGN:  # as `nohup` asks for
        previous[hangup] = signal.getsignal(hangup)
    for number in previous:
        signal.signal(number, on_signal)
    try:
        yield requested.is_set
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _run(
    experiment: experiments.Runnable,
    directory: RunDirectory,
    tracking: Tracking,
    listen: experiments.Listener | None,
    stop: Callable[[], bool],
    profile: bool,
) -> None:
    """Train to the end, with whoever follows the run told of it."""
    watched = Profiled(experiment, directory) if profile else None
    try:
        heard = _all(tracking, _watcher(experiment, directory), listen)
        experiments.run(watched or experiment, directory, heard, stop)
    except BaseException:
        tracking.finish(None)
        raise
    tracking.finish(directory.summary())
    if watched is not None:
        watched.write()


def _leads(team: Team | None) -> bool:
    """True in the process that writes the run directory."""
    return team is None or team.leads


def _begin(
    given: Path | None,
    layers: list[dict[str, Any]],
    overwrite: bool,
    function: Named,
    team: Team | None,
    held: contextlib.ExitStack,
) -> tuple[RunDirectory, experiments.Runnable]:
    """A fresh experiment and its run directory, which is ours until `held` ends."""
    config = resolve_config(layers)
    path = given or default_path(config)
    if _leads(team):
        check_free(path, overwrite)
    config = config.model_copy(update={"channel": with_matrix_inside(config.channel)})
    config, own_table = with_table_pinned(config)
    if is_graph(config.task):
        _refuse_graph(config, team)
        graph_experiment = build_graph_experiment(config)
        directory = RunDirectory.create(path, config, overwrite, hold=True)
        held.callback(directory.release)
        return directory, graph_experiment
    experiment = experiments.build(config, function=function, team=team)
    if not _leads(team):
        experiment.trainer.begin()
        return RunDirectory(path), experiment
    experiment.task.check()
    _warn_of_gaps(experiment)
    stored = config
    if own_table is not None:
        stored = config.model_copy(update={"table": copied_table(config.table, own_table, TABLE)})
    table_text = None if own_table is None else own_table.text
    directory = RunDirectory.create(path, stored, overwrite, table_text, _reference_text(config), hold=True)
    held.callback(directory.release)
    experiment.task.open(directory.path)
    experiment.trainer.begin()
    return directory, experiment


def _drawn(draws: Callable[[int], pd.DataFrame], n: int, unique: str | None) -> pd.DataFrame:
    """n rows of draws, or as many with different entries in the column `unique` as can be found in reasonable time."""
    if unique is None:
        sizes = [min(_CHUNK, n - start) for start in range(0, n, _CHUNK)]
        return pd.concat([draws(size) for size in sizes], ignore_index=True)
    parts: list[pd.DataFrame] = []
    seen: set[str] = set()
    while len(seen) < n:
        fresh = draws(_CHUNK).drop_duplicates(unique)
        fresh = fresh[~fresh[unique].isin(seen)]
        parts.append(fresh)
        seen.update(fresh[unique])
        if len(fresh) < _MIN_NEW_SHARE * _CHUNK:
            break
    return pd.concat(parts, ignore_index=True).head(n)


def _reopen(
    path: Path | None,
    layers: list[dict[str, Any]],
    function: Named,
    team: Team | None,
    held: contextlib.ExitStack,
) -> tuple[RunDirectory, experiments.Runnable]:
    """The experiment of a run directory where its newest checkpoint left it, or at its beginning if there is none yet.

    The directory is ours until `held` ends.
    """
    path = path or default_path(resolve_config(layers))
    if _leads(team):
        recover(path)
    directory = RunDirectory.open(path)
    if _leads(team):
        directory.hold()
        held.callback(directory.release)
    directory.check_config()
    stored = directory.config()
    wanted, _ = with_table_pinned(resolve([stored.model_dump(mode="json"), *layers]))
    for name in Config.model_fields:
        if name not in _FREE_ON_RESUME and not same_setting(name, wanted, stored):
            raise ConfigError(
                f"{directory.path} was started with another '{name}'; resume it without that setting, "
                "or choose another --out"
            )
    wanted = wanted.model_copy(update={"table": stored.table})
    experiment: experiments.Runnable
    if is_graph(wanted.task):
        _refuse_graph(wanted, team)
        graph = restore_graph_experiment if directory.begun else lambda _, config: build_graph_experiment(config)
        experiment = graph(directory, wanted)
    else:
        sequences = restore(directory, wanted, function, team, begin=not directory.begun)
        if _leads(team):
            sequences.task.check()
        sequences.trainer.begin()
        if not _leads(team):
            return directory, sequences
        experiment = sequences
    if wanted.evaluation.reference not in (None, stored.evaluation.reference):
        directory.write_reference(str(_reference_text(wanted)))
    directory.rewrite_config(wanted)
    directory.rewind_metrics(experiment.trainer.step)
    return directory, experiment


def _refuse_graph(config: Config, team: Team | None) -> None:
    if team is not None:
        raise ConfigError(f"training on the graph '{config.task}' cannot be shared out; start it without torchrun")


def _flags(
    task: str | None,
    method: str | None,
    noise: float | str | None,
    seed: int | None,
    device: str | None,
    budget: dict[str, int | float | None],
) -> dict[str, Any]:
    given = {"task": task, "method": method, "seed": seed, "device": device}
    flags: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if noise is not None:
        flags["channel"] = _whole_channel(noise)
    limits = {name: value for name, value in budget.items() if value is not None}
    return flags | ({"budget": limits} if limits else {})


def _table_flags(task: str | None, columns: Mapping[str, str | None], reward_noise: str | None) -> dict[str, Any]:
    """Settings of a table and of the noise in its measurements."""
    given = {name: value for name, value in columns.items() if value is not None}
    flags: dict[str, Any] = {} if reward_noise is None else {"reward_noise": reward_noise}
    if given:
        flags["table"] = given
    if task is None and "file" in given:
        flags["task"] = TABLE_TASK
    return flags


def _length_flags(
    variable: bool, min_length: int | None, max_length: int | None, deletion: float | None, duplication: float | None
) -> dict[str, Any]:
    """Settings of designs that differ in length."""
    given: dict[str, dict[str, Any]] = {
        "lengths": {"variable": variable or None, "min_length": min_length, "max_length": max_length},
        "channel": {"deletion": deletion, "duplication": duplication},
    }
    return {
        part: {name: value for name, value in settings.items() if value is not None} for part, settings in given.items()
    }


def _names_table(layer: Settings) -> bool:
    """True when settings name a table's file; whether they are valid is found out later."""
    return isinstance(layer.get("table"), Mapping) and layer["table"].get("file") is not None


def _reference_text(config: Config) -> str | None:
    """Known sequences, one per line, as a run keeps them."""
    known = config.evaluation.reference
    return None if known is None else "".join(f"{sequence}\n" for sequence in read_sequences(Path(known)))


def _warn_of_gaps(experiment: experiments.Experiment) -> None:
    """Say so when a table knows next to nothing of what can be made: the rest has the floor reward."""
    task = experiment.task
    # divided and compared, for there may be more designs than a float can count
    if task.num_measured is not None and task.num_measured / _MIN_MEASURED_SHARE < task.num_designs:
        possible = f"{task.num_designs:.3g}" if task.num_designs < _COUNTABLE else f"more than {_COUNTABLE:g}"
        warnings.warn(
            f"{task.name} has scores for {task.num_measured:,} of {possible} possible sequences; all "
            "others get the floor reward, so the sampler can only find what it happens to meet",
            stacklevel=3,
        )


def _oracle_task(oracle: str | Function) -> tuple[str, str | Function]:
    """The task's name, and the oracle: its name, or the function where no other process can import it."""
    if isinstance(oracle, str):
        return PREFIX + oracle, oracle
    name, importable = function_name(oracle)
    return PREFIX + name, name if importable else oracle


def _whole_channel(noise: float | str) -> dict[str, Any]:
    """Channel settings that leave nothing of an earlier layer standing."""
    return {"matrix": None, "matrices": None, "file": None, **parse_noise(noise)}


def _config_layer(config: str | Path | Settings | None) -> dict[str, Any]:
    if config is None:
        return {}
    return dict(config) if isinstance(config, Mapping) else read_yaml(Path(config))


def _channel(config: Config, noise: float | str) -> Any:
    task = configured_task(config)
    edits = {"deletion": config.channel.deletion, "duplication": config.channel.duplication}
    settings = resolve([{"channel": edits | _whole_channel(noise)}]).channel
    return configured_channel(settings, task)


def _watcher(experiment: experiments.Runnable, directory: RunDirectory) -> Watcher:
    """Who warns when training goes wrong, with what earlier sessions of the run have recorded in mind."""
    return Watcher(course_of(experiment.config, records_of(directory.metrics())))


def _all(tracking: Tracking, watcher: Watcher, listen: experiments.Listener | None) -> experiments.Listener:
    """Trackers hear every record, and so does who watches the run, and whoever else listens."""

    def heard(record: dict[str, float], progress: float) -> None:
        tracking.log(record)
        watcher(record, progress)
        if listen is not None:
            listen(record, progress)

    return heard

"""From layers of settings to a finished run: resolve, open the run directory, build, train."""

import contextlib
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stochflow.config.layers import resolve
from stochflow.config.schema import Config
from stochflow.core.errors import ConfigError
from stochflow.core.signals import stop_signal
from stochflow.environments.channel_factory import with_matrix_inside
from stochflow.environments.factory import Configured, same_setting, title_of
from stochflow.environments.sequences.fasta import read_sequences
from stochflow.environments.sequences.oracles.task import OracleFunction
from stochflow.experiments.build import build, restore
from stochflow.experiments.experiment import Experiment
from stochflow.experiments.fine_tuning import load_pretrained, settings_from
from stochflow.experiments.profiler import Profiler
from stochflow.experiments.torch_settings import computing
from stochflow.experiments.world import configured_world, resolve_world, say_world
from stochflow.runs.directory import HELD_OUT, REFERENCE, RunDirectory, check_free, is_vacant, recover
from stochflow.runs.monitor.history import history_of, records_of
from stochflow.runs.monitor.watcher import Watcher
from stochflow.runs.trackers import Tracking
from stochflow.training.distributed import ProcessGroup, joined
from stochflow.training.optimizer import Record
from stochflow.training.trainer import MAX_IDLE_STEPS

Listener = Callable[[Record, float], None]
# what may differ when a run is continued: how long, where and how it is watched, but not what is learned
_FREE_ON_RESUME = {"budget", "device", "threads", "deterministic", "evaluation", "checkpoint_every"}
_MEASURED_FIRST = {"regret", "j", "j_se"}


@dataclass(frozen=True)
class LaunchOptions:
    """How a run is started and followed; none of it changes what is learned.

    Attributes:
        resume: continue the run in its directory from its checkpoint, or begin it where there is none yet.
        overwrite: replace the run in its directory.
        track: names of trackers that follow the run.
        profile: write down where the time goes.
        listen: called after every training step with its record and the share of the budget spent.
        stop: asked before every training step; True ends the run as Ctrl-C does.
    """

    resume: bool = False
    overwrite: bool = False
    track: tuple[str, ...] = ()
    profile: bool = False
    listen: Listener | None = None
    stop: Callable[[], bool] | None = None


def launch(
    layers: list[dict[str, Any]],
    function: OracleFunction,
    out: Path | None,
    options: LaunchOptions,
    pretrained: Path | None = None,
) -> Path:
    """Train the run that layers of settings describe to its end; returns its directory.

    Args:
        layers: settings, later ones over earlier ones.
        function: the oracle as the user has named it, or the oracle itself.
        out: run directory; by default `default_path`.
        pretrained: the `pretrain` run whose sampler a new run begins with.
    """
    tracking = Tracking(options.track)
    if out is None:
        inherited = [] if pretrained is None else [settings_from(pretrained)]
        out = default_path(resolve_world([*inherited, *layers])[0])
    with joined() as team, contextlib.ExitStack() as held:
        start = _Start(out, layers, function, pretrained, team, held)
        resumed = options.resume and not start.is_new
        directory, experiment = start.reopened() if resumed else start.begun(options.overwrite)
        # torchrun passes on a Ctrl-C that the terminal has sent to everybody already: twice is not a second one
        with stop_signal(patient=team is not None) as signalled:

            def ended() -> bool:
                asked = signalled() or (options.stop is not None and options.stop())
                return asked if team is None else team.any(asked)

            if start.leads:
                tracking.start(experiment.config, directory.path, experiment.trainer.step if resumed else None)
                _run(experiment, directory, tracking, options.listen, ended, options.profile)
            else:
                follow(experiment, ended)
        if team is not None:
            team.wait()
    return directory.path


def run(experiment: Experiment, directory: RunDirectory, listen: Listener, stop: Callable[[], bool]) -> None:
    """Train to the end of the budget or until asked to stop, keeping what was learned along the way."""
    trainer = experiment.trainer
    with computing(experiment.config), contextlib.closing(experiment):
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


def untrained_figures(experiment: Experiment) -> dict[str, float]:
    """Regret and J before the first step, where they can be known: what every later one is measured against."""
    return {f"start_{name}": value for name, value in experiment.evaluate().items() if name in _MEASURED_FIRST}


def keep_step(experiment: Experiment, directory: RunDirectory, record: Record, before: float) -> None:
    """Evaluate the policy where that is due, write the record down with what was found, and keep a checkpoint if due.

    Args:
        before: progress before the step.
    """
    config, trainer = experiment.config, experiment.trainer
    if crossed(before, trainer.progress, experiment.evaluated_every):
        record |= experiment.evaluate()
    directory.append_metrics(record)
    if crossed(before, trainer.progress, config.checkpoint_every):
        directory.save_checkpoint(trainer.state_dict(), trainer.step)


def conclude_run(experiment: Experiment, directory: RunDirectory) -> None:
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
    if experiment.environment.evidence is not None:
        directory.write(HELD_OUT, experiment.environment.evidence.held_out.to_csv(index=False))
    directory.write_summary(summary)
    if trainer.finished:
        directory.keep_newest_checkpoint()


def follow(experiment: Experiment, stop: Callable[[], bool]) -> None:
    """Train beside the first process of the run, which alone evaluates it and writes files."""
    trainer = experiment.trainer
    with computing(experiment.config):
        while not trainer.finished and not stop():
            trainer.train_step()


def crossed(before: float, after: float, share: float) -> bool:
    """True when progress passed a multiple of `share`, or the end."""
    return after >= 1.0 or int(after / share) > int(before / share)


def prepare(layers: list[dict[str, Any]], function: OracleFunction = None) -> Configured:
    """The checked settings of a run with their environment, built once."""
    resolved, table = resolve_world(layers)
    inside = with_matrix_inside(resolved.channel, resolved.lengths.variable)
    resolved = resolved.model_copy(update={"channel": inside})
    configured = configured_world(resolved, function, table)
    say_world(resolved, configured)
    configured.environment.check_method(configured.config)
    return configured


def resolve_config(layers: list[dict[str, Any]]) -> Config:
    """Checked settings: the environment that they describe is built, and forgotten."""
    resolved, table = resolve_world(layers)
    configured_world(resolved, table=table).environment.check_method(resolved)
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
    noise += "-orders" if config.feedback == "none" and channel.kind != "none" else ""
    text = re.sub(r"[^\w.]+", "-", noise).strip("-")
    task = re.sub(r"[^\w.]+", "-", title_of(config))
    return Path("runs") / f"{task}-{config.method}-{text}-seed{config.seed}"


def _run(
    experiment: Experiment,
    directory: RunDirectory,
    tracking: Tracking,
    listen: Listener | None,
    stop: Callable[[], bool],
    profile: bool,
) -> None:
    """Train to the end, with whoever follows the run told of it."""
    profiler = Profiler(experiment, directory) if profile else None
    try:
        # with what earlier sessions of the run have recorded in mind
        watcher = Watcher(history_of(experiment.config, records_of(directory.metrics())))
        heard = _all(tracking, watcher, listen)
        run(experiment if profiler is None else profiler.experiment, directory, heard, stop)
    except BaseException:
        tracking.finish(None)
        raise
    tracking.finish(directory.summary())
    if profiler is not None:
        profiler.write()


@dataclass(frozen=True)
class _Start:
    """What a run starts from: its settings and its sampler, the processes that share it, and what they hold."""

    path: Path
    layers: list[dict[str, Any]]
    function: OracleFunction
    pretrained: Path | None
    team: ProcessGroup | None
    held: contextlib.ExitStack

    @property
    def leads(self) -> bool:
        """True in the process that writes the run directory."""
        return self.team is None or self.team.leads

    @property
    def is_new(self) -> bool:
        """True where there is no run to go on with; who leads the run decides, for it soon makes one."""
        new = self.leads and is_vacant(self.path)
        return new if self.team is None else self.team.any(new)

    def begun(self, overwrite: bool) -> tuple[RunDirectory, Experiment]:
        """A fresh experiment and its run directory, which is ours until `held` ends."""
        beginning = None if self.pretrained is None else load_pretrained(self.pretrained)
        inherited = [] if self.pretrained is None else [settings_from(self.pretrained)]
        configured = prepare([*inherited, *self.layers], self.function)
        config, environment = configured.config, configured.environment
        if beginning is not None:
            if self.team is not None:
                raise ConfigError("a run with --from cannot be shared out among processes; start it without torchrun")
            beginning.check(config, environment)
        elif config.pretraining.support is not None or config.context.reads == "support":
            raise ConfigError("a support is for a run that begins with a pre-trained sampler; name its run with --from")
        if self.leads:
            check_free(self.path, overwrite)
        experiment = build(config, environment, function=self.function, team=self.team)
        if not self.leads:
            experiment.trainer.begin()
            return RunDirectory(self.path), experiment
        environment.check()
        environment.warn()
        table_text = None if configured.table is None else configured.table.text
        reference = _reference_text(config)
        directory = RunDirectory.create(self.path, configured.stored, overwrite, table_text, reference, hold=True)
        self.held.callback(directory.release)
        environment.open(directory.path)
        if beginning is not None:
            beginning.begin(experiment)
        experiment.trainer.begin()
        return directory, experiment

    def reopened(self) -> tuple[RunDirectory, Experiment]:
        """The experiment of a run directory where its newest checkpoint left it, or at its beginning without one.

        The directory is ours until `held` ends.
        """
        if self.leads:
            recover(self.path)
        directory = RunDirectory.open(self.path)
        if self.leads:
            directory.hold()
            self.held.callback(directory.release)
        directory.check_config()
        stored = directory.config()
        configured = configured_world(resolve([stored.model_dump(mode="json"), *self.layers]), self.function)
        wanted, environment = configured.config, configured.environment
        for name in Config.model_fields:
            if name not in _FREE_ON_RESUME and not same_setting(name, wanted, stored):
                raise ConfigError(
                    f"{directory.path} was started with another '{name}'; resume it without that setting, "
                    "or choose another --out"
                )
        wanted = wanted.model_copy(update={"table": stored.table})
        begin = not directory.begun
        experiment = restore(directory, wanted, environment, self.function, self.team, begin)
        if begin and wanted.pretraining.support is not None:
            if self.pretrained is None:
                raise ConfigError(
                    f"{directory.path} had not begun yet; name the sampler that it begins with, by --from"
                )
            beginning = load_pretrained(self.pretrained)
            beginning.check(wanted, environment)
            beginning.begin(experiment)
        if self.leads:
            environment.check()
        experiment.trainer.begin()
        if not self.leads:
            return directory, experiment
        if wanted.evaluation.reference not in (None, stored.evaluation.reference):
            directory.write(REFERENCE, str(_reference_text(wanted)))
        directory.rewrite_config(wanted)
        directory.rewind_metrics(experiment.trainer.step)
        return directory, experiment


def _reference_text(config: Config) -> str | None:
    """Known sequences, one per line, as a run keeps them."""
    known = config.evaluation.reference
    return None if known is None else "".join(f"{sequence}\n" for sequence in read_sequences(Path(known)))


def _all(tracking: Tracking, watcher: Watcher, listen: Listener | None) -> Listener:
    """Trackers hear every record, and so does who watches the run, and whoever else listens."""

    def heard(record: dict[str, float], progress: float) -> None:
        tracking.log(record)
        watcher(record, progress)
        if listen is not None:
            listen(record, progress)

    return heard

"""The command line as Python functions: same names, same defaults."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from stochflow.config.options import TRAIN, settings_of
from stochflow.config.yaml import parse_assignment
from stochflow.environments.base import Environment
from stochflow.environments.rewards import Reward
from stochflow.environments.sequences.oracles.task import PREFIX, named_task
from stochflow.environments.settings import exact_layers, pretraining_layers, resolve_layers, training_layers
from stochflow.evaluation.summary import Summary
from stochflow.experiments.build import build as build_experiment
from stochflow.experiments.experiment import Experiment
from stochflow.experiments.finished_run import Function
from stochflow.experiments.finished_run import Run as Run
from stochflow.experiments.launch import LaunchOptions, Listener, launch, prepare
from stochflow.experiments.torch_settings import torch_threads
from stochflow.overview import Overview, overview
from stochflow.reports.diagnosis import Diagnosis, diagnose
from stochflow.reports.page import write_report
from stochflow.runs.directory import RunDirectory, is_vacant, recover
from stochflow.truth.figures import exact_figures

Settings = Mapping[str, Any]


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
    oracle_engine: str | None = None,
    address: str | None = None,
    score_samples: bool = False,
    constraints: Settings | None = None,
    method: str | None = None,
    noise: float | str | None = None,
    feedback: str | None = None,
    context: str | None = None,
    deletion: float | None = None,
    duplication: float | None = None,
    seed: int | None = None,
    trajectories: int | None = None,
    steps: int | None = None,
    minutes: float | None = None,
    pretrained: str | Path | None = None,
    support: int | None = None,
    table: str | Path | None = None,
    sequence_column: str | None = None,
    score_column: str | None = None,
    variance_column: str | None = None,
    world: str | None = None,
    gap_score: float | None = None,
    reward_noise: str | None = None,
    motif_matrix: str | Path | None = None,
    config: str | Path | Settings | None = None,
    settings: Sequence[str] = (),
    out: str | Path | None = None,
    device: str | None = None,
    deterministic: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    track: Sequence[str] = (),
    profile: bool = False,
    listen: Listener | None = None,
    stop: Callable[[], bool] | None = None,
) -> Run:
    """Train a sampler and return its run. Defaults: tfbind8, sgfn-kl, noise 0.25, seed 0, 32,000 trajectories.

    A table or an oracle has no noise unless some is given; the summary says which noise was on.

    Args:
        oracle: "package.module:function" or the function itself, in the place of a task: it takes a list of strings
            and returns as many numbers that are not negative. A config or a run that names one is not enough, for it
            may be a stranger's: the oracle runs only if it is given here.
        length: letters of a design of the oracle, or for the motif matrices.
        variable_length: let designs of the oracle or the table differ in length, by a stop action.
        min_length, max_length: fewest and most letters; either asks for variable length. A table has its own bounds by
            default, and an oracle needs `max_length`.
        alphabet: of the oracle or the table: "dna", "rna", "protein", or the letters; a table has the first that fits
            by default.
        oracle_calls: a budget too: how many different designs, or noisy measurements, to pay for.
        oracle_cache: SQLite file of paid scores that runs may share; by default it lies in the run directory.
        oracle_engine: "local", processes on this machine, or "ray".
        address: of the Ray cluster that calls the oracle; without one, Ray is started on this machine. One that only a
            config or a run names is not joined.
        score_samples: pay for the designs drawn at the end as well.
        constraints: what designs must satisfy, as in the config: forbid, both_strands, gc, fixed, max_homopolymer,
            symmetric.
        noise: slip α in [0, 1), "none", "dna-synthesis[:rate]", one α per position separated by commas, or the path
            of a CSV or YAML confusion matrix. The default is 0.25, and "none" for a table or an oracle.
        feedback: "step", where a policy sees each outcome before its next letter, or "none", where it orders whole
            strings; "none" for a table or an oracle, "step" elsewhere.
        context: what the policy reads beyond the letters so far: "none", "history" for the pairs of intended and made
            letters, which pays where the noise has memory, or "support" with `pretrained`.
        deletion, duplication: probabilities that an intended letter is not written, or written twice; they need
            variable length.
        trajectories, steps, minutes: the budget; at most one of them.
        pretrained: run directory of `pretrain` whose sampler this run begins with, with its noise, reward and network.
        support: how many random sequences to measure for it first; they are no part of the budget.
        table: a CSV or TSV file of sequences and scores instead of a task; see docs/how-to/your-own-task.md.
        sequence_column, score_column, variance_column: its columns; several score columns, separated by commas, are
            replicates.
        world: "measured", where the table is evidence and scores of other sequences are predicted from it, or
            "complete", where there is nothing else; by default measured if the table has gaps.
        gap_score: score of every sequence that a complete table lacks.
        reward_noise: "none", "replicate", "gaussian" (the table's variances) or "gaussian:σ".
        motif_matrix: a MEME, JASPAR or CSV file of motif matrices instead of a task; see docs/how-to/your-own-task.md.
        config: a YAML file or a dictionary of settings; `settings` and the arguments here go over it.
        settings: assignments like "reward.beta=3".
        out: run directory; by default `runs/<task>-<method>-<noise>-seed<seed>`.
        deterministic: use only operations that give the same numbers every time, and refuse where there is none.
        resume: continue the run in `out` from its checkpoint, or begin it where there is none yet.
        overwrite: replace the run in `out`.
        track: names of trackers that follow the run: tensorboard, wandb, mlflow.
        profile: write down where the time goes, by stage and by operation, as profile.txt in the run directory.
        listen: called after every training step with its record and the share of the budget spent.
        stop: asked before every training step; True ends the run as Ctrl-C does.
    """
    given = locals()  # the arguments: nothing else has a name yet
    continued = resume and out is not None and not is_vacant(Path(out))
    stored = RunDirectory.open(Path(str(out))).config().model_dump() if continued else None
    name, function = named_task(oracle, address)
    layers = training_layers(given | {"oracle": name and name.removeprefix(PREFIX)}, stored)
    options = LaunchOptions(resume, overwrite, tuple(track), profile, listen, stop)
    beginning = None if pretrained is None else Path(pretrained)
    return Run(launch(layers, function, Path(out) if out else None, options, beginning), oracle, address=address)


def pretrain(
    tasks: Sequence[str] | None = None,
    *,
    noise: float | str | None = None,
    seed: int | None = None,
    steps: int | None = None,
    minutes: float | None = None,
    config: str | Path | Settings | None = None,
    settings: Sequence[str] = (),
    out: str | Path | None = None,
    device: str | None = None,
    deterministic: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    track: Sequence[str] = (),
    listen: Listener | None = None,
    stop: Callable[[], bool] | None = None,
) -> Run:
    """Train one sampler for several tasks with known tables, and return its run; `train(pretrained=…)` goes on from it.

    Its summary holds means over the tasks, zero-shot: given a support set of each, without training on it.

    Args:
        tasks: names of tasks of one alphabet and length.
        steps, minutes: the budget; at most one of them, by default 1,500 steps.

    All others as for `train`; `stochflow config` explains the settings of `pretraining`.

    >>> import tempfile
    >>> tiny = ["model.width=8", "pretraining.support_size=8", "evaluation.num_samples=10"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = pretrain(["tfbind8:ARX", "tfbind8:PAX4"], steps=2, settings=tiny, out=f"{folder}/many")
    ...     run.summary.steps, run.summary.oracle_calls
    (2, 0)
    """
    layers = pretraining_layers(locals())
    options = LaunchOptions(resume, overwrite, tuple(track), False, listen, stop)
    return Run(launch(layers, None, Path(out) if out else None, options))


def build(
    environment: Environment,
    *,
    method: str = "sgfn-kl",
    trajectories: int | None = None,
    steps: int | None = None,
    seed: int = 0,
    settings: Sequence[str] = (),
) -> Experiment:
    """All parts of a run in an environment of your own, ready to train; no run directory is written.

    Args:
        trajectories, steps: the budget, one of them; 32,000 trajectories by default.
        settings: assignments like "reward.beta=3".

    >>> from stochflow import GraphEnvironment, hypergrid
    >>> experiment = build(GraphEnvironment(hypergrid("2,4", slip=0.1)), method="sgfn-kl", trajectories=1024)
    >>> experiment.train().evaluate()["regret"] < 0.05
    True
    """
    given = {"method": method, "seed": seed, "trajectories": trajectories, "steps": steps}
    task = "tfbind8" if environment.is_tree else "hypergrid"  # whose defaults it has
    config = resolve_layers([{"task": task}, *map(parse_assignment, settings), settings_of(TRAIN, given)])
    return build_experiment(config.model_copy(update={"task": environment.name}), environment)


def sample(
    run: str | Path | Run,
    n: int | None = None,
    *,
    oracle: str | Function | None = None,
    oracle_engine: str | None = None,
    address: str | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Designs from a finished run; see `load` and `Run.sample`."""
    return load(run, oracle, oracle_engine, address).sample(n, **options)


def evaluate(
    run: str | Path | Run,
    *,
    noise: float | str | None = None,
    feedback: str | None = None,
    score_samples: bool = False,
    oracle: str | Function | None = None,
    oracle_engine: str | None = None,
    address: str | None = None,
) -> Summary:
    """Every metric of a run, recomputed from its checkpoint; see `load` and `Run.evaluate`."""
    return load(run, oracle, oracle_engine, address).evaluate(
        noise=noise, feedback=feedback, score_samples=score_samples
    )


def exact(
    task: str | None = None,
    *,
    length: int | None = None,
    variable_length: bool = False,
    min_length: int | None = None,
    max_length: int | None = None,
    alphabet: str | None = None,
    constraints: Settings | None = None,
    noise: float | str | None = None,
    deletion: float | None = None,
    duplication: float | None = None,
    feedback: str | None = None,
    beta: float | None = None,
    floor: float | None = None,
    table: str | Path | None = None,
    sequence_column: str | None = None,
    score_column: str | None = None,
    variance_column: str | None = None,
    world: str | None = None,
    gap_score: float | None = None,
    reward_noise: str | None = None,
    motif_matrix: str | Path | None = None,
    settings: Sequence[str] = (),
) -> dict[str, Any]:
    """The attainable optimum of a task or a table under a channel, without any training; of E[R] where rewards differ.

    Returns `task, noise, beta, floor, min_kl, min_tv, attainable_score, log_z_true` and, for sequences of one length
    under uniform slip, `infeasible_share`: per depth, the share of prefixes that no policy can balance. What
    cannot be computed is None: `min_tv` where an automaton takes the place of enumeration, and all but `log_z_true` of
    a task that only bounds log Z, which then has `log_z_error`: by how much it may be too large. Without feedback there
    are also `min_kl_lower_bound, min_kl_gap, num_orders, kl_ignoring_noise, min_kl_with_feedback, value_of_feedback`.

    Args:
        beta, floor: of the reward, by default 3 and 1e-6 for sequences.

    All others as for `train`.
    """
    configured = prepare(exact_layers(locals()))
    with torch_threads(configured.config.threads):  # many small products, which several threads wait for
        return exact_figures(configured.environment, Reward(**configured.config.reward.model_dump()))


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


def status(folder: str | Path) -> Overview:
    """Where the runs and campaigns of a folder stand, also while they go on; the folder may be a run itself.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     status(folder)
    Overview(runs=[], campaigns=[])
    """
    return overview(Path(folder))


def load(
    run: str | Path | Run,
    oracle: str | Function | None = None,
    oracle_engine: str | None = None,
    address: str | None = None,
) -> Run:
    """A run from its directory; with its oracle and where it is called, if new designs shall be scored."""
    if isinstance(run, Run):
        if (oracle, oracle_engine, address) == (None, None, None):
            return run
        run = run.path
    return Run(run, oracle, oracle_engine, address)

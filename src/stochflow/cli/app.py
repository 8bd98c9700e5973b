"""Parse, call, print; no maths."""

import json
import re
import shlex
import sys
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Column, Table
from torch.nn import Module

from stochflow import __version__, api
from stochflow.cli.pretrain import pretrain
from stochflow.cli.render import console, messages, print_summary, progress_line
from stochflow.config.methods import METHODS, Method, other_methods
from stochflow.config.schema import Config
from stochflow.config.yaml import annotated_yaml, parse_assignment, read_yaml
from stochflow.core.errors import ConfigError, StochflowError
from stochflow.core.files import write_atomically
from stochflow.core.plugins import package_of
from stochflow.environments.plugins import load_plugin
from stochflow.environments.registry import GRAPHS, TASKS, make_task, other_tasks
from stochflow.environments.sequences.environment import SequenceEnvironment
from stochflow.environments.sequences.task import Task
from stochflow.experiments import launch
from stochflow.experiments.build import build
from stochflow.experiments.sweep.compare import Comparison
from stochflow.experiments.sweep.compare import compare as compare_methods
from stochflow.experiments.sweep.config import DEFAULT_OUT
from stochflow.experiments.sweep.progress import Board
from stochflow.experiments.sweep.results import Standing
from stochflow.forecasting.command import Request, forecast_file
from stochflow.forecasting.config import ForecastConfig
from stochflow.forecasting.data.datasets import SERIES
from stochflow.forecasting.data.encoder import Columns
from stochflow.runs.directory import PROFILE, format_samples
from stochflow.runs.monitor.throughput import Throughput, throughput_figures, time_text
from stochflow.training.distributed import leads

app = typer.Typer(
    name="stochflow",
    help="Train, sample and exactly judge stochastic generative flow networks.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(pretrain)
_INTERRUPTED = 130
_FEW_LETTERS = 6
_MOST_SHOWN = 4000
NOISE_HELP = (
    "Slip probability in [0, 1), none, dna-synthesis[:rate], one slip per position (0.1,0.2,…), "
    "or a .csv or .yaml confusion matrix."
)
Noise = Annotated[str | None, typer.Option(help=NOISE_HELP)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Assignments = Annotated[
    list[str] | None, typer.Option("--set", metavar="a.b=v", help="Override one setting; repeatable.")
]
ConfigFile = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="YAML file of settings.")]
Track = Annotated[
    list[str] | None,
    typer.Option("--track", metavar="tensorboard|wandb|mlflow", help="Also log to this tracker; repeatable."),
]
RewardNoise = Annotated[
    str | None,
    typer.Option(help="Noise of a measurement: none, replicate, gaussian (by the table) or gaussian:0.1."),
]
VariableLength = Annotated[
    bool, typer.Option("--variable-length", help="Let designs of --table or --oracle differ in length.")
]
MinLength = Annotated[int | None, typer.Option(help="Fewest letters; asks for variable length.")]
MaxLength = Annotated[int | None, typer.Option(help="Most letters; asks for variable length.")]
Deletion = Annotated[float | None, typer.Option(help="Probability that a letter is not written (variable length).")]
Duplication = Annotated[
    float | None, typer.Option(help="Probability that a letter is written twice (variable length).")
]
Forbid = Annotated[str | None, typer.Option(metavar="MOTIF,MOTIF", help="Motifs that must not occur.")]
Gc = Annotated[str | None, typer.Option(metavar="LOW:HIGH", help="Share of G and C, as in 0.4:0.6.")]
Fixed = Annotated[str | None, typer.Option(metavar="....ATG.", help="Fixed letters; a dot is any.")]
MaxHomopolymer = Annotated[int | None, typer.Option(help="Longest run of one letter.")]
Symmetric = Annotated[bool, typer.Option("--symmetric", help="Only reverse-complement palindromes.")]
TableFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="CSV or TSV of sequences and scores instead of a task.")
]
SequenceColumn = Annotated[str | None, typer.Option(help="Column of the sequences in --table.  [default: sequence]")]
ScoreColumn = Annotated[str | None, typer.Option(help="Column of the scores; a,b are replicates.  [default: score]")]
VarianceColumn = Annotated[str | None, typer.Option(help="Column of the variance of a measurement.")]
ScoreSamples = Annotated[
    bool, typer.Option("--score-samples", help="Ask the oracle also for drawn designs that were never paid for.")
]
Deterministic = Annotated[
    bool, typer.Option("--deterministic", help="Only operations that give the same numbers every time.")
]
NAMED = "This is the only way to run code of yours; a file that names it is not enough."
NamedOracle = Annotated[
    str | None,
    typer.Option("--oracle", metavar="PACKAGE.MODULE:FUNCTION", help=f"The run's oracle, for --score-samples. {NAMED}"),
]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")]


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        console.print(f"stochflow {__version__}", highlight=False)
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command()
def train(
    task: Annotated[str | None, typer.Argument(help="Task name; see `stochflow tasks`.  [default: tfbind8]")] = None,
    oracle: Annotated[
        str | None,
        typer.Option(metavar="PACKAGE.MODULE:FUNCTION", help=f"Your own score function instead of a task. {NAMED}"),
    ] = None,
    length: Annotated[int | None, typer.Option(help="Letters of a design of the oracle.")] = None,
    variable_length: VariableLength = False,
    min_length: MinLength = None,
    max_length: MaxLength = None,
    alphabet: Annotated[
        str | None,
        typer.Option(help="dna, rna, protein, or the letters of --oracle or --table.  [default: that of the table]"),
    ] = None,
    oracle_calls: Annotated[
        int | None, typer.Option(help="Budget in designs, or noisy measurements, to pay for.")
    ] = None,
    oracle_cache: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Paid scores to share between runs.  [default: in --out]")
    ] = None,
    score_samples: ScoreSamples = False,
    forbid: Forbid = None,
    gc: Gc = None,
    fixed: Fixed = None,
    max_homopolymer: MaxHomopolymer = None,
    symmetric: Symmetric = False,
    method: Annotated[str | None, typer.Option(help="Method; see `stochflow methods`.  [default: sgfn-kl]")] = None,
    noise: Annotated[str | None, typer.Option(help=NOISE_HELP + "  [default: 0.25]")] = None,
    deletion: Deletion = None,
    duplication: Duplication = None,
    seed: Annotated[int | None, typer.Option(help="Seed of every random generator.  [default: 0]")] = None,
    trajectories: Annotated[int | None, typer.Option(help="Budget in trajectories.  [default: 32000]")] = None,
    steps: Annotated[int | None, typer.Option(help="Budget in training steps.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Budget in minutes.")] = None,
    pretrained: Annotated[
        Path | None,
        typer.Option("--from", metavar="RUN", help="Begin with the sampler of this `pretrain` run; needs --support."),
    ] = None,
    support: Annotated[
        int | None, typer.Option(help="Sequences to measure first, for --from; they are no part of the budget.")
    ] = None,
    table: TableFile = None,
    sequence_column: SequenceColumn = None,
    score_column: ScoreColumn = None,
    variance_column: VarianceColumn = None,
    reward_noise: RewardNoise = None,
    config: ConfigFile = None,
    assignments: Assignments = None,
    out: Annotated[Path | None, typer.Option(help="Run directory.  [default: runs/<task>-<method>-…]")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, mps, …  [default: auto]")] = None,
    deterministic: Deterministic = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out from its checkpoint.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run in --out.")] = False,
    track: Track = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Say where the time went, by stage and operation.")
    ] = False,
) -> None:
    """Train a sampler; Ctrl-C ends cleanly and keeps everything so far."""
    with progress_line("trajectories" if oracle is None and oracle_calls is None else "oracle_calls") as listen:
        run = api.train(
            task,
            oracle=oracle,
            length=length,
            variable_length=variable_length,
            min_length=min_length,
            max_length=max_length,
            alphabet=alphabet,
            oracle_calls=oracle_calls,
            oracle_cache=oracle_cache,
            score_samples=score_samples,
            constraints=_constraints(forbid, gc, fixed, max_homopolymer, symmetric),
            method=method,
            noise=noise,
            deletion=deletion,
            duplication=duplication,
            seed=seed,
            trajectories=trajectories,
            steps=steps,
            minutes=minutes,
            pretrained=pretrained,
            support=support,
            table=table,
            sequence_column=sequence_column,
            score_column=score_column,
            variance_column=variance_column,
            reward_noise=reward_noise,
            config=config,
            settings=assignments or (),
            out=out,
            device=device,
            deterministic=deterministic,
            resume=resume,
            overwrite=overwrite,
            track=track or (),
            profile=profile,
            listen=listen,
        )
    print_summary(run.summary)
    if profile:
        console.print((run.path / PROFILE).read_text(encoding="utf-8"), markup=False, highlight=False, soft_wrap=True)
    _say_unscored(run.summary.scored_fraction)
    if run.summary.status == "interrupted":
        named = "" if oracle is None else f" --oracle {oracle}"
        messages.print(
            f"Stopped early; continue with `stochflow train --resume --out {escape(str(run.path) + named)}`.",
            highlight=False,
            soft_wrap=True,
        )
    console.print(
        f"Run directory: {escape(str(run.path))} (designs in {' and '.join(_sample_files(run.path))})",
        highlight=False,
        soft_wrap=True,
    )


@app.command()
def compare(
    tasks: Annotated[str | None, typer.Option(metavar="A,B", help="Task names, or all.  [default: tfbind8]")] = None,
    oracle: Annotated[
        list[str] | None,
        typer.Option(metavar="PACKAGE.MODULE:FUNCTION", help=f"Your own score function as a task; repeatable. {NAMED}"),
    ] = None,
    methods: Annotated[
        str | None, typer.Option(metavar="A,B", help="Method names, or all.  [default: sgfn-kl,sgfn-db]")
    ] = None,
    noise: Annotated[
        str | None, typer.Option(metavar="A,B", help="Channels, each as for `train`.  [default: 0.25]")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Runs per method, seeds from 0.  [default: 5]")] = None,
    trajectories: Annotated[int | None, typer.Option(help="Budget of every run.  [default: 32000]")] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="YAML file with these options.")] = None,
    assignments: Assignments = None,
    deterministic: Deterministic = False,
    jobs: Annotated[int | None, typer.Option(help="Runs at a time.  [default: one per core]")] = None,
    engine: Annotated[
        str | None, typer.Option(metavar="local|ray", help="Processes here or a Ray cluster.  [default: local]")
    ] = None,
    address: Annotated[str | None, typer.Option(help="Ray cluster to join; started here if not given.")] = None,
    track: Track = None,
    out: Annotated[Path | None, typer.Option(help=f"Folder of the comparison.  [default: {DEFAULT_OUT}]")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare methods over tasks, noise and seeds with equal budgets; the same command again goes on."""
    with Board(messages) as board:
        found = compare_methods(
            _task_list(tasks),
            oracle=oracle or (),
            methods=_list(methods),
            noise=_list(noise),
            seeds=seeds,
            trajectories=trajectories,
            config=config,
            settings=assignments or (),
            deterministic=deterministic,
            jobs=jobs,
            engine=engine,
            address=address,
            track=track or (),
            out=out,
            listen=board.show if messages.is_terminal else None,
        )
    if as_json:
        print(json.dumps(_comparison_as_dict(found), indent=2))
    else:
        _print_comparison(found, out or DEFAULT_OUT)
    for name, error in found.failures.items():
        messages.print(f"[bold red]Failed:[/] {escape(name)}: {escape(error)}", highlight=False, soft_wrap=True)
    if found.interrupted:
        messages.print(
            f"Stopped with {len(found.missing)} of {len(found.missing) + _num_finished(found)} runs to go; go on with "
            f"`stochflow compare --out {escape(shlex.join([str(out or DEFAULT_OUT), *_named(oracle, address)]))}`.",
            highlight=False,
            soft_wrap=True,
        )
        sys.exit(_INTERRUPTED)
    sys.exit(1 if found.failures else 0)


@app.command()
def sample(
    run: RunPath,
    n: Annotated[int, typer.Option("-n", help="Number of designs.")] = 1000,
    style: Annotated[str, typer.Option("--format", metavar="csv|fasta|jsonl", help="Output format.")] = "csv",
    unique: Annotated[bool, typer.Option("--unique", help="Only different sequences.")] = False,
    noise: Noise = None,
    seed: Annotated[int | None, typer.Option(help="Another seed gives other designs.")] = None,
    score_samples: ScoreSamples = False,
    oracle: NamedOracle = None,
    out: Annotated[Path | None, typer.Option(help="File to write; standard output by default.")] = None,
) -> None:
    """Draw designs from a trained run."""
    frame = api.sample(run, n, unique=unique, noise=noise, seed=seed, score_samples=score_samples, oracle=oracle)
    text = format_samples(frame, style)
    if len(frame) < n:
        messages.print(f"Only {len(frame)} different designs were found in many draws.", highlight=False)
    _say_unscored(float(frame["score"].notna().mean()))
    if out is None:
        print(text, end="")
        return
    try:
        write_atomically(out, text)
    except OSError as error:
        raise ConfigError(f"cannot write {out} ({error.strerror}); choose another --out") from None


@app.command()
def evaluate(
    run: RunPath,
    noise: Noise = None,
    score_samples: ScoreSamples = False,
    oracle: NamedOracle = None,
    as_json: AsJson = False,
) -> None:
    """Recompute every metric of a run from its checkpoint."""
    summary = api.evaluate(run, noise=noise, score_samples=score_samples, oracle=oracle)
    _say_unscored(summary.scored_fraction)
    if as_json:
        print(summary.model_dump_json(indent=2))
    else:
        print_summary(summary)


@app.command()
def report(
    path: Annotated[Path, typer.Argument(metavar="RUN_OR_SWEEP", help="Run directory, or a folder that holds runs/.")],
    out: Annotated[Path | None, typer.Option(help="Page to write.  [default: RUN_OR_SWEEP/report.html]")] = None,
) -> None:
    """Write one HTML page about a run or a sweep; it needs no network to be read."""
    print(api.report(path, out))


@app.command()
def doctor(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory, or a folder that holds runs/.")],
    as_json: AsJson = False,
) -> None:
    """Say what is wrong with a run and what to do about it, from its files; the exit code is 0 whatever is found."""
    found = api.doctor(run)
    if as_json:
        print(json.dumps([diagnosis.as_dict() for diagnosis in found], indent=2))
        return
    for diagnosis in found:
        _say(f"{diagnosis.title} ({diagnosis.path})", "bold")
        _say(f"  {diagnosis.verdict}", "green" if diagnosis.healthy else "red")
        for finding in diagnosis.findings:
            _say(f"  {finding.kind}{'' if finding.severity == 'bad' else ' (to be known)'}: {finding.seen}.", "yellow")
            _say(f"    It means: {finding.means}.")
            _say(f"    To do: {finding.remedy}.")
        for problem in diagnosis.problems:
            _say(f"  Files: {problem}")


def _say(text: str, style: str = "") -> None:
    """Text that may come from a stranger's files: nothing in it is obeyed."""
    plain = "".join(letter if letter.isprintable() else " " for letter in text)
    console.print(plain, style=style, markup=False, highlight=False, soft_wrap=True)


@app.command()
def exact(
    task: Annotated[str | None, typer.Argument(help="Task name; see `stochflow tasks`.  [default: tfbind8]")] = None,
    variable_length: VariableLength = False,
    min_length: MinLength = None,
    max_length: MaxLength = None,
    alphabet: Annotated[
        str | None, typer.Option(help="dna, rna, protein, or the letters of --table.  [default: that of the table]")
    ] = None,
    forbid: Forbid = None,
    gc: Gc = None,
    fixed: Fixed = None,
    max_homopolymer: MaxHomopolymer = None,
    symmetric: Symmetric = False,
    noise: Annotated[str | None, typer.Option(help=NOISE_HELP + "  [default: 0.25]")] = None,
    deletion: Deletion = None,
    duplication: Duplication = None,
    beta: Annotated[float | None, typer.Option(help="Reward exponent.  [default: 3, of a graph 1]")] = None,
    floor: Annotated[float | None, typer.Option(help="Smallest reward, after the power.  [default: 1e-6]")] = None,
    table: TableFile = None,
    sequence_column: SequenceColumn = None,
    score_column: ScoreColumn = None,
    variance_column: VarianceColumn = None,
    reward_noise: RewardNoise = None,
    assignments: Assignments = None,
    as_json: AsJson = False,
) -> None:
    """Print the best that ANY policy can do under this noise, without training."""
    result = api.exact(
        task,
        variable_length=variable_length,
        min_length=min_length,
        max_length=max_length,
        alphabet=alphabet,
        constraints=_constraints(forbid, gc, fixed, max_homopolymer, symmetric),
        noise=noise,
        deletion=deletion,
        duplication=duplication,
        beta=beta,
        floor=floor,
        table=table,
        sequence_column=sequence_column,
        score_column=score_column,
        variance_column=variance_column,
        reward_noise=reward_noise,
        settings=assignments or (),
    )
    if as_json:
        print(json.dumps(result, indent=2))
        return
    title = f"Attainable optimum of {result['task']}, β = {result['beta']:g}, floor {result['floor']:g}"
    shown = Table(title=escape(title))
    for heading in ("noise", "min KL (nats)", "TV at that point", r"E\[score]", "log Z"):
        shown.add_column(heading, justify="right")
    row = (f"{result[key]:.{digits}f}" for key, digits in _OPTIMUM_COLUMNS.items())
    shown.add_row(escape(str(result["noise"])), *row)
    console.print(shown)
    if "infeasible_share" in result:
        shares = ", ".join(f"{share:.3f}" for share in result["infeasible_share"])
        console.print(f"Prefixes with a child below the slip floor, by depth: {shares}", highlight=False)


_OPTIMUM_COLUMNS = {"min_kl": 5, "min_tv": 4, "attainable_score": 4, "log_z_true": 4}


@app.command()
def tasks() -> None:
    """List the tasks, those of other packages too."""
    table = Table(
        Column("task", no_wrap=True),
        "alphabet",
        Column("size", justify="right", no_wrap=True),
        Column("measured", justify="right"),
        Column("source", no_wrap=True),
        "what it is",
    )
    missing: dict[str, None] = {}
    for name in TASKS:
        try:
            found = make_task(name)
        except ConfigError as error:  # a package that this task needs is not installed
            table.add_row(name, "", "", "", "", "see below")
            missing[str(error)] = None
            continue
        table.add_row(name, *_task_cells(found, found.source))
    for name, point in other_tasks().items():
        try:
            found = load_plugin(point)
        except ConfigError as error:
            warnings.warn(str(error), stacklevel=1)
            continue
        table.add_row(escape(name), *_task_cells(found, package_of(point)))
    for name, form in GRAPHS.items():
        table.add_row(name, "graph", "", "", "computed", f"States form a graph; in general {escape(form)}.")
    console.print(table)
    for sentence in missing:
        console.print(sentence, highlight=False, markup=False)
    console.print(
        "What was not measured scores 0. Your own: `stochflow train --table FILE` or `--oracle MODULE:FUNCTION`.",
        highlight=False,
    )


@app.command()
def methods() -> None:
    """List the methods, those of other packages too."""
    known = dict(METHODS)
    for name, found in other_methods():
        if isinstance(found, Method):
            known[name] = found
        else:
            warnings.warn(str(found), stacklevel=1)
    names = Column("method", min_width=max(map(len, known)))
    table = Table(names, "what it minimises", "what it may use", "reference")
    for name, method in known.items():
        table.add_row(*map(escape, (name, method.description, method.uses, method.reference)))
    console.print(table)


@app.command()
def forecast(
    data: Annotated[
        str, typer.Argument(help="CSV or parquet with unique_id, ds, y; or a series of `stochflow series`.")
    ],
    horizon: Annotated[int, typer.Option(help="Steps ahead.")] = 12,
    freq: Annotated[str | None, typer.Option(help="Pandas frequency: h, D, W, MS, …  [default: inferred]")] = None,
    season_length: Annotated[int | None, typer.Option(help="Steps of the season.  [default: by frequency]")] = None,
    level: Annotated[str, typer.Option(help="Intervals in per cent.")] = "80,95",
    id_column: Annotated[str, typer.Option(help="Column that names the series.")] = "unique_id",
    time_column: Annotated[str, typer.Option(help="Column of timestamps.")] = "ds",
    target_column: Annotated[str, typer.Option(help="Column of values.")] = "y",
    future: Annotated[str, typer.Option(metavar="A,B", help="Columns known in advance.")] = "",
    past: Annotated[str, typer.Option(metavar="A,B", help="Columns known up to now.")] = "",
    static: Annotated[str, typer.Option(metavar="A,B", help="Columns with one value per series.")] = "",
    future_data: Annotated[Path | None, typer.Option(help="Table with the columns known in advance.")] = None,
    network: Annotated[
        str, typer.Option(metavar="auto|none|mlp|transformer", help="What refines the anchor.")
    ] = "auto",
    seed: Annotated[int, typer.Option(help="Seed of every random generator.")] = 0,
    assignments: Assignments = None,
    out: Annotated[Path, typer.Option(help="CSV of forecasts.")] = Path("forecast.csv"),
    plot: Annotated[bool, typer.Option("--plot", help="Also draw a fan chart, as HTML beside --out.")] = False,
    save: Annotated[Path | None, typer.Option(help="Folder to keep the fitted forecaster in.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")] = False,
) -> None:
    """Forecast time series: medians and intervals as CSV, a fan chart with --plot."""
    if save is not None and save.exists() and not overwrite:
        raise ConfigError(f"--save {save} exists; choose another folder or allow --overwrite")
    settings: dict[str, Any] = {"network": network, "seed": seed}
    for assignment in assignments or ():
        settings.update(parse_assignment(assignment))
    columns = Columns(id_column, time_column, target_column, _names(future), _names(past), _names(static))
    request = Request(
        data,
        horizon,
        out,
        freq,
        season_length,
        columns,
        future_data,
        _percents(level),
        settings,
        plot,
        overwrite,
        command=shlex.join(["stochflow", *sys.argv[1:]]),
    )
    columns_shown = (
        TextColumn("[progress.description]{task.description}"),
        BarColumn(bar_width=16),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[numbers]}"),
    )
    with Progress(*columns_shown, console=messages, transient=True) as progress:
        line = progress.add_task("anchors", total=None, numbers="")
        paces: dict[str, Throughput] = {}

        def show(name: str, step: int, gain: float) -> None:
            label, total = (
                f"{name} network: {gain:+.1%} on held-out origins",
                ForecastConfig.checked(settings).max_steps,
            )
            pace = paces.setdefault(name, Throughput())
            pace.note(step / total, step)
            numbers = "  ".join([f"at most {time_text(pace.left)} left", *throughput_figures(pace, "steps")])
            progress.update(line, description=label, completed=step, total=total, numbers=numbers)

        forecasts, forecaster = forecast_file(request, show)
    for problem in forecaster.problems.values():
        messages.print(f"Left out: {escape(_plain(problem))}", highlight=False, soft_wrap=True)
    if save is not None:
        forecaster.save(save)
    guided = f"{forecaster.network} network on {forecaster.trust:.0%} of the paths"
    factors = sorted({f"{factor:.2f}" for factor in forecaster.stretch.values()}, key=float)
    spread = f"; spread × {' to '.join(dict.fromkeys([factors[0], factors[-1]]))}" if factors != ["1.00"] else ""
    console.print(
        f"{forecasts[id_column].nunique()} series, {horizon} steps ahead; "
        f"{'anchors alone' if forecaster.network == 'none' else guided}{spread}.",
        highlight=False,
    )
    for path in [out, request.page] if plot else [out]:
        console.print(f"Written: {escape(str(path))}", highlight=False, soft_wrap=True)


@app.command()
def series() -> None:
    """List the real time series that ship with the package."""
    table = Table("series", "group", "freq", "horizon", "what it is")
    for info in SERIES.values():
        table.add_row(info.name, info.group, info.freq, str(info.horizon), info.description)
    console.print(table)


@app.command(name="config")
def show_config(
    task: Annotated[str | None, typer.Argument(help="Task name.")] = None,
    method: Annotated[str | None, typer.Option(help="Method name.")] = None,
    config: ConfigFile = None,
    assignments: Assignments = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Also build everything, without training.")] = False,
) -> None:
    """Print every setting, resolved and explained, as YAML; redirect it to a file to start your own."""
    flags = {name: value for name, value in {"task": task, "method": method}.items() if value is not None}
    layers: list[dict[str, Any]] = [read_yaml(config) if config else {}]
    resolved = launch.resolve_config([*layers, *(parse_assignment(text) for text in assignments or ()), flags])
    print(annotated_yaml(resolved), end="")
    if dry_run:
        experiment = build(resolved)
        learner, environment = experiment.trainer.learner, experiment.environment
        modules = {"network": learner.network, "dynamics model": learner.dynamics}
        noise = environment.channel.name if isinstance(environment, SequenceEnvironment) else environment.noise
        _say_dry_run(resolved, modules, f"{learner.device} under the channel '{escape(str(noise))}'")


def _say_dry_run(config: Config, modules: Mapping[str, Module], where: str) -> None:
    for name, module in modules.items():
        messages.print(f"{name}: {sum(p.numel() for p in module.parameters()):,} parameters", highlight=False)
    messages.print(
        f"would train on {where} into {escape(str(launch.default_path(config)))}; nothing was written", highlight=False
    )


def main() -> None:
    """Entry point: errors a user can mend are one sentence on standard error, with exit code 2."""
    warnings.showwarning = _show_warning
    console.quiet = messages.quiet = not leads()  # of the processes that share a run one speaks
    try:
        code = app(standalone_mode=False)
    except StochflowError as error:
        _fail(str(error), error.exit_code)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        hint = f"; see `{context.command_path} --help`" if context else ""
        _fail(f"{error.format_message().rstrip('.')}{hint}", 2)
    except (KeyboardInterrupt, typer.Abort):
        _fail("interrupted", _INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has enough; Python would complain at exit
        sys.exit(0)
    except (MemoryError, RuntimeError) as error:  # torch has no class of its own for it on a CPU
        if not isinstance(error, MemoryError) and "memory" not in str(error):
            raise
        _fail("there is not enough memory for this; choose smaller numbers, or free some", 2)
    except OSError as error:
        _fail(f"{error.filename or 'a file'}: {error.strerror}; free the space or choose another place", 2)
    if code == _INTERRUPTED:  # typer turns Ctrl-C into this code without a word
        _fail("interrupted", _INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int) -> None:
    messages.print(f"[bold red]Error:[/] {escape(_plain(message))}", highlight=False, soft_wrap=True)
    sys.exit(code)


def _plain(text: str) -> str:
    """On one line and without what a terminal would obey, whatever file it was taken from; not endless either."""
    shown = "".join(letter if letter.isprintable() else "�" for letter in " ".join(text.split()))
    return shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}…"


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    messages.print(f"[yellow]Warning:[/] {escape(_plain(str(message)))}", highlight=False, soft_wrap=True)


def _task_cells(task: Task, source: str) -> tuple[str, ...]:
    """A task's row after its name, for rich."""
    letters = task.alphabet.letters if task.num_tokens <= _FEW_LETTERS else f"{task.num_tokens} letters"
    share = "–" if task.num_measured is None else f"{task.num_measured / task.size:.1%}"
    size = f"{task.num_tokens}^{task.length}"
    return escape(letters), size, share, escape(source), escape(task.description)


def _sample_files(path: Path) -> list[str]:
    return [name for name in ("samples.csv", "samples.fasta") if (path / name).exists()]


def _list(text: str | None) -> list[str] | None:
    return None if text is None else list(_names(text))


def _named(oracles: list[str] | None, address: str | None) -> list[str]:
    """What must be named again to go on with a comparison."""
    named = [part for name in oracles or () for part in ("--oracle", name)]
    return named if address is None else [*named, "--address", address]


def _task_list(text: str | None) -> list[str] | None:
    """Task names; a comma before a digit belongs to a name such as bits:120,8."""
    return None if text is None else [name for part in re.split(r",(?!\s*\d)", text) if (name := part.strip())]


def _num_finished(found: Comparison) -> int:
    return int((found.frame["status"] == "finished").sum())


def _comparison_as_dict(found: Comparison) -> dict[str, Any]:
    return {
        "out": str(found.path),
        "specification": found.spec.model_dump(mode="json"),
        "standings": [asdict(standing) for standing in found.standings],
        "failed": found.failures,
        "missing": found.missing,
    }


def _print_comparison(found: Comparison, out: Path) -> None:
    for standing in found.standings:
        console.print(_standing_table(standing, found))
        console.print(escape(standing.verdict), highlight=False, soft_wrap=True)
        console.print()
    console.print(
        f"{_num_finished(found)} runs in {escape(str(out))} (every run in results.csv and results.parquet)",
        highlight=False,
        soft_wrap=True,
    )


_MEDIANS = {"tv": ("TV", 3), "num_modes": ("modes", 0), "cpu_seconds": ("CPU s", 0)}


def _standing_table(standing: Standing, found: Comparison) -> Table:
    """Methods by median, best first; the winner, if there is one, in bold with a star."""
    title = f"{standing.task}, noise {standing.noise}, {found.spec.trajectories:,} trajectories; medians over seeds"
    table = Table(title=escape(title))
    table.add_column("method", no_wrap=True)
    for heading in (standing.metric, standing.interval, *(heading for heading, _ in _MEDIANS.values()), "runs"):
        table.add_column(heading, justify="right", no_wrap=True)
    rows = found.frame[(found.frame["task"] == standing.task) & (found.frame["status"] == "finished")]
    # as text, which every channel of a column becomes as soon as one of them has no number
    rows = rows[rows["noise"].astype("str") == str(standing.noise)]
    medians = rows.groupby("method")[list(_MEDIANS)].median()
    for entry in standing.entries:
        won = entry.method == standing.winner
        cells = ["–"] * (2 + len(_MEDIANS))
        if entry.median is not None:
            cells = [f"{entry.median:.4f}", f"{entry.low:.4f}–{entry.high:.4f}"]
            found_medians = medians.loc[entry.method]
            cells += [
                "–" if pd.isna(found_medians[name]) else f"{found_medians[name]:.{digits}f}"
                for name, (_, digits) in _MEDIANS.items()
            ]
        name = escape(entry.method) + (" ★" if won else "")
        table.add_row(name, *cells, f"{entry.runs}/{entry.planned}", style="bold" if won else None)
    return table


def _names(listed: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in listed.split(",") if name.strip())


def _constraints(
    forbid: str | None, gc: str | None, fixed: str | None, max_homopolymer: int | None, symmetric: bool
) -> dict[str, Any]:
    """The rules that were given, as in the config."""
    rules = {
        "forbid": _list(forbid),
        "gc": None if gc is None else _window(gc),
        "fixed": fixed,
        "max_homopolymer": max_homopolymer,
        "symmetric": symmetric or None,
    }
    return {name: value for name, value in rules.items() if value is not None}


def _window(text: str) -> list[float]:
    try:
        low, high = (float(share) for share in text.split(":"))
    except ValueError:
        raise ConfigError(f"--gc takes LOW:HIGH, not '{text}'; for example --gc 0.4:0.6") from None
    return [low, high]


def _percents(listed: str) -> tuple[float, ...]:
    try:
        return tuple(float(percent) for percent in _names(listed))
    except ValueError:
        raise ConfigError(f"--level {listed} is no list of per cents; write for example 80,95") from None


def _say_unscored(scored: float) -> None:
    if scored < 1.0:
        messages.print(
            f"{1.0 - scored:.1%} of the drawn designs were never paid for and have no score (NaN); "
            "--score-samples asks the oracle for them.",
            highlight=False,
            soft_wrap=True,
        )


if __name__ == "__main__":
    main()

"""Commands that look: at runs, at tasks and methods, at settings, and at the best that can be reached."""

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from stochflow.cli.parameters import takes
from stochflow.cli.render import console, listing, messages, print_optimum, print_summary, say, say_unscored
from stochflow.config.methods import METHODS, Method, other_methods
from stochflow.config.options import AS_JSON, CONFIG, EVALUATE, EXACT, RUN, SAMPLE, Option, arguments_of, settings_of
from stochflow.config.yaml import annotated_yaml
from stochflow.core.errors import ConfigError
from stochflow.core.extras import extra
from stochflow.core.files import write_atomically
from stochflow.core.plugins import package_of
from stochflow.core.signals import importing
from stochflow.environments.registry import FORMS, GRAPHS, TASKS, TaskEntry, load_task, other_tasks
from stochflow.environments.settings import check_settings, exact_layers, resolve_layers, written_layers

if TYPE_CHECKING:
    from stochflow.config.schema import Config
    from stochflow.environments.sequences.task import Task

_FEW_LETTERS = 6
_RUN_OR_SWEEP = "Run directory, or a folder that holds runs/."
_DRY_RUN = Option("dry_run", bool, "Also build everything, without training.", default=False)


@takes(*SAMPLE)
def sample(**given: Any) -> None:
    """Draw designs from a trained run."""
    arguments = arguments_of(SAMPLE, given)
    style, out = arguments.pop("style"), arguments.pop("out")
    with importing():
        from stochflow import api
        from stochflow.experiments.draws import NUM_DESIGNS
        from stochflow.runs.directory import format_samples
    frame = api.sample(**arguments)
    text = format_samples(frame, style)
    if len(frame) < (given["best"] or given["n"] or NUM_DESIGNS):
        messages.print(f"Only {len(frame)} different designs were found in many draws.", highlight=False)
    say_unscored(float(frame["score"].notna().mean()))
    if out is None:
        print(text, end="")
        return
    try:
        write_atomically(out, text)
    except OSError as error:
        raise ConfigError(f"cannot write {out} ({error.strerror}); choose another --out") from None


@takes(*EVALUATE, AS_JSON)
def evaluate(**given: Any) -> None:
    """Recompute every metric of a run from its checkpoint."""
    with importing():
        from stochflow import api
    summary = api.evaluate(**arguments_of(EVALUATE, given))
    say_unscored(summary.scored_fraction)
    if given["as_json"]:
        print(summary.model_dump_json(indent=2))
    else:
        print_summary(summary)


def report(
    path: Annotated[Path, typer.Argument(metavar="RUN_OR_SWEEP", help=_RUN_OR_SWEEP)],
    out: Annotated[Path | None, typer.Option(help="Page to write.  [default: RUN_OR_SWEEP/report.html]")] = None,
) -> None:
    """Write one HTML page about a run or a sweep; it needs no network to be read."""
    with importing():
        from stochflow import api
    print(api.report(path, out))


@takes(replace(RUN, help=_RUN_OR_SWEEP), AS_JSON)
def doctor(run: Path, as_json: bool = False) -> None:
    """Say what is wrong with a run and what to do about it, from its files; the exit code is 0 whatever is found."""
    with importing():
        from stochflow import api
    found = api.doctor(run)
    if as_json:
        print(json.dumps([diagnosis.as_dict() for diagnosis in found], indent=2))
        return
    for diagnosis in found:
        say(f"{diagnosis.title} ({diagnosis.path})", "bold")
        say(f"  {diagnosis.verdict}", "green" if diagnosis.healthy else "red")
        for finding in diagnosis.findings:
            say(f"  {finding.kind}{'' if finding.severity == 'bad' else ' (to be known)'}: {finding.seen}.", "yellow")
            say(f"    It means: {finding.means}.")
            say(f"    To do: {finding.remedy}.")
        for problem in diagnosis.problems:
            say(f"  Files: {problem}")


@takes(*EXACT, AS_JSON)
def exact(**given: Any) -> None:
    """Print the best that ANY policy can do under this noise, without training."""
    arguments = arguments_of(EXACT, given)
    check_settings(resolve_layers(exact_layers(arguments)))
    with importing():
        from stochflow import api
    result = api.exact(**arguments)
    if given["as_json"]:
        print(json.dumps(result, indent=2))
    else:
        print_optimum(result)


def tasks() -> None:
    """List the tasks, those of other packages too."""
    from rich.table import Column

    table = listing(Column("task", no_wrap=True), Column("letters", no_wrap=True), "what it is")
    missing: dict[str, None] = {}
    for name, entry in TASKS.items():
        if isinstance(entry, TaskEntry) and entry.extra is not None:
            try:
                extra(*entry.extra)
            except ConfigError as error:
                table.add_row(name, "", "see below")
                missing[str(error)] = None
                continue
        found = entry if isinstance(entry, TaskEntry) else entry()
        table.add_row(name, *_task_cells(found, found.source))
    for name, point in other_tasks().items():
        try:
            found = load_task(point)
        except ConfigError as error:
            warnings.warn(str(error), stacklevel=1)
            continue
        table.add_row(escape(name), *_task_cells(found, package_of(point)))
    for name in GRAPHS:
        form = escape(FORMS[name.partition(":")[0]])
        table.add_row(name, "graph", f"States form a graph; in general {form}.")
    console.print(table)
    for sentence in missing:
        console.print(sentence, highlight=False, markup=False)
    console.print(
        "What a shipped table lacks scores 0. Your own: `stochflow train --table FILE` or `--oracle MODULE:FUNCTION`.",
        highlight=False,
    )


def _task_cells(task: "TaskEntry | Task", source: str) -> tuple[str, str]:
    """A task's row after its name, for rich."""
    letters = task.letters if isinstance(task, TaskEntry) else task.alphabet.letters
    shown = letters if letters is not None and len(letters) <= _FEW_LETTERS else str(task.num_tokens)
    size = task.num_tokens**task.length
    share = "" if task.num_measured is None else f", {task.num_measured / size:.1%} measured"
    about = f"{task.description.rstrip('.')}; {task.num_tokens}^{task.length} designs{share}; {source}."
    return escape(shown), escape(about)


def methods() -> None:
    """List the methods, those of other packages too."""
    from rich.table import Column

    known = dict(METHODS)
    for name, found in other_methods():
        if isinstance(found, Method):
            known[name] = found
        else:
            warnings.warn(str(found), stacklevel=1)
    table = listing(Column("method", no_wrap=True), "what it minimises, what it may use, and where it is from")
    for name, method in known.items():
        table.add_row(escape(name), escape(f"{method.description} Uses: {method.uses}. From: {method.reference}."))
    console.print(table)


@takes(*CONFIG, _DRY_RUN)
def show_config(**given: Any) -> None:
    """Print every setting, resolved and explained, as YAML; redirect it to a file to start your own."""
    arguments = arguments_of(CONFIG, given)
    resolved = resolve_layers([*written_layers(arguments), settings_of(CONFIG, arguments)])
    check_settings(resolved)
    print(annotated_yaml(resolved), end="")
    if given["dry_run"]:
        _dry_run(resolved)


def _dry_run(config: "Config") -> None:
    """Build everything and say how large it is."""
    with importing():
        from stochflow.experiments.build import build
        from stochflow.experiments.launch import default_path
    experiment = build(config)
    learner, channel = experiment.trainer.learner, experiment.environment.channel_name
    for name, module in {"network": learner.network, "dynamics model": learner.dynamics}.items():
        messages.print(f"{name}: {sum(p.numel() for p in module.parameters()):,} parameters", highlight=False)
    messages.print(
        f"would train on {learner.device} under the channel '{escape(channel)}' into "
        f"{escape(str(default_path(config)))}; nothing was written",
        highlight=False,
    )

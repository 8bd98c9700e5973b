"""The report of a run or a sweep as one HTML page."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import median

from stochflow.config.yaml import dump_yaml
from stochflow.evaluation.bootstrap import median_interval
from stochflow.reports import figures
from stochflow.reports.commands import compare_command, train_command
from stochflow.reports.diagnosis import Diagnosis, diagnosis
from stochflow.reports.groups import MEASURES, Group, counted_in, grouped, measures_of
from stochflow.reports.html import markup
from stochflow.reports.html.markup import Charts, Column
from stochflow.reports.html.page import assemble, check_target, made_with, plotly_js, write_page
from stochflow.reports.reader import RunRecord, Source, read_source
from stochflow.reports.run_section import detail

REPORT = "report.html"
# characters of figures on one page, beside the five megabytes of plotly.js
_MAX_FIGURES = 700_000
_MAX_FINDINGS = 100
_AS_GIVEN = -1  # sort column of a table that keeps its order


def write_report(path: Path, out: Path | None = None) -> Path:
    """Write the report of a run or a sweep; returns its path."""
    target = path / REPORT if out is None else out
    check_target(target)
    plotly = plotly_js()
    source = read_source(path)
    title, body, charts = sweep_body(source) if source.is_sweep else run_body(source.runs[0])
    write_page(target, assemble(title, body, charts.figures, plotly))
    return target


def run_body(run: RunRecord) -> tuple[str, str, Charts]:
    """Title, body and figures of the page about one run."""
    charts = Charts()
    section = detail(run, charts, "run")
    parts = [
        markup.heading(run.title, 1),
        markup.paragraph(_spent(run)),
        markup.notes([*run.problems, *section.problems]),
        section.tiles,
        markup.heading("What the doctor says"),
        _diagnosis(run),
        markup.heading("Learning curves"),
        _curves([Group(f"noise {run.noise}", run.config.method, (run,))], charts),
        section.body,
        markup.heading("Make it again"),
        markup.code(train_command(run.config, f"runs/{run.name}")),
        _versions(run),
        markup.folded("Every setting", markup.code(dump_yaml(run.config))),
    ]
    return run.title, "\n".join(parts), charts


def sweep_body(source: Source) -> tuple[str, str, Charts]:
    """Title, body and figures of the page about a sweep."""
    charts = Charts()
    groups = grouped(source.runs)
    ended = sum(run.summary is not None for run in source.runs)
    title = f"Sweep {source.path.resolve().name}"
    problems = source.problems + [f"{run.name}: {problem}" for run in source.runs for problem in run.problems]
    parts = [
        markup.heading(title, 1),
        markup.paragraph(f"{len(source.runs)} runs, {ended} of them ended: {_extent(groups)}."),
        markup.notes(problems),
        _headline(groups, charts),
        markup.heading("What the doctor says"),
        _diagnoses(source.runs),
        markup.heading("Learning curves"),
        _curves(groups, charts),
        markup.heading("One run in detail"),
        _details(groups, charts),
        markup.heading("Make it again"),
        _commands(source),
        _versions(source.runs[0]),
    ]
    return title, "\n".join(parts), charts


def _headline(groups: list[Group], charts: Charts) -> str:
    """Bar chart and table of the first measure that a finished run has."""
    measure = next((found for found in MEASURES if any(group.values(found.key) for group in groups)), None)
    if measure is None:
        return markup.paragraph("No run has ended yet, so there is nothing to compare.")
    rows = []
    for group in groups:
        values = group.values(measure.key)
        if values:
            low, high = median_interval(values)
            interval = f"{markup.shown(low)} to {markup.shown(high)}"
            rows.append((group.method, group.condition, len(values), median(values), interval))
    columns = [Column("method", is_text=True), Column("condition", is_text=True), Column("seeds")]
    columns += [Column(measure.title.lower(), digits=3), Column("interval", is_text=True)]
    rows.sort(key=lambda row: -row[3])
    listed = markup.table(columns, rows, 3, f"{measure.title} by method and noise")
    return charts.place(figures.regret_bars(groups, measure)) + listed


def _curves(groups: list[Group], charts: Charts) -> str:
    """Learning curves against trajectories or oracle calls, and seconds; one measure and condition at a time."""
    measures = measures_of([run for group in groups for run in group.runs])
    if not measures:
        return markup.paragraph("Nothing was logged that could be drawn.")
    methods = list(dict.fromkeys(group.method for group in groups))
    conditions = list(dict.fromkeys(group.condition for group in groups))
    rows = []
    for condition, measure in product(conditions, measures):
        members = [group for group in groups if group.condition == condition]
        axes = (counted_in([run for group in members for run in group.runs]), "seconds")
        rows.append(charts.row(figures.learning_curves(members, measure, along, methods) for along in axes))
    lists = {"Condition": conditions, "Measure": [measure.title for measure in measures]}
    several = any(len(group.runs) > 1 for group in groups)
    words = "Lines are medians over the seeds that got that far, bands reach from the lowest to the highest. "
    seconds = "Seconds count training alone, without evaluation."
    return markup.paragraph((words if several else "") + seconds) + markup.choices("curves", lists, rows)


def _details(groups: list[Group], charts: Charts) -> str:
    """The median run of each group, one visible at a time, up to the size limit of the page."""
    parts: list[str] = []
    for number, group in enumerate(groups):
        if parts and charts.size > _MAX_FIGURES:
            break
        run = group.typical()
        found = detail(run, charts, f"detail{number}")
        spent = markup.paragraph(f"{run.name}: {_spent(run)}")
        parts.append(spent + markup.notes(found.problems) + found.tiles + found.body)
    words = (
        "For each method and condition, the run with the median regret, or J where there is no regret (of two in the "
        "middle, the better one)."
    )
    if len(parts) < len(groups):
        words += f" {len(parts)} of {len(groups)} fit here; each of the others has its own page: stochflow report RUN."
    labels = [group.label for group in groups[: len(parts)]]
    return markup.paragraph(words) + markup.choices("details", {"Run": labels}, parts)


def _diagnosis(run: RunRecord) -> str:
    """Diagnosis of one run: its summary and a table of findings."""
    found = _diagnosed(run)
    columns = [Column(name, is_text=True) for name in ("finding", "weight", "seen", "which means", "remedy")]
    rows = [(one.kind, one.severity, one.seen, one.means, one.remedy) for one in found.findings]
    return markup.paragraph(found.verdict) + (markup.table(columns, rows, _AS_GIVEN, "Findings") if rows else "")


def _diagnoses(runs: Sequence[RunRecord]) -> str:
    """Bad findings of all runs of a sweep, worst run first, and the number of notes."""
    found = sorted(map(_diagnosed, runs), key=lambda one: one.rank)
    bad = [(one.path.name, finding) for one in found for finding in one.findings if finding.severity == "bad"]
    num_notes = sum(len(one.findings) for one in found) - len(bad)
    sick = sum(not one.healthy for one in found)
    words = f"Something is wrong with {sick} of {len(found)} runs." if sick else "Nothing is wrong with any run."
    if num_notes:
        words += f" There are {num_notes} notes too, which stochflow doctor lists."
    columns = [Column(name, is_text=True) for name in ("run", "finding", "seen", "remedy")]
    rows = [(name, one.kind, one.seen, one.remedy) for name, one in bad[:_MAX_FINDINGS]]
    more = "" if len(bad) <= _MAX_FINDINGS else markup.paragraph(f"The first {_MAX_FINDINGS} of {len(bad)} are listed.")
    return markup.paragraph(words) + (markup.table(columns, rows, _AS_GIVEN, "Findings") if rows else "") + more


def _diagnosed(run: RunRecord) -> Diagnosis:
    """Diagnosis of a run, with the same path in its commands as elsewhere on the page."""
    return diagnosis(replace(run, path=Path("runs") / run.name))


def _commands(source: Source) -> str:
    """One command for all runs where it exists, and one command per run."""
    whole = compare_command([run.config for run in source.runs], f"runs/{source.path.resolve().name}")
    each = "\n".join(train_command(run.config, f"runs/{run.name}") for run in source.runs)
    words = "No single comparison has all these runs; each has its own command."
    return (markup.paragraph(words) if whole is None else markup.code(whole)) + markup.folded(
        "One command per run", markup.code(each)
    )


def _spent(run: RunRecord) -> str:
    """Status of the run, and the budget that it has used."""
    status = "unfinished" if run.summary is None else run.summary.status
    counts = [
        (run.latest(name), unit) for name, unit in (("trajectories", "trajectories"), ("oracle_calls", "scores paid"))
    ]
    parts = [f"{count:,.0f} {unit}" for count, unit in counts if count is not None]
    seconds = run.latest("seconds")
    parts += [f"{seconds:.1f} seconds of training"] if seconds is not None else []
    return f"{status.capitalize()}: {', '.join(parts)}." if parts else f"{status.capitalize()}."


def _extent(groups: list[Group]) -> str:
    methods = {group.method for group in groups}
    conditions = {group.condition for group in groups}
    return f"{len(methods)} method{'s' * (len(methods) > 1)}, {len(conditions)} condition{'s' * (len(conditions) > 1)}"


def _versions(run: RunRecord) -> str:
    trained = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    return markup.paragraph(f"Trained with: {trained or 'not known'}.") + markup.paragraph(made_with())

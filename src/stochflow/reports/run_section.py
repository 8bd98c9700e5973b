"""Section of one run: headline figures, exact results of its checkpoint, curves and designs."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from stochflow.environments.registry import PRETRAINING_TASK, names_graph
from stochflow.reports import figures
from stochflow.reports.checkpoint import ExactResults, exact_results
from stochflow.reports.evidence import evidence_section
from stochflow.reports.groups import MEASURES
from stochflow.reports.html import markup
from stochflow.reports.html.markup import Charts, Column
from stochflow.reports.logo import logo_svg, random_information
from stochflow.reports.reader import RunRecord

NUM_DESIGNS = 100
# largest number of channel entries over all positions; above it only their average is drawn
_MAX_ENTRIES = 4096


@dataclass(frozen=True)
class Detail:
    """Markup of one run: headline figures, and the sections below the learning curves."""

    tiles: str
    body: str
    problems: tuple[str, ...]


def detail(run: RunRecord, charts: Charts, key: str) -> Detail:
    """Markup of a run; `key` makes the ids of its controls unique on the page."""
    results = exact_results(run)
    sections = [
        _noise(run),
        evidence_section(run, charts),
        _probabilities(run, results, charts),
        _terms(run, charts),
        _world(results, charts, key),
    ]
    sections.append(_designs(run, results))
    return Detail(_tiles(run), "\n".join(sections), results.problems)


def _tiles(run: RunRecord) -> str:
    """Headline figures; J stands in for those that nobody can compute."""
    meanings = {measure.key: measure.meaning for measure in MEASURES}
    divergence = "Divergence of what is drawn from what should be drawn; regret plus the next."
    score = "Mean score of what is drawn, beside that of the best policy under this noise."
    rows = (
        ("regret", "Regret", "nats", meanings["regret"]),
        ("kl", "KL to the target", "nats", divergence),
        ("min_kl", "Smallest KL", "nats", "What the noise alone costs: no policy gets below it."),
        ("tv", "Total variation", "", meanings["tv"]),
        ("j", "J", "nats", "log Z minus the KL to the target, estimated from draws; higher is better."),
    )
    without = run.latest("j") is not None
    tiles = [
        markup.tile(title, markup.shown(run.latest(key)), _unit(run, key, unit), text)
        for key, title, unit, text in rows
        if run.latest(key) is not None or not without
    ]
    modes, best = run.latest("num_modes"), run.latest("attainable_score")
    attainable = "" if best is None else f"of {markup.shown(best)} attainable"
    tiles.append(markup.tile("Expected score", markup.shown(run.latest("mean_score")), attainable, score))
    text = "Good designs among those drawn that differ from each other in several letters."
    tiles.append(markup.tile("Modes found", "–" if modes is None else f"{modes:.0f}", "", text))
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _unit(run: RunRecord, key: str, unit: str) -> str:
    """The unit of a figure, with its standard error where it is estimated."""
    error = run.latest(f"{key}_se")
    return unit if error is None else f"± {error:.2g} {unit}"


def _noise(run: RunRecord) -> str:
    """Target of the method under reward noise; empty without noise."""
    noise = run.config.reward_noise
    if noise == "none":
        return ""
    mean = None if run.summary is None else run.summary.reward_mean
    words = f"Measurements are noisy ({noise}). The target is E[R], and all that is exact here is measured against it"
    aim = "" if mean is None else f"; this method converges to {mean}"
    return markup.paragraph(f"{words}{aim}.")


def _probabilities(run: RunRecord, results: ExactResults, charts: Charts) -> str:
    shown = []
    words = ""
    distribution = results.distribution
    if distribution is not None:
        shown.append(figures.probability_scatter(distribution))
        if distribution.unbalanced is not None:
            shown.append(figures.feasibility(distribution.unbalanced))
        elif run.config.task == PRETRAINING_TASK:
            words = "Every point is a sequence of one of the tasks; log R is less log Z of its task."
        elif names_graph(run.config.task):
            words = "What is out of reach is not drawn: a state of a graph has several ways into it."
        else:
            words = "What is out of reach is not drawn: the matrix of this channel has no inverse to tell it by."
    elif len(run.samples):
        shown.append(figures.sample_scatter(run.samples))
    if not shown:
        words = "There is neither a sampler that can be restored nor a design with its probability."
    return markup.heading("Probability and reach") + charts.row(shown) + (markup.paragraph(words) if words else "")


def _terms(run: RunRecord, charts: Charts) -> str:
    shown = figures.term_curves(run.metrics)
    return markup.heading("Terms of training") + charts.row(shown) if shown else ""


def _world(results: ExactResults, charts: Charts, key: str) -> str:
    channels = results.channels
    if channels is None:
        return ""
    num_positions = len(channels.truth) if channels.truth.size <= _MAX_ENTRIES else 0
    names = ["averaged over all", *(str(place + 1) for place in range(num_positions))]
    maps = [figures.channel_maps(channels, place) for place in (None, *range(num_positions))]
    rows = [charts.row(three, three=True) for three in maps]
    words = "What the world does with each intended letter, and what the sampler has learned of it."
    if channels.learned is None:
        words = "What the world does with each intended letter. This method never asks, so nothing was learned of it."
    shown = markup.choices(f"{key}-position", {"Position": names}, rows)
    return markup.heading("The channel") + markup.paragraph(words) + shown


def _designs(run: RunRecord, results: ExactResults) -> str:
    top = run.samples.head(NUM_DESIGNS)
    title = markup.heading("Best designs")
    if not len(top):
        return title + markup.paragraph("No designs have been drawn yet.")
    columns = [Column("sequence", is_text=True, is_mono=True), *map(Column, ("score", "log R", "log P", "drawn"))]
    rows = zip(
        top["sequence"], top["score"], top["log_reward"], top["log_prob"], (int(n) for n in top["drawn"]), strict=True
    )
    words = f"The {len(top)} best of {len(run.samples)} different designs, and how often each was drawn."
    if run.config.feedback == "none":
        words += " They are what came; under noise samples.csv has the orders and what will probably come of each."
    return (
        title
        + markup.paragraph(words + tie_words(run.samples["score"], len(top)))
        + ("" if names_graph(run.config.task) else _logo(list(top["sequence"]), results))
        + markup.table(columns, rows, 1, "Best designs")
    )


def tie_words(scores: pd.Series[float], num: int) -> str:
    """What to say where some of the `num` best have no better score than others that are left out; else nothing.

    Args:
        scores: of all designs, best first.

    >>> tie_words(pd.Series([3.0, 1.0, 1.0, 1.0]), 2)
    ' The last 1 of them is chosen at random among 3 designs with the same score.'
    """
    least = scores.iloc[num - 1]
    num_better, num_tied = int((scores > least).sum()), int((scores == least).sum())
    num_chosen = num - num_better
    if num_chosen == num_tied:
        return ""
    which = "They are" if num_better == 0 else f"The last {num_chosen} of them {'is' if num_chosen == 1 else 'are'}"
    return f" {which} chosen at random among {num_tied} designs with the same score."


def _logo(sequences: list[str], results: ExactResults) -> str:
    if len({len(sequence) for sequence in sequences}) > 1:
        return markup.paragraph("There is no logo, because the designs have different lengths.")
    num_letters = results.num_letters or len(set("".join(sequences)))
    words = (
        f"Sequence logo of the {len(sequences)} best designs: the height of a position is the information in it, "
        f"log2 of {num_letters} letters minus the entropy; each design counts once. As many random designs would show "
        f"about {random_information(len(sequences), num_letters):.2g} bits."
    )
    return logo_svg(sequences, num_letters) + markup.paragraph(words)

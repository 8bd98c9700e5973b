"""The page of a campaign as one HTML file."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from stochflow.campaigns.goals import SCORE
from stochflow.campaigns.history import History
from stochflow.campaigns.proposal import CHECKING
from stochflow.campaigns.report import figures
from stochflow.campaigns.report.design_map import design_map, distance_bars
from stochflow.campaigns.report.noise_cost import NoiseCost, noise_bars, noise_costs
from stochflow.campaigns.report.plate_maps import MAX_PLATES, plate_figures, plate_maps, score_range
from stochflow.campaigns.report.rounds import Round, rank_correlation, round_name, rounds_of
from stochflow.campaigns.settings import CampaignSettings
from stochflow.campaigns.status import status_of
from stochflow.reports.html import markup
from stochflow.reports.html.markup import Charts, Column
from stochflow.reports.html.page import assemble, check_target, made_with, plotly_js, write_page
from stochflow.reports.logo import logo_svg

NUM_BEST = 50
_MAX_LOGO_LENGTH, _MAX_LOGOS = 200, 20
_AS_GIVEN = -1  # sort column of a table that keeps its order


def write_campaign_page(history: History, settings: CampaignSettings, name: str, out: Path) -> Path:
    """Write the page of a campaign; returns its path."""
    check_target(out)
    plotly = plotly_js()
    title, body, charts = campaign_body(history, settings, name)
    write_page(out, assemble(title, body, charts.figures, plotly))
    return out


def campaign_body(history: History, settings: CampaignSettings, name: str) -> tuple[str, str, Charts]:
    """Title, body and figures of the page."""
    charts, title = Charts(), f"Campaign {name}"
    rounds = rounds_of(history, settings)
    parts = [
        markup.heading(title, 1),
        markup.paragraph(_about(settings)),
        _tiles(history, settings),
        markup.heading("Rounds"),
        _rounds(rounds, settings, charts),
        markup.heading("Predictions"),
        _predictions(rounds, charts),
        markup.heading("The next plate"),
        _next_plate(history, rounds, settings, charts),
        markup.heading("Plates"),
        _plates(history, settings, charts),
        markup.heading("Logos"),
        _logos(rounds, settings),
        markup.heading("Noise"),
        _noise(history, rounds, settings, charts),
        markup.heading("The best"),
        _best(rounds),
        markup.paragraph(made_with()),
    ]
    return title, "\n".join(parts), charts


def _about(settings: CampaignSettings) -> str:
    goal = ", ".join([str(settings.goal), *map(str, settings.goal.thresholds)])
    size = settings.space.size
    counted = "" if size is None else f" {size:,} of them can be ordered."
    return (
        f"Designs of {settings.length} letters of {settings.space.alphabet.letters}; goal: {goal}; noise between order "
        f"and outcome: {settings.noise}; {settings.batch} wells a round.{counted}"
    )


def _tiles(history: History, settings: CampaignSettings) -> str:
    found = status_of(history, settings)
    tiles = [
        ("Best score", markup.shown(found.best_score), found.best or "", "The measured sequence nearest to the goal."),
        ("Measured", f"{found.num_measured:,}", "", "Sequences with a score, ordered here or not."),
        ("Ordered", f"{found.num_ordered:,}", f"in {found.num_asks} asks", "Designs that were asked for."),
        ("Pending", f"{found.num_pending:,}", "", "Orders without a result: the next plate."),
        ("Failed", f"{found.num_failed:,}", "", "Orders without a score because their wells failed."),
    ]
    return f'<div class="tiles">{"".join(markup.tile(*tile) for tile in tiles)}</div>'


def _rounds(rounds: Sequence[Round], settings: CampaignSettings, charts: Charts) -> str:
    """Scores by round, further properties, and a table."""
    if not rounds:
        return markup.paragraph("Nothing was told and nothing was asked for yet.")
    drawn = [figures.progress(rounds, settings.goal)]
    bounds = [threshold for threshold in settings.goal.thresholds if threshold.name != SCORE]
    drawn += [figures.property_scatter(rounds, threshold) for threshold in bounds]
    names = [
        "orders",
        "measured",
        "failed",
        "pending",
        "mean",
        "best",
        "mean predicted",
        "inside 80 %",
        "rank correlation",
    ]
    columns = [Column("round", is_text=True), *map(Column, names)]
    rows = [_round_row(each) for each in rounds]
    return charts.row(drawn) + markup.table(columns, rows, _AS_GIVEN, "Rounds")


def _round_row(each: Round) -> list[str | int | float]:
    counts = [len(each.orders), len(each.outcomes), each.count("failed"), each.count("pending")]
    best = each.best
    scores = [each.outcomes["score"].mean(), float("nan") if best is None else best["score"]]
    checks = [each.orders["predicted"].mean(), each.checked["inside"].mean(), rank_correlation(each.checked)]
    return [round_name(each.number), *counts, *map(float, scores), *map(float, checks)]


def _predictions(rounds: Sequence[Round], charts: Charts) -> str:
    checked = pd.concat([each.checked for each in rounds]) if rounds else pd.DataFrame()
    if checked.empty:
        return markup.paragraph("No predicted design has been measured as it was ordered yet.")
    words = f"{int(checked['inside'].sum())} of {len(checked)} measurements lie inside their 80 % intervals."
    random = checked[checked["why"] == CHECKING]
    if len(random):
        words += (
            f" Of designs drawn at random to check predictions it is {int(random['inside'].sum())} of {len(random)}."
        )
    return markup.paragraph(words) + charts.row(
        [figures.predicted_against_measured(rounds), figures.calibration(rounds)]
    )


def _next_plate(history: History, rounds: Sequence[Round], settings: CampaignSettings, charts: Charts) -> str:
    """The map, and how far pending orders are from what is known."""
    known, pending = _known(rounds, settings.length), list(history.pending["design"])
    alphabet = settings.space.alphabet
    if known.empty and not pending:
        return markup.paragraph("There is nothing to draw a map of yet.")
    drawn = [design_map(known, pending, alphabet)]
    if len(known) and pending:
        drawn.append(distance_bars(pending, list(known["measured"]), alphabet))
    words = "" if pending else "No order is pending; ask for a plate with stochflow campaign ask."
    return (markup.paragraph(words) if words else "") + charts.row(drawn)


def _known(rounds: Sequence[Round], length: int) -> pd.DataFrame:
    """Measured sequences of the right length, each once, with mean score and worth."""
    columns = ["measured", "score", "worth"]
    rows = pd.concat([each.outcomes[columns] for each in rounds]) if rounds else pd.DataFrame(columns=columns)
    rows = rows[rows["measured"].str.len() == length].astype({"score": float, "worth": float})
    return rows.groupby("measured", sort=False, as_index=False).mean()


def _plates(history: History, settings: CampaignSettings, charts: Charts) -> str:
    plates = plate_maps(history)
    if not plates:
        return markup.paragraph("No plate was ordered or told yet.")
    shown, ends = plates[:MAX_PLATES], score_range(plates[:MAX_PLATES])
    parts = [charts.row(plate_figures(plate, settings.batch, ends)) for plate in shown]
    elsewhere = sum(plate.num_elsewhere for plate in plates)
    problems = [f"{elsewhere} wells have names that no plate of 384 has."] if elsewhere else []
    problems += [f"The latest {MAX_PLATES} of {len(plates)} plates are drawn."] if len(plates) > MAX_PLATES else []
    return markup.notes(problems) + markup.choices("plates", {"Plate": [plate.name for plate in shown]}, parts)


def _logos(rounds: Sequence[Round], settings: CampaignSettings) -> str:
    """A logo of each round, the latest first."""
    if settings.length > _MAX_LOGO_LENGTH:
        return markup.paragraph(f"There are none, because designs have more than {_MAX_LOGO_LENGTH} letters.")
    logos = [(each.title, *_logo(each, settings)) for each in rounds][::-1][:_MAX_LOGOS]
    logos = [logo for logo in logos if logo[1]]
    if not logos:
        return markup.paragraph("There is nothing to draw a logo of yet.")
    parts = [
        logo_svg(sequences, len(settings.space.alphabet)) + markup.paragraph(words) for _, sequences, words in logos
    ]
    return markup.choices("logos", {"Logo of": [title for title, *_ in logos]}, parts)


def _logo(each: Round, settings: CampaignSettings) -> tuple[list[str], str]:
    """Sequences of a logo, and which they are."""
    top = each.top(settings.length)
    height = "The height of a position is the information in it, log2 K − H in bits."
    if top:
        return top, f"The {len(top)} best measured sequences, with all that tie with the last of them. {height}"
    return list(each.orders["design"]), f"All {len(each.orders)} orders; none has a score yet. {height}"


def _noise(history: History, rounds: Sequence[Round], settings: CampaignSettings, charts: Charts) -> str:
    """Bars, and what they say in words."""
    designs = history.designs
    sequenced = set(designs.loc[designs["observed"].notna(), "design"])
    costs = noise_costs(rounds, history.evidence(), settings.space, sequenced)
    if not any(np.isfinite([cost.written, cost.outcomes]).any() for cost in costs):
        words = (
            "No noise was given for this campaign, and no observed sequences were told"
            if settings.space.channel.slip == 0.0
            else "Too little was measured to say what the noise costs, and no order was sequenced"
        )
        return markup.paragraph(f"{words}.")
    return markup.paragraph(_in_words(costs)) + charts.place(noise_bars(costs))


def _in_words(costs: Sequence[NoiseCost]) -> str:
    """The cost of all rounds together, as it is expected and as it was measured."""
    sentences = []
    expected = [cost.written - cost.expected for cost in costs if np.isfinite(cost.written)]
    if expected:
        side = "lowers" if np.mean(expected) >= 0 else "raises"
        sentences.append(f"By the model, noise {side} the mean score of a round by {abs(np.mean(expected)):.3g}.")
    num_exact, num = sum(cost.num_exact for cost in costs), sum(cost.num_outcomes for cost in costs)
    if num:
        sentences.append(f"{num_exact} of {num} sequenced outcomes are what was ordered.")
    lost = [cost.exact - cost.outcomes for cost in costs if cost.num_exact and cost.num_outcomes]
    if lost:
        side = "above" if np.mean(lost) >= 0 else "below"
        sentences.append(f"Their mean score is {abs(np.mean(lost)):.3g} {side} that of all, on average over rounds.")
    return " ".join(sentences)


def _best(rounds: Sequence[Round]) -> str:
    """A table of the best outcomes."""
    found = pd.concat([each.outcomes for each in rounds]) if rounds else pd.DataFrame({"worth": []})
    found = found[np.isfinite(found["worth"])].nlargest(NUM_BEST, "worth")
    if found.empty:
        return markup.paragraph("Nothing that keeps the thresholds was measured yet.")
    titles = [round_name(number) for number in found["round"]]
    columns = {"measured": list(found["measured"]), "ordered": list(found["design"]), "round": titles}
    if columns["measured"] == columns["ordered"]:
        del columns["ordered"]
    rows = zip(*columns.values(), map(int, found["wells"]), map(float, found["score"]), strict=True)
    headings = [Column(name, is_text=True, is_mono=name != "round") for name in columns]
    return markup.table([*headings, Column("wells"), Column("score")], rows, _AS_GIVEN, "The best")

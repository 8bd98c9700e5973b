"""Checks of predicted scores: what the measurements of a table can say, from held-out errors."""

from stochflow.config.schema import Config
from stochflow.evaluation.summary import Summary
from stochflow.runs.monitor.findings import Finding

LEAST_R2 = 0.1
COVERED = (0.65, 0.95)  # shares of held-out scores inside 80 % intervals that are as they should be


def evidence_findings(config: Config, summary: Summary | None) -> list[Finding]:
    """Findings about the prediction behind a run; none where scores are known."""
    if summary is None or summary.measured is None:
        return []
    guessed = _guesses(summary)
    rest = [_trusted(summary), _far_away(config, summary), _badly_calibrated(summary)]
    found = rest if guessed is None else [guessed]
    return [finding for finding in found if finding is not None]


def _guesses(summary: Summary) -> Finding | None:
    r2 = summary.surrogate_r2
    if r2 is not None and r2 >= LEAST_R2:
        return None
    seen = "the held-out scores do not vary" if r2 is None else f"R² of held-out scores is {r2:.2f}"
    return Finding(
        "guesses",
        "bad",
        f"{seen} with {summary.measured} measured sequences",
        "the prediction explains nothing of what it has not seen: the proposals are guesses",
        "measure more sequences, or these more often, and check the score column; until then draw at random",
    )


def _trusted(summary: Summary) -> Finding:
    """What every reader of predictions should know: how good they are, and how far from the table."""
    figures = {"rank correlation": summary.surrogate_rank_correlation}
    shown = "".join(f", {name} {value:.2f}" for name, value in figures.items() if value is not None)
    covered = summary.surrogate_coverage
    inside = "" if covered is None else f", {covered:.0%} inside their 80 % intervals"
    reach, distance = summary.surrogate_reach, summary.novelty
    where = "" if distance is None else f"designs are {distance:.1f} letters from the nearest measured one on average"
    return Finding(
        "table",
        "note",
        f"R² of held-out scores is {summary.surrogate_r2:.2f}{shown}{inside}, with {summary.measured} measured "
        "sequences",
        "how far predictions can be trusted is not known: too few rows are equally far from the others"
        if reach is None
        else f"predictions can be trusted up to {reach} letters from a measured sequence" + (where and f"; {where}"),
        "order some designs near and some far, and tell both apart by `distance` in samples.csv",
    )


def _far_away(config: Config, summary: Summary) -> Finding | None:
    reach, distance = summary.surrogate_reach, summary.novelty
    if reach is None or distance is None or config.evaluation.reference is not None or distance <= reach:
        return None
    return Finding(
        "reach",
        "note",
        f"designs are {distance:.1f} letters from the nearest measured sequence on average, and measured sequences "
        f"more than {reach} letters from all others are predicted badly or not there",
        f"this table says little about designs more than {reach} letters away",
        f"order designs whose `distance` in samples.csv is at most {reach}, or measure some that are farther away",
    )


def _badly_calibrated(summary: Summary) -> Finding | None:
    covered = summary.surrogate_coverage
    if covered is None or COVERED[0] <= covered <= COVERED[1]:
        return None
    narrow = covered < COVERED[0]
    return Finding(
        "intervals",
        "note",
        f"{covered:.0%} of held-out scores lie inside their 80 % intervals",
        f"the intervals `low` to `high` are too {'narrow' if narrow else 'wide'}",
        "give the noise of the measurements (--variance-column, or replicates by --score-column a,b)",
    )

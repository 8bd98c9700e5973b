"""Where a campaign stands."""

from dataclasses import dataclass

from stochflow.campaigns.goals import SCORE
from stochflow.campaigns.history import History
from stochflow.campaigns.settings import CampaignSettings


@dataclass(frozen=True)
class Status:
    """Where a campaign stands.

    Attributes:
        goal, noise: as they were given.
        num_asks, num_tells: rounds of orders, and tables of results that were not taken back.
        num_ordered, num_pending, num_failed: designs that were ordered, those without a result, and those without a
            score because their wells failed.
        num_measured: sequences with a score, ordered here or not.
        num_controls: results of controls.
        best, best_score: the best measured sequence that breaks no threshold; None before the first.
        num_feasible: designs that the constraints allow; None where they cannot be counted.
    """

    goal: str
    noise: str
    num_asks: int
    num_tells: int
    num_ordered: int
    num_pending: int
    num_failed: int
    num_measured: int
    num_controls: int
    best: str | None
    best_score: float | None
    num_feasible: int | None


def status_of(history: History, settings: CampaignSettings) -> Status:
    """The counts of a history."""
    best, best_score = _best(history, settings)
    states = history.orders["state"].value_counts()
    values = history.designs.dropna(subset=["value"])
    return Status(
        goal=", ".join([str(settings.goal), *map(str, settings.goal.thresholds)]),
        noise=settings.noise,
        num_asks=len(history.asks),
        num_tells=int(history.tells["undone"].isna().sum()),
        num_ordered=len(history.orders),
        num_pending=int(states.get("pending", 0)),
        num_failed=int(states.get("failed", 0)),
        num_measured=values[values["property"] == SCORE]["measured"].nunique(),
        num_controls=int((history.results["control"] == 1).sum()),
        best=best,
        best_score=best_score,
        num_feasible=settings.space.size,
    )


def _best(history: History, settings: CampaignSettings) -> tuple[str | None, float | None]:
    """The measured sequence nearest to the goal, and its score."""
    evidence = history.evidence()
    value = settings.goal.worth(evidence.scores, evidence.properties)
    if not len(value) or value.max() == -float("inf"):
        return None, None
    row = int(value.argmax())
    return settings.space.alphabet.decode(evidence.tokens[row : row + 1])[0], float(evidence.scores[row])

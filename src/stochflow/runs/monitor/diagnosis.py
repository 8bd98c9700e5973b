"""What can be said of a run from its files: the alarms of its course, and the figures that it ended with."""

from collections.abc import Iterable
from dataclasses import replace

from stochflow.config.schema import Config
from stochflow.evaluation.summary import Summary
from stochflow.runs.monitor.alarms import alarms
from stochflow.runs.monitor.checks import OVERSHADOWED, RULES, Case
from stochflow.runs.monitor.findings import Finding, worst_first
from stochflow.runs.monitor.history import Course, Record, share_spent


def examine(
    config: Config, summary: Summary | None, records: Iterable[Record], zero_share: float | None = None
) -> list[Finding]:
    """Everything that is wrong with a run, and what should be known about it, worst first.

    Args:
        records: of its training steps, in order.
    """
    course, seen = _replayed(config, records)
    now = alarms(course)
    standing = {finding.kind for finding in now}
    case = Case(config, summary, course, zero_share)
    found = [rule(case) for rule in RULES if not (rule in OVERSHADOWED and standing)]
    passed = [finding for kind, finding in seen.items() if kind not in standing]
    # the drawn designs may show what the course has shown already
    others = [finding for finding in found if finding is not None and finding.kind not in standing]
    return worst_first([*now, *passed, *others])


def _replayed(config: Config, records: Iterable[Record]) -> tuple[Course, dict[str, Finding]]:
    """The course of a run, and each alarm as it was first given on the way."""
    course, seen = Course(config), dict[str, Finding]()
    for record in records:
        share = share_spent(config.budget, record)
        if not course.add(record, share):
            continue
        for finding in alarms(course):
            if finding.kind not in seen:
                means = f"this was so after {share:.0%} of the budget and has passed since"
                seen[finding.kind] = replace(finding, severity="note", means=means)
    return course, seen

"""Diagnosis of a run from its files: alarms replayed over its history, and checks of its final figures."""

from collections.abc import Iterable
from dataclasses import replace

from stochflow.config.schema import Config
from stochflow.evaluation.summary import Summary
from stochflow.runs.monitor.alarms import alarms
from stochflow.runs.monitor.checks import OVERSHADOWED, RULES, Case
from stochflow.runs.monitor.evidence import evidence_findings
from stochflow.runs.monitor.findings import Finding, worst_first
from stochflow.runs.monitor.history import History, StepRecord, share_spent


def run_findings(
    config: Config, summary: Summary | None, records: Iterable[StepRecord], zero_share: float | None = None
) -> list[Finding]:
    """All findings about a run, the bad ones first.

    Args:
        records: of its training steps, in order.
        zero_share: share of the drawn designs that score zero; None where it is not known.
    """
    history, seen = _replayed(config, records)
    current = alarms(history)
    standing = {finding.kind for finding in current}
    case = Case(config, summary, history, zero_share)
    found = [rule(case) for rule in RULES if not (rule in OVERSHADOWED and standing)]
    passed = [finding for kind, finding in seen.items() if kind not in standing]
    # a check of the drawn designs may repeat an alarm
    others = [finding for finding in found if finding is not None and finding.kind not in standing]
    return worst_first([*current, *passed, *others, *evidence_findings(config, summary)])


def _replayed(config: Config, records: Iterable[StepRecord]) -> tuple[History, dict[str, Finding]]:
    """The history of a run, and every alarm that was raised during it, as a note that it has passed."""
    history, seen = History(config), dict[str, Finding]()
    for record in records:
        share = share_spent(config.budget, record)
        if not history.add(record, share):
            continue
        for finding in alarms(history):
            if finding.kind not in seen:
                means = f"this was so after {share:.0%} of the budget and has passed since"
                seen[finding.kind] = replace(finding, severity="note", means=means)
    return history, seen

"""Diagnoses of a run, or of the runs of a comparison, from their files alone."""

import shlex
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from stochflow.reports.reader import RunRecord, read_source
from stochflow.runs.monitor.diagnosis import run_findings
from stochflow.runs.monitor.findings import Finding
from stochflow.runs.monitor.history import records_of


@dataclass(frozen=True)
class Diagnosis:
    """Findings about one run.

    Attributes:
        title: task, method, noise and seed.
        verdict: summary in one sentence.
        findings: the bad ones first.
        problems: files that are missing or damaged, one sentence each.
    """

    path: Path
    title: str
    verdict: str
    findings: list[Finding]
    problems: list[str]

    @property
    def healthy(self) -> bool:
        """True when no finding is `bad`."""
        return not self._num_bad

    @property
    def _num_bad(self) -> int:
        return sum(finding.severity == "bad" for finding in self.findings)

    @property
    def rank(self) -> tuple[int, int, str]:
        """Sort key that puts the worst run first."""
        return -self._num_bad, -len(self.findings), str(self.path)

    def as_dict(self) -> dict[str, Any]:
        """The diagnosis as a dictionary for JSON."""
        return asdict(self) | {"path": str(self.path), "healthy": self.healthy}


def diagnose(path: Path) -> tuple[list[Diagnosis], list[str]]:
    """Diagnoses of a run directory or of the runs of a comparison, worst first; and problems of unreadable runs."""
    source = read_source(path)
    return sorted((diagnosis(run) for run in source.runs), key=lambda found: found.rank), source.problems


def diagnosis(run: RunRecord) -> Diagnosis:
    """Diagnosis of one run."""
    findings = run_findings(run.config, run.summary, records_of(run.metrics), _zero_share(run))
    path = shlex.quote(str(run.path))
    # so that commands can be copied
    findings = [replace(finding, remedy=finding.remedy.replace("RUN", path)) for finding in findings]
    return Diagnosis(run.path, run.title, _verdict(run, findings), findings, list(run.problems))


def _verdict(run: RunRecord, findings: list[Finding]) -> str:
    num_bad = sum(finding.severity == "bad" for finding in findings)
    if num_bad:
        return "1 thing is wrong." if num_bad == 1 else f"{num_bad} things are wrong."
    if not run.config.objective.record.trains_policy:
        return f"Nothing is wrong, but {run.config.method} trains no policy: it is there to be compared with."
    regret, start = run.latest("regret"), _first(run, "start_regret")
    if regret is None:
        return _unseen(run)
    way = f", {1.0 - regret / start:.0%} of the way from chance to the best that this noise allows" if start else ""
    return f"Healthy: the regret is {regret:.3g} nats{way}."


def _unseen(run: RunRecord) -> str:
    """Verdict on a healthy run whose regret nobody can compute."""
    j, start = run.latest("j"), _first(run, "start_j")
    if j is None:
        return "Healthy, as far as can be seen: the truth is too large to compute, so only the course was looked at."
    gain = "" if start is None else f", {j - start:.3g} above that of uniform intentions"
    return f"Healthy, as far as can be seen: J is {j:.4g} nats{gain}; the truth is too large to compute."


def _first(run: RunRecord, name: str) -> float | None:
    """The first value of a metric that training logged; None without one."""
    known = run.logged(name)
    return float(known.iloc[0]) if len(known) else None


def _zero_share(run: RunRecord) -> float | None:
    """Share of the drawn designs that score zero; None where none has a score, or zero is a score like any other."""
    if run.config.table.world == "measured":
        return None
    drawn = run.samples["drawn"].sum() if len(run.samples) else 0
    return float(run.samples["drawn"][run.samples["score"] <= 0.0].sum() / drawn) if drawn else None

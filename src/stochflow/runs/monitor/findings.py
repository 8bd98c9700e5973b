"""Findings about a run: observation, interpretation and remedy."""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["bad", "note"]
_RANKS: dict[str, int] = {"bad": 0, "note": 1}


@dataclass(frozen=True)
class Finding:
    """One problem of a run.

    Attributes:
        kind: identifier, such as `stalled`.
        severity: `bad` if the run should not be used as it is, `note` for information about a run that may be good.
        seen: the observed figures.
        means: their interpretation.
        remedy: what to do, with the option that does it.
    """

    kind: str
    severity: Severity
    seen: str
    means: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.seen}; {self.means}; {self.remedy}"


def worst_first(findings: list[Finding]) -> list[Finding]:
    """Findings sorted by severity, `bad` before `note`; otherwise in the order given."""
    return sorted(findings, key=lambda finding: _RANKS[finding.severity])

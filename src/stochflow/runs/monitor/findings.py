"""What is said of a run: seen, meant, to be done."""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["bad", "note"]
_RANKS: dict[str, int] = {"bad": 0, "note": 1}


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it should be.

    Attributes:
        kind: its name, for programs.
        severity: `bad` for what spoils a run, `note` for what should be known about one that may be good.
        seen: the figures.
        means: what they say.
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
    """What is bad before what is only worth knowing; otherwise in the order given."""
    return sorted(findings, key=lambda finding: _RANKS[finding.severity])

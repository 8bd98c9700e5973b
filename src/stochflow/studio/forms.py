"""What the forms of the pages say, checked, as arguments of the public functions."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stochflow import ConfigError

_PRESETS = "dna-synthesis|doped|error-prone-pcr|array-synthesis|nnk"
_NUMBER = r"\d*\.?\d+(?:[eE]-?\d+)?"
# files come by upload alone: whatever else could name one is refused
_NOISE = re.compile(rf"none|{_NUMBER}(?:\s*,\s*{_NUMBER})*,?|(?:{_PRESETS})(?::{_NUMBER})?")
_NAME = re.compile(r"[\w.:+,-]{1,100}")
Stored = Callable[[str], Path]


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True, str_max_length=2000)


class DesignRules(_Form):
    """Constraints as the form has them: empty fields ask for nothing."""

    forbid: str = ""
    gc_low: float | None = Field(None, ge=0, le=1)
    gc_high: float | None = Field(None, ge=0, le=1)
    fixed: str = ""
    max_homopolymer: int | None = None
    symmetric: bool = False

    def settings(self) -> dict[str, Any]:
        """The argument `constraints`."""
        found: dict[str, Any] = {}
        if self.forbid:
            found["forbid"] = [word for word in re.split(r"[\s,]+", self.forbid.upper()) if word]
        if self.gc_low is not None or self.gc_high is not None:
            low, high = self.gc_low, self.gc_high
            found["gc"] = [0.0 if low is None else low, 1.0 if high is None else high]
        if self.fixed:
            found["fixed"] = self.fixed.upper()
        if self.max_homopolymer is not None:
            found["max_homopolymer"] = self.max_homopolymer
        return found | ({"symmetric": True} if self.symmetric else {})


class _Begun(_Form):
    """What a run and a campaign have in common.

    Attributes:
        noise: as for `train`, but no file.
        channel: id of an uploaded channel file, in the place of `noise`.
    """

    name: str = Field(min_length=1, max_length=100)
    noise: str = "none"
    channel: str = ""
    rules: DesignRules = DesignRules()
    seed: int = Field(0, ge=0, lt=2**53)

    def noise_argument(self, stored: Stored) -> str:
        """Noise as the public functions take it; an upload stands for its file."""
        if self.channel:
            return str(stored(self.channel))
        if _NOISE.fullmatch(self.noise) is None:
            raise ConfigError(
                f"the noise '{self.noise[:40]}' is not understood; give none, a probability such as 0.02, or a channel "
                "by name such as dna-synthesis"
            )
        return self.noise


class RunForm(_Begun):
    """A new run: from an uploaded table, a task by name, or an oracle that the studio was started with."""

    source: Literal["table", "task", "oracle"]
    upload: str = ""
    sequence_column: str = "sequence"
    score_column: str = "score"
    task: str = "tfbind8"
    oracle: str = ""
    length: int | None = None
    alphabet: str = "dna"
    method: str = "sgfn-kl"
    budget: float = Field(32_000, gt=0)
    unit: Literal["trajectories", "minutes"] = "trajectories"

    def arguments(self, stored: Stored, oracles: Sequence[str]) -> dict[str, Any]:
        """Arguments of `stochflow.train`."""
        for field in ("task", "method"):
            if _NAME.fullmatch(getattr(self, field)) is None:
                raise ConfigError(f"'{getattr(self, field)[:40]}' is no name of a {field}; choose one from the list")
        amount = int(self.budget) if self.unit == "trajectories" else self.budget
        given = {"method": self.method, "seed": self.seed, self.unit: amount}
        given["noise"] = self.noise_argument(stored)
        if rules := self.rules.settings():
            given["constraints"] = rules
        return given | self._source(stored, oracles)

    def _source(self, stored: Stored, oracles: Sequence[str]) -> dict[str, Any]:
        if self.source == "task":
            return {"task": self.task}
        if self.source == "oracle":
            if self.oracle not in oracles:
                raise ConfigError(
                    f"the score function '{self.oracle[:100]}' was not named when this studio was started; start it "
                    "with --oracle to allow it"
                )
            return {"oracle": self.oracle, "length": self.length, "alphabet": self.alphabet}
        columns = {"sequence_column": self.sequence_column, "score_column": self.score_column}
        return {"table": str(stored(self.upload)), **columns}


class CampaignForm(_Begun):
    """A new campaign, perhaps with an uploaded table of what is known already."""

    upload: str = ""
    alphabet: str = "dna"
    length: int = 20
    goal: str = "maximise"
    batch: int = 96

    def arguments(self, stored: Stored) -> dict[str, Any]:
        """Arguments of `stochflow.Campaign.create`."""
        given = self.model_dump(include={"alphabet", "length", "goal", "batch", "seed"})
        return given | {"noise": self.noise_argument(stored), "constraints": self.rules.settings()}


class Ask(_Form):
    """Ask a campaign for designs."""

    path: str
    num: int | None = Field(None, ge=1, le=10_000)


class Tell(_Form):
    """Tell a campaign the results of an uploaded file."""

    path: str
    upload: str


class Target(_Form):
    """A run or a campaign of the folder."""

    path: str


F = TypeVar("F", bound=_Form)


def read_form(kind: type[F], content: Any) -> F:
    """A checked form; a ConfigError of one sentence where it is wrong."""
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        field = " ".join(str(part).replace("_", " ") for part in first["loc"]) or "form"
        reason = first["msg"][:1].lower() + first["msg"][1:]
        raise ConfigError(f"{field}: {reason}; correct it") from None

"""Settings of the environment: what can be built, how the world answers, and what the result is worth."""

from typing import Any, Literal

from pydantic import Field, model_validator

from stochflow.config.base import Settings

# whether each outcome is seen before the next intention, or whole designs are ordered
Feedback = Literal["step", "none"]


class TableConfig(Settings):
    """Your own sequences and scores (task table)."""

    file: str | None = Field(None, description="CSV or TSV file with a header; null for the other tasks.")
    name: str | None = Field(None, description="What the task is called; by default after the file.")
    sequence_column: str = Field("sequence", description="Column of the sequences.")
    score_column: str = Field(
        "score", description="Column of the scores; several, separated by commas, are replicates."
    )
    variance_column: str | None = Field(None, description="Column of the variance of one measurement.")
    alphabet: str = Field("auto", description="dna, rna, protein, auto for the first that fits, or the letters.")
    scale: Literal["none", "unit"] = Field("none", description="Scores as they are, or scaled to [0, 1].")
    world: Literal["measured", "complete"] | None = Field(
        None, description="Evidence from which other scores are predicted, or all there is; null: by its gaps."
    )
    gap_score: float | None = Field(
        None,
        ge=0,
        le=1e300,
        description="Score of what a complete table lacks, after table.scale; null: nothing may lack.",
    )
    sha256: str | None = Field(None, description="Hash of what the table says; a table that says another is refused.")


class MotifConfig(Settings):
    """Your own motif matrices (task motif-matrix)."""

    file: str | None = Field(None, description="MEME, JASPAR or CSV file of matrices; null for the other tasks.")
    name: str | None = Field(None, description="What the task is called; by default after the file.")
    length: int | None = Field(None, ge=1, le=4096, description="Letters of a design.")
    factors: list[str] = Field(default_factory=list, description="Names of the matrices, instead of a file.")
    matrices: list[list[list[float]]] = Field(
        default_factory=list, description="Matrices of these, a row of A, C, G and T per column; a run keeps them."
    )

    @model_validator(mode="after")
    def _named(self) -> "MotifConfig":
        if len(self.factors) != len(self.matrices):
            raise ValueError(f"{len(self.factors)} names do not fit {len(self.matrices)} matrices; give one for each")
        return self


class LengthConfig(Settings):
    """Designs that may end early, by a stop action (tables and oracles); either bound asks for it too."""

    variable: bool = Field(False, description="Let designs differ in length.")
    min_length: int | None = Field(None, ge=1, le=4096, description="Fewest letters; null: as in the table, or 1.")
    max_length: int | None = Field(None, ge=1, le=4096, description="Most letters, and cycles; null: as in the table.")

    @model_validator(mode="before")
    @classmethod
    def _asked_for(cls, given: Any) -> Any:
        """A bound means variable length, whether it is said or not."""
        bounded = isinstance(given, dict) and (given.get("min_length") or given.get("max_length")) is not None
        return {**given, "variable": True} if bounded else given

    @model_validator(mode="after")
    def _ordered(self) -> "LengthConfig":
        if self.min_length is not None and self.max_length is not None and self.min_length > self.max_length:
            raise ValueError(
                f"min_length {self.min_length} is above max_length {self.max_length}; give the smaller one first"
            )
        return self


class ChannelConfig(Settings):
    """The noise between intention and outcome."""

    kind: Literal[
        "none",
        "uniform-slip",
        "confusion",
        "positional",
        "dna-synthesis",
        "doped",
        "nnk",
        "error-prone-pcr",
        "array-synthesis",
        "bursts",
        "mixture",
        "drift",
    ] = Field("uniform-slip", description="Which channel.")
    noise: float | list[float] = Field(
        0.25,
        description="Slip α, rate or share in [0, 1); a list gives one α per position (kind positional) or the "
        "numbers of bursts, mixture and drift.",
    )
    matrix: list[list[float]] | None = Field(None, description="K rows of K probabilities (kind confusion).")
    matrices: list[list[list[float]]] | None = Field(None, description="One matrix per position (kind positional).")
    letters: str | None = Field(
        None, description="Letters in the order of the matrix's rows and columns; null: in the order of the task."
    )
    file: str | None = Field(None, description="CSV or YAML file that holds the matrix, or a list of them in YAML.")
    deletion: float = Field(0.0, ge=0, lt=1, description="Probability that nothing is written (variable length).")
    duplication: float = Field(0.0, ge=0, lt=1, description="Probability of writing twice (variable length).")

    intact: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Share of letters that are neither lost nor doubled nor followed by another, in designs of one "
        "length: not simulated, but counted in the probability of an exact copy.",
    )
    kept: list[list[float]] | None = Field(
        None,
        description="P(a|a) by the letter before, the last row for first letters; for the same probability.",
    )

    @model_validator(mode="after")
    def _something_is_written(self) -> "ChannelConfig":
        if self.deletion + self.duplication >= 1.0:
            raise ValueError("deletion and duplication together must stay below 1, or no letter is ever written once")
        return self


class RewardConfig(Settings):
    """From score to reward."""

    beta: float = Field(3.0, gt=0, le=1e3, description="Exponent β of the score.")
    floor: float = Field(1e-6, gt=0, description="Smallest reward, applied after the power.")
    ramp: float = Field(0.0, ge=0, description="Training steps over which β(t) rises from 1; 0 means β at once.")


class ConstraintConfig(Settings):
    """What a design must satisfy; `.` stands for any letter, and nucleic acids have their ambiguity codes."""

    forbid: list[str] = Field([], description="Motifs that must not occur.")
    both_strands: bool = Field(False, description="Forbid their reverse complements as well.")
    gc: list[float] | None = Field(None, description="Smallest and largest share of G and C.")
    fixed: str | None = Field(None, description="One letter per position, for example ....ATG.")
    max_homopolymer: int | None = Field(None, ge=1, description="Longest run of one letter.")
    symmetric: bool = Field(False, description="Only sequences that equal their reverse complement.")

    @model_validator(mode="after")
    def _window(self) -> "ConstraintConfig":
        if self.gc is not None and (len(self.gc) != 2 or not 0.0 <= self.gc[0] <= self.gc[1] <= 1.0):
            raise ValueError("gc takes two shares between 0 and 1, the smaller first")
        return self

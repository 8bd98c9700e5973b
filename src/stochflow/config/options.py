"""Options of the commands, each declared once: for the command line, the Python functions and the settings they set."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stochflow.config.layers import merge
from stochflow.config.noise import whole_channel
from stochflow.core.errors import ConfigError


@dataclass(frozen=True)
class Option:
    """An option of a command, and the argument of that name of the Python function behind it.

    Attributes:
        name: of the argument; the flag is the same with dashes, unless `flag` is given.
        kind: type of what stands on the command line; `list[str]` where the option may be repeated.
        help: one sentence.
        setting: dotted name of the setting that it sets; None for an option that is not about settings.
        flag: as in "--set"; "" for a positional argument.
        metavar: how its value is shown.
        default: where nothing is given.
        read: from what stands on the command line to the argument.
        parse: from the argument to the setting.
    """

    name: str
    kind: Any
    help: str
    setting: str | None = None
    flag: str | None = None
    metavar: str | None = None
    default: Any = None
    read: Callable[[Any], Any] | None = None
    parse: Callable[[Any], Any] | None = None


def arguments_of(options: Iterable[Option], given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of the Python function from what stands on the command line; rules become one argument, `constraints`.

    Args:
        given: what stands there by the name of the option, perhaps more than `options`.
    """
    arguments = {option.name: _argument(option, given[option.name]) for option in options}
    rules = [option.name for option in CONSTRAINTS if option.name in arguments]
    if not rules:
        return arguments
    constraints = settings_of(CONSTRAINTS, arguments).get("constraints")
    return {name: value for name, value in arguments.items() if name not in rules} | {"constraints": constraints}


def settings_of(options: Iterable[Option], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The layer of settings that arguments of the Python function ask for; None and False ask for nothing."""
    layer: dict[str, Any] = {}
    for option in options:
        value = arguments.get(option.name)
        if option.setting is None or value is None or value is False:
            continue
        nested = value if option.parse is None else option.parse(value)
        for part in reversed(option.setting.split(".")):
            nested = {part: nested}
        layer = merge(layer, nested)
    return layer


def names_in(listed: str) -> list[str]:
    """Names between commas."""
    return [name.strip() for name in listed.split(",") if name.strip()]


def task_names_in(listed: str) -> list[str]:
    """Names of tasks between commas; a comma before a digit belongs to a name such as bits:120,8."""
    return [name for part in re.split(r",(?!\s*\d)", listed) if (name := part.strip())]


def _window(text: str) -> list[float]:
    try:
        low, high = (float(share) for share in text.split(":"))
    except ValueError:
        raise ConfigError(f"--gc takes LOW:HIGH, not '{text}'; for example --gc 0.4:0.6") from None
    return [low, high]


def _whole_path(path: str | Path) -> str:
    return str(Path(path).resolve())


def _engine(name: str) -> dict[str, Any]:
    """Settings of where an oracle is called; processes of this machine have no address."""
    return {"engine": name, "address": None} if name == "local" else {"engine": name}


def _argument(option: Option, value: Any) -> Any:
    if value is None:
        return () if option.kind == list[str] else None
    return value if option.read is None else option.read(value)


def _switch(name: str, help: str, setting: str | None = None, flag: str | None = None) -> Option:
    """An option without a value."""
    return Option(name, bool, help, setting, flag, default=False)


_NOISE_HELP = (
    "Slip probability in [0, 1), none, dna-synthesis[:rate], doped[:share], error-prone-pcr[:rate], "
    "array-synthesis[:rate], nnk:share, bursts:slip,begin,end, mixture:α,α, drift:first,last, one slip per position "
    "(0.1,0.2,…), or a .csv or .yaml channel file."
)
_NAMED = "This is the only way to run code of yours; a file that names it is not enough."
_FUNCTION = "PACKAGE.MODULE:FUNCTION"

AS_JSON = _switch("as_json", "Print JSON instead of a table.", flag="--json")
RUN = Option("run", Path, "Run directory.", flag="", metavar="RUN", default=...)
_SETTINGS = Option("settings", list[str], "Override one setting; repeatable.", flag="--set", metavar="a.b=v")
_CONFIG = Option("config", Path, "YAML file of settings.", metavar="FILE")
_TASK = Option("task", str, "Task name; see `stochflow tasks`.  [default: tfbind8]", "task", flag="")
_METHOD = Option("method", str, "Method; see `stochflow methods`.  [default: sgfn-kl]", "method")
_NOISE = Option("noise", str, _NOISE_HELP, "channel", parse=whole_channel)
_PRETRAINING_NOISE = replace(_NOISE, help=_NOISE_HELP + "  [default: 0.25]")
_TRAINING_NOISE = replace(_NOISE, help=_NOISE_HELP + "  [default: 0.25; tables and oracles: none]")
_FEEDBACK_HELP = "See each outcome before the next letter (step), or order whole strings (none)."
_FEEDBACK = Option(
    "feedback",
    str,
    f"{_FEEDBACK_HELP}  [default: step; tables and oracles: none]",
    "feedback",
    metavar="step|none",
)
_RUN_NOISE = replace(_NOISE, help=_NOISE_HELP + "  [default: as in training]")
_CONTEXT = Option(
    "context",
    str,
    "What the policy reads beyond the letters so far: nothing, the pairs of intended and made letters (where the noise "
    "has memory), or a support set (with --from).  [default: none; with --from: support]",
    "context.reads",
    metavar="none|history|support",
)
_RUN_FEEDBACK = replace(_FEEDBACK, help=f"{_FEEDBACK_HELP}  [default: as in training]")
_SEED = Option("seed", int, "Seed of every random generator.  [default: 0]", "seed")
_TRAJECTORIES = Option("trajectories", int, "Budget in trajectories.  [default: 32000]", "budget.trajectories")
_STEPS = Option("steps", int, "Budget in training steps.", "budget.steps")
_MINUTES = Option("minutes", float, "Budget in minutes.", "budget.minutes")
_DETERMINISTIC = _switch("deterministic", "Only operations that give the same numbers every time.", "deterministic")
_TRACK = Option("track", list[str], "Also log to this tracker; repeatable.", metavar="tensorboard|wandb|mlflow")
# of everything that writes a run directory
_RUNNING = (
    _CONFIG,
    _SETTINGS,
    Option("out", Path, "Run directory.  [default: runs/<task>-<method>-…]"),
    Option("device", str, "auto, cpu, cuda, mps, …  [default: auto]", "device"),
    _DETERMINISTIC,
    _switch("resume", "Continue the run in --out from its checkpoint, or begin it."),
    _switch("overwrite", "Replace the run in --out."),
    _TRACK,
)
_SCORE_SAMPLES = _switch(
    "score_samples", "Ask the oracle also for drawn designs that were never paid for.", "oracle.score_samples"
)
_ORACLE_ENGINE = (
    Option(
        "oracle_engine",
        str,
        "Call the oracle in processes here or on a Ray cluster.  [default: local]",
        "oracle",
        metavar="local|ray",
        parse=_engine,
    ),
    Option("address", str, "Ray cluster that calls the oracle.  [default: one started here]", "oracle.address"),
)
RUN_ORACLE_ENGINE = tuple(
    replace(option, help=option.help.replace("default: local", "default: as in training")) for option in _ORACLE_ENGINE
)
_RUN_ORACLE = Option("oracle", str, f"The run's oracle, for --score-samples. {_NAMED}", metavar=_FUNCTION)

LENGTHS = (
    _switch("variable_length", "Let designs of --table or --oracle differ in length.", "lengths.variable"),
    Option("min_length", int, "Fewest letters; asks for variable length.", "lengths.min_length"),
    Option("max_length", int, "Most letters; asks for variable length.", "lengths.max_length"),
)
CONSTRAINTS = (
    Option("forbid", str, "Motifs that must not occur.", "constraints.forbid", metavar="MOTIF,MOTIF", read=names_in),
    Option("gc", str, "Share of G and C, as in 0.4:0.6.", "constraints.gc", metavar="LOW:HIGH", read=_window),
    Option("fixed", str, "Fixed letters; a dot is any.", "constraints.fixed", metavar="....ATG."),
    Option("max_homopolymer", int, "Longest run of one letter.", "constraints.max_homopolymer"),
    _switch("symmetric", "Only reverse-complement palindromes.", "constraints.symmetric"),
)
EDITS = (
    Option("deletion", float, "Probability that a letter is not written (variable length).", "channel.deletion"),
    Option(
        "duplication", float, "Probability that a letter is written twice (variable length).", "channel.duplication"
    ),
)
WORLD = (
    Option(
        "world",
        str,
        "Predict what the table lacks, or take it as all there is.  [default: measured if it has gaps]",
        "table.world",
        metavar="measured|complete",
    ),
    Option("gap_score", float, "Score of all that a complete table lacks.", "table.gap_score"),
)
TABLE = (
    Option(
        "table", Path, "CSV or TSV of sequences and scores instead of a task.", "table.file", metavar="FILE", parse=str
    ),
    Option("sequence_column", str, "Column of the sequences in --table.  [default: sequence]", "table.sequence_column"),
    Option("score_column", str, "Column of the scores; a,b are replicates.  [default: score]", "table.score_column"),
    Option("variance_column", str, "Column of the variance of a measurement.", "table.variance_column"),
    *WORLD,
    Option(
        "reward_noise",
        str,
        "Noise of a measurement: none, replicate, gaussian (by the table) or gaussian:0.1.",
        "reward_noise",
    ),
)
MOTIF_MATRIX = Option(
    "motif_matrix",
    Path,
    "MEME, JASPAR or CSV file of motif matrices instead of a task; needs --length.",
    "motifs.file",
    metavar="FILE",
    parse=str,
)

TRAIN = (
    _TASK,
    Option("oracle", str, f"Your own score function instead of a task. {_NAMED}", metavar=_FUNCTION),
    Option("length", int, "Letters of a design of --oracle or --motif-matrix.", "oracle.length"),
    *LENGTHS,
    Option(
        "alphabet",
        str,
        "dna, rna, protein, or the letters of --oracle or --table.  [default: that of the table]",
        "oracle.alphabet",
    ),
    Option("oracle_calls", int, "Budget in designs, or noisy measurements, to pay for.", "budget.oracle_calls"),
    Option(
        "oracle_cache",
        Path,
        "Paid scores to share between runs.  [default: in --out]",
        "oracle.cache",
        metavar="FILE",
        parse=_whole_path,
    ),
    *_ORACLE_ENGINE,
    _SCORE_SAMPLES,
    *CONSTRAINTS,
    _METHOD,
    _TRAINING_NOISE,
    _FEEDBACK,
    _CONTEXT,
    *EDITS,
    _SEED,
    _TRAJECTORIES,
    _STEPS,
    _MINUTES,
    Option(
        "pretrained",
        Path,
        "Begin with the sampler of this `pretrain` run; needs --support.",
        flag="--from",
        metavar="RUN",
    ),
    Option(
        "support", int, "Sequences to measure first, for --from; they are no part of the budget.", "pretraining.support"
    ),
    *TABLE,
    MOTIF_MATRIX,
    *_RUNNING,
    _switch("profile", "Say where the time went, by stage and operation."),
)
PRETRAIN = (
    Option(
        "tasks",
        str,
        "Tasks with known tables, of one alphabet and length.",
        "pretraining.tasks",
        metavar="A,B",
        read=task_names_in,
        parse=list,
    ),
    _PRETRAINING_NOISE,
    _SEED,
    replace(_STEPS, help="Budget in training steps.  [default: 1500]"),
    _MINUTES,
    *_RUNNING,
)
EXACT = (
    _TASK,
    Option("length", int, "Letters of a design of --motif-matrix.", "motifs.length"),
    *LENGTHS,
    Option(
        "alphabet", str, "dna, rna, protein, or the letters of --table.  [default: that of the table]", "table.alphabet"
    ),
    *CONSTRAINTS,
    _TRAINING_NOISE,
    *EDITS,
    _FEEDBACK,
    Option("beta", float, "Reward exponent.  [default: 3; graphs: 1; motifs: 60; rna-bind: 8]", "reward.beta"),
    Option(
        "floor",
        float,
        "Smallest reward, after the power.  [default: 1e-6; motifs: 1e-40; rna-bind: 1e-24]",
        "reward.floor",
    ),
    *TABLE,
    MOTIF_MATRIX,
    _SETTINGS,
)
COMPARE = (
    Option("tasks", str, "Task names, or all.  [default: tfbind8]", metavar="A,B", read=task_names_in),
    Option("oracle", list[str], f"Your own score function as a task; repeatable. {_NAMED}", metavar=_FUNCTION),
    Option(
        "methods",
        str,
        "Method names, or all.  [default: sgfn-kl,sgfn-db; for orders gfn-tb]",
        metavar="A,B",
        read=names_in,
    ),
    Option(
        "noise", str, "Channels, each as for `train`.  [default: 0.25; oracles: none]", metavar="A,B", read=names_in
    ),
    Option(
        "feedback",
        str,
        "step, none or both, as for `train`.  [default: that of each task]",
        metavar="A,B",
        read=names_in,
    ),
    Option("seeds", int, "Runs per method, seeds from 0.  [default: 5]"),
    replace(_TRAJECTORIES, help="Budget of every run.  [default: 32000]"),
    *WORLD,
    replace(_CONFIG, help="YAML file with these options."),
    _SETTINGS,
    _DETERMINISTIC,
    Option("jobs", int, "Runs at a time.  [default: one per core]"),
    Option("engine", str, "Processes here or a Ray cluster.  [default: local]", metavar="local|ray"),
    Option("address", str, "Ray cluster to join.  [default: one started here]"),
    _TRACK,
    Option("out", Path, "Folder of the comparison.  [default: runs/compare]"),
)
SAMPLE = (
    RUN,
    Option("n", int, "Number of designs; with --best, of draws to choose from.  [default: 1000; 10000]", flag="-n"),
    Option("style", str, "Output format.", flag="--format", metavar="csv|fasta|jsonl", default="csv"),
    _switch("unique", "Only different sequences."),
    Option("best", int, "Only the N different designs with the highest scores.", metavar="N"),
    Option("exclude", Path, "CSV, TSV, FASTA or lines of sequences to leave out.", metavar="FILE"),
    Option("exclude_column", str, "Column of --exclude.  [default: sequence, or the first]"),
    _RUN_NOISE,
    _RUN_FEEDBACK,
    Option("seed", int, "Another seed gives other designs.  [default: as in training]"),
    _SCORE_SAMPLES,
    _RUN_ORACLE,
    *RUN_ORACLE_ENGINE,
    Option("out", Path, "File to write.  [default: standard output]"),
)
EVALUATE = (RUN, _RUN_NOISE, _RUN_FEEDBACK, _SCORE_SAMPLES, _RUN_ORACLE, *RUN_ORACLE_ENGINE)
CONFIG = (replace(_TASK, help="Task name."), replace(_METHOD, help="Method name."), _CONFIG, _SETTINGS)

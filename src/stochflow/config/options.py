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
        flag: as in "--set"; "" for a positional argument.
        metavar: how its value is shown.
        default: where nothing is given.
        read: from what stands on the command line to the argument.
        setting: dotted name of the setting that it sets; None for an option that is not about settings.
        parse: from the argument to the setting.
    """

    name: str
    kind: Any
    help: str
    flag: str | None = None
    metavar: str | None = None
    default: Any = None
    read: Callable[[Any], Any] | None = None
    setting: str | None = None
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


def _argument(option: Option, value: Any) -> Any:
    if value is None:
        return () if option.kind == list[str] else None
    return value if option.read is None else option.read(value)


_NOISE_HELP = (
    "Slip probability in [0, 1), none, dna-synthesis[:rate], one slip per position (0.1,0.2,…), "
    "or a .csv or .yaml confusion matrix."
)
_NAMED = "This is the only way to run code of yours; a file that names it is not enough."
_FUNCTION = "PACKAGE.MODULE:FUNCTION"

AS_JSON = Option("as_json", bool, "Print JSON instead of a table.", "--json", default=False)
RUN = Option("run", Path, "Run directory.", "", "RUN", default=...)
_SETTINGS = Option("settings", list[str], "Override one setting; repeatable.", "--set", "a.b=v")
_CONFIG = Option("config", Path, "YAML file of settings.", metavar="FILE")
_DEVICE = Option("device", str, "auto, cpu, cuda, mps, …  [default: auto]", setting="device")
_TASK = Option("task", str, "Task name; see `stochflow tasks`.  [default: tfbind8]", "", setting="task")
_METHOD = Option("method", str, "Method; see `stochflow methods`.  [default: sgfn-kl]", setting="method")
_NOISE = Option("noise", str, _NOISE_HELP, setting="channel", parse=whole_channel)
_TRAINING_NOISE = replace(_NOISE, help=_NOISE_HELP + "  [default: 0.25]")
_SEED = Option("seed", int, "Seed of every random generator.  [default: 0]", setting="seed")
_TRAJECTORIES = Option("trajectories", int, "Budget in trajectories.  [default: 32000]", setting="budget.trajectories")
_TRACK = Option("track", list[str], "Also log to this tracker; repeatable.", metavar="tensorboard|wandb|mlflow")
_DETERMINISTIC = Option(
    "deterministic",
    bool,
    "Only operations that give the same numbers every time.",
    default=False,
    setting="deterministic",
)
_OUT = Option("out", Path, "Run directory.  [default: runs/<task>-<method>-…]")
_STEPS = Option("steps", int, "Budget in training steps.", setting="budget.steps")
_MINUTES = Option("minutes", float, "Budget in minutes.", setting="budget.minutes")
_RESUME = Option("resume", bool, "Continue the run in --out from its checkpoint, or begin it.", default=False)
_OVERWRITE = Option("overwrite", bool, "Replace the run in --out.", default=False)
_SCORE_SAMPLES = Option(
    "score_samples",
    bool,
    "Ask the oracle also for drawn designs that were never paid for.",
    default=False,
    setting="oracle.score_samples",
)
_RUN_ORACLE = Option("oracle", str, f"The run's oracle, for --score-samples. {_NAMED}", metavar=_FUNCTION)

LENGTHS = (
    Option(
        "variable_length",
        bool,
        "Let designs of --table or --oracle differ in length.",
        default=False,
        setting="lengths.variable",
    ),
    Option("min_length", int, "Fewest letters; asks for variable length.", setting="lengths.min_length"),
    Option("max_length", int, "Most letters; asks for variable length.", setting="lengths.max_length"),
)
CONSTRAINTS = (
    Option(
        "forbid",
        str,
        "Motifs that must not occur.",
        metavar="MOTIF,MOTIF",
        read=names_in,
        setting="constraints.forbid",
    ),
    Option(
        "gc",
        str,
        "Share of G and C, as in 0.4:0.6.",
        metavar="LOW:HIGH",
        read=_window,
        setting="constraints.gc",
    ),
    Option("fixed", str, "Fixed letters; a dot is any.", metavar="....ATG.", setting="constraints.fixed"),
    Option("max_homopolymer", int, "Longest run of one letter.", setting="constraints.max_homopolymer"),
    Option("symmetric", bool, "Only reverse-complement palindromes.", default=False, setting="constraints.symmetric"),
)
EDITS = (
    Option(
        "deletion", float, "Probability that a letter is not written (variable length).", setting="channel.deletion"
    ),
    Option(
        "duplication",
        float,
        "Probability that a letter is written twice (variable length).",
        setting="channel.duplication",
    ),
)
TABLE = (
    Option(
        "table",
        Path,
        "CSV or TSV of sequences and scores instead of a task.",
        metavar="FILE",
        setting="table.file",
        parse=str,
    ),
    Option(
        "sequence_column",
        str,
        "Column of the sequences in --table.  [default: sequence]",
        setting="table.sequence_column",
    ),
    Option(
        "score_column", str, "Column of the scores; a,b are replicates.  [default: score]", setting="table.score_column"
    ),
    Option("variance_column", str, "Column of the variance of a measurement.", setting="table.variance_column"),
    Option(
        "reward_noise",
        str,
        "Noise of a measurement: none, replicate, gaussian (by the table) or gaussian:0.1.",
        setting="reward_noise",
    ),
)
MOTIF_MATRIX = Option(
    "motif_matrix",
    Path,
    "MEME, JASPAR or CSV file of motif matrices instead of a task; needs --length.",
    metavar="FILE",
    setting="motifs.file",
    parse=str,
)

TRAIN = (
    _TASK,
    Option("oracle", str, f"Your own score function instead of a task. {_NAMED}", metavar=_FUNCTION),
    Option("length", int, "Letters of a design of --oracle or --motif-matrix.", setting="oracle.length"),
    *LENGTHS,
    Option(
        "alphabet",
        str,
        "dna, rna, protein, or the letters of --oracle or --table.  [default: that of the table]",
        setting="oracle.alphabet",
    ),
    Option("oracle_calls", int, "Budget in designs, or noisy measurements, to pay for.", setting="budget.oracle_calls"),
    Option(
        "oracle_cache",
        Path,
        "Paid scores to share between runs.  [default: in --out]",
        metavar="FILE",
        setting="oracle.cache",
        parse=_whole_path,
    ),
    _SCORE_SAMPLES,
    *CONSTRAINTS,
    _METHOD,
    _TRAINING_NOISE,
    *EDITS,
    _SEED,
    _TRAJECTORIES,
    _STEPS,
    _MINUTES,
    Option("pretrained", Path, "Begin with the sampler of this `pretrain` run; needs --support.", "--from", "RUN"),
    Option(
        "support",
        int,
        "Sequences to measure first, for --from; they are no part of the budget.",
        setting="pretraining.support",
    ),
    *TABLE,
    MOTIF_MATRIX,
    _CONFIG,
    _SETTINGS,
    _OUT,
    _DEVICE,
    _DETERMINISTIC,
    _RESUME,
    _OVERWRITE,
    _TRACK,
    Option("profile", bool, "Say where the time went, by stage and operation.", default=False),
)
PRETRAIN = (
    Option(
        "tasks",
        str,
        "Tasks with known tables, of one alphabet and length.",
        metavar="A,B",
        read=task_names_in,
        setting="pretraining.tasks",
        parse=list,
    ),
    _TRAINING_NOISE,
    _SEED,
    replace(_STEPS, help="Budget in training steps.  [default: 1500]"),
    _MINUTES,
    _CONFIG,
    _SETTINGS,
    _OUT,
    _DEVICE,
    _DETERMINISTIC,
    _RESUME,
    _OVERWRITE,
    _TRACK,
)
EXACT = (
    _TASK,
    Option("length", int, "Letters of a design of --motif-matrix.", setting="motifs.length"),
    *LENGTHS,
    Option(
        "alphabet",
        str,
        "dna, rna, protein, or the letters of --table.  [default: that of the table]",
        setting="table.alphabet",
    ),
    *CONSTRAINTS,
    _TRAINING_NOISE,
    *EDITS,
    Option("beta", float, "Reward exponent.  [default: 3; graphs: 1; motifs: 60]", setting="reward.beta"),
    Option("floor", float, "Smallest reward, after the power.  [default: 1e-6; motifs: 1e-40]", setting="reward.floor"),
    *TABLE,
    MOTIF_MATRIX,
    _SETTINGS,
)
COMPARE = (
    Option("tasks", str, "Task names, or all.  [default: tfbind8]", metavar="A,B", read=task_names_in),
    Option("oracle", list[str], f"Your own score function as a task; repeatable. {_NAMED}", metavar=_FUNCTION),
    Option("methods", str, "Method names, or all.  [default: sgfn-kl,sgfn-db]", metavar="A,B", read=names_in),
    Option("noise", str, "Channels, each as for `train`.  [default: 0.25]", metavar="A,B", read=names_in),
    Option("seeds", int, "Runs per method, seeds from 0.  [default: 5]"),
    replace(_TRAJECTORIES, help="Budget of every run.  [default: 32000]"),
    replace(_CONFIG, help="YAML file with these options."),
    _SETTINGS,
    _DETERMINISTIC,
    Option("jobs", int, "Runs at a time.  [default: one per core]"),
    Option("engine", str, "Processes here or a Ray cluster.  [default: local]", metavar="local|ray"),
    Option("address", str, "Ray cluster to join; started here if not given."),
    _TRACK,
    Option("out", Path, "Folder of the comparison.  [default: runs/compare]"),
)
SAMPLE = (
    RUN,
    Option("n", int, "Number of designs.", "-n", default=1000),
    Option("style", str, "Output format.", "--format", "csv|fasta|jsonl", default="csv"),
    Option("unique", bool, "Only different sequences.", default=False),
    _NOISE,
    Option("seed", int, "Another seed gives other designs."),
    _SCORE_SAMPLES,
    _RUN_ORACLE,
    Option("out", Path, "File to write; standard output by default."),
)
EVALUATE = (RUN, _NOISE, _SCORE_SAMPLES, _RUN_ORACLE)
CONFIG = (replace(_TASK, help="Task name."), replace(_METHOD, help="Method name."), _CONFIG, _SETTINGS)

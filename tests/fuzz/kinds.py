"""One function per kind of hostile input: from a generator to a call that must end well."""

import hashlib
import html.parser
import io
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

import stochflow
from stochflow.cli import app as cli
from stochflow.config.layers import merge
from stochflow.config.schema import Config
from stochflow.environments.channel_factory import make_channel
from stochflow.environments.registry import make_task
from stochflow.environments.sequences.fasta import encode_for, read_sequences
from stochflow.experiments import launch
from stochflow.experiments.sweep.config import requested, specify
from stochflow.experiments.sweep.specification import plan
from stochflow.forecasting import StochflowForecaster
from stochflow.forecasting.data.columns import Columns
from stochflow.forecasting.data.encoder import Encoder
from stochflow.forecasting.data.tables import read_frame
from stochflow.forecasting.storage import _seal
from tests.fuzz.judge import EVIL, OUTSIDE, command
from tests.fuzz.mutations import (
    NUMBERS,
    TEXTS,
    Random,
    cells,
    changed,
    forged_tensors,
    pick,
    spoiled,
    value,
    yaml_text,
)

Call = Callable[[], str]

SMALL: dict[str, Any] = {
    "optimiser": {"batch_size": 8, "updates": 1, "replay_size": 64},
    "model": {"width": 8, "num_layers": 1},
    "dynamics": {"rounds": 1, "sample_size": 8},
    "evaluation": {"num_samples": 8},
}
CONFIGS: list[dict[str, Any]] = [
    {"task": "bits:8,1", "method": "sgfn-db", **SMALL},
    {"task": "bits:8,1", "channel": {"kind": "confusion", "matrix": [[0.9, 0.1], [0.2, 0.8]]}, **SMALL},
    {
        "task": "table",
        "table": {"file": "good.csv", "score_column": "a,b", "scale": "unit", "gap_score": 0.0},
        "reward_noise": "replicate",
    },
    {
        "task": "table",
        "table": {"file": "good.csv", "score_column": "a", "gap_score": 0.0},
        "lengths": {"max_length": 5},
    },
    {"task": "hypergrid:2,4", "method": "sgfn-tb", "budget": {"steps": 3}},
    {"task": "ehrlich:4,8,2,2", "method": "mars", "chains": {"kept": 64}, "constraints": {"forbid": ["AB"]}},
    {"task": f"oracle:{EVIL}:score", "oracle": {"length": 6, "alphabet": "dna", "cache": "outside/x.sqlite"}},
    {"task": "gym:FrozenLake-v1:horizon=20", "method": "sgfn-db"},
    {"task": "bits:16,2", "model": {"body": "transformer", "width": 8, "heads": 2}, "exploration": {"epsilon": 0.1}},
]
TABLE = [["sequence", "a", "b"]] + [[s, str(n / 7), str(n / 9)] for n, s in enumerate(["ACGT", "ACGA", "CCCC", "GATT"])]
SERIES = [["unique_id", "ds", "y", "x"]] + [
    [uid, f"2020-{month:02d}-01", str(month * 1.5), str(month % 3)] for uid in ("a", "b") for month in range(1, 13)
]
MATRIX = [["0.9", "0.1"], ["0.2", "0.8"]]
PAIRS = [["intended", "observed", "count"], ["ACGT", "ACGA", "7"], ["GATT", "GATT", "30"], ["GATT", "GAT", "2"]]
_FITTED: dict[str, Any] = {
    **{"letters": "AC", "model": "global", "reason": "as asked for", "matrix": [[0.9, 0.1], [0.2, 0.8]]},
    **{"counts": [[9, 1], [2, 8]], "lower": [[0.6, 0.0], [0.1, 0.5]], "upper": [[1.0, 0.4], [0.5, 0.9]]},
    **{"pairs": 10, "left_out": 1, "smoothing": 2.0, "held_out": {"global": -0.4, "position": None}},
}
CHANNELS: list[dict[str, Any]] = [
    _FITTED,
    {"model": "position", "matrices": [_FITTED["matrix"]] * 2}
    | {name: [_FITTED[name]] * 2 for name in ("counts", "lower", "upper")}
    | {name: _FITTED[name] for name in ("letters", "reason", "pairs", "left_out", "smoothing", "held_out")},
]
SPECIFICATIONS: list[dict[str, Any]] = [
    {"tasks": ["bits:8,1"], "methods": ["sgfn-db", "random"], "noise": [0.1, "none"], "seeds": 2, "trajectories": 16},
    {"tasks": ["bits:8,1", "hypergrid:2,3"], "seeds": 1, "settings": SMALL, "track": [], "engine": "local"},
    {"tasks": ["bits:8,1"], "methods": ["all"], "noise": [0.1, 0.2, 0.3], "seeds": 3},
    {"tasks": ["bits:8,1"], "noise": ["matrix.yaml", 0.5], "retries": 1, "jobs": 2, "address": None},
]


def share_of_a(designs: list[str]) -> list[float]:
    return [design.count("A") / len(design) for design in designs]


RUNS: dict[str, dict[str, Any]] = {
    "balance": {"task": "bits:8,1", "method": "sgfn-db"},
    "planned": {"task": "bits:8,1", "method": "sgfn-kl", "settings": ["evaluation.reference=known.txt"]},
    "chains": {"task": "bits:8,1", "method": "mcmc"},
    "graph": {"task": "hypergrid:2,3", "method": "sgfn-db"},
    "table": {"table": "good.csv", "score_column": "a", "gap_score": 0.0, "method": "gfn-tb"},
    "oracle": {"oracle": share_of_a, "length": 5, "alphabet": "dna", "method": "sgfn-db"},
}
# in these the folder `outside` must not be read, because a run and not the user names it
CONFINED = {"checkpoint", "run_directory", "report", "cache"}


@dataclass
class Workshop:
    """Good files to start from, made once in the folder that the inputs are run in."""

    path: Path
    runs: dict[str, Path] = field(default_factory=dict)
    forecaster: Path | None = None

    def write(self, name: str, data: bytes) -> str:
        (self.path / name).write_bytes(data)
        return name

    def prepare(self, kinds: set[str]) -> None:
        """A secret outside, a module that must not run, and the good files; what takes memory is made now."""
        (self.path / OUTSIDE).mkdir()
        (self.path / OUTSIDE / "secret.csv").write_text("sequence,score\nSECRET,1\nTERCES,2\n")
        (self.path / f"{EVIL}.py").write_text("raise SystemExit('a stranger has run code')\n")
        self.write("good.csv", _csv(TABLE))
        self.write("series.csv", _csv(SERIES))
        self.write("matrix.yaml", b"- [0.9, 0.1]\n- [0.2, 0.8]\n")
        self.write("known.txt", b"01010101\n00000000\n")
        for name in RUNS if kinds & CONFINED else ["balance"] if "arguments" in kinds else []:
            self.run(name)
        if "forecaster" in kinds:
            self.saved_forecaster()

    def run(self, name: str) -> Path:
        """A small finished run of a kind, trained when it is first asked for."""
        if name not in self.runs:
            out = self.path / "good" / name
            self.runs[name] = stochflow.train(config=SMALL, steps=2, out=out, **RUNS[name]).path
        return self.runs[name]

    def copy(self, name: str) -> Path:
        """The same run anew, to be spoiled."""
        place = self.path / "run"
        shutil.rmtree(place, ignore_errors=True)
        return Path(shutil.copytree(self.run(name), place))

    def saved_forecaster(self) -> Path:
        if self.forecaster is None:
            fitted = StochflowForecaster(freq="MS", horizon=3, network="mlp", max_steps=2, check_every=1, num_paths=8)
            self.forecaster = Path(fitted.fit(read_frame(self.path / "series.csv")).save(self.path / "fitted"))
        place = self.path / "forecaster"
        shutil.rmtree(place, ignore_errors=True)
        return Path(shutil.copytree(self.forecaster, place))


def _csv(rows: list[list[str]]) -> bytes:
    return ("\n".join(",".join(row) for row in rows) + "\n").encode()


def done(*_: object) -> str:
    return ""


def config(shop: Workshop, random: Random) -> Call:
    """A config file that is read, resolved and printed; some are built as well."""
    shop.write("x.yaml", yaml_text(pick(random, CONFIGS), random))
    return command("config", "--config", "x.yaml", *(["--dry-run"] if random.random() < 0.3 else []))


def matrix(shop: Workshop, random: Random) -> Call:
    """A confusion matrix as CSV or YAML."""
    if random.random() < 0.5:
        name = shop.write("m.csv", cells(MATRIX, random))
    else:
        tree = pick(random, [[[0.9, 0.1], [0.2, 0.8]], {"matrix": [[0.9, 0.1], [0.2, 0.8]]}, [[[1, 0], [0, 1]]] * 8])
        name = shop.write("m.yaml", yaml_text(tree, random))
    channel = Config.model_validate({"channel": {"kind": "confusion", "file": name}}).channel
    return lambda: done(make_channel(channel, 2, 8))


def pairs(shop: Workshop, random: Random) -> Call:
    """A table of intended and observed strings, to fit a channel to."""
    ending, separator = pick(random, [(".csv", ","), (".tsv", "\t")])
    name = shop.write(f"p{ending}", cells(PAIRS, random, separator))
    options = ["--model", pick(random, ["auto", "global", "position"])]
    if random.random() < 0.3:
        options += [pick(random, ["--intended", "--count", "--alphabet"]), str(pick(random, TEXTS))]
    return command("channel", "fit", name, "--out", "channel.yaml", *options)


def channel(shop: Workshop, random: Random) -> Call:
    """A file of a fitted channel, to be shown or used."""
    name = shop.write("c.yaml", yaml_text(pick(random, CHANNELS), random))
    settings = Config.model_validate({"channel": {"kind": "confusion", "file": name}}).channel
    if random.random() < 0.5:
        return command("channel", "show", name)
    return lambda: done(make_channel(settings, 2, 2, "AC"))


def table(shop: Workshop, random: Random) -> Call:
    """A table of somebody's own."""
    ending, separator = pick(random, [(".csv", ","), (".tsv", "\t"), (".tab", "\t"), ("", ",")])
    name = shop.write(f"t{ending}", cells(TABLE, random, separator))
    settings: dict[str, Any] = {"file": name, "score_column": pick(random, ["a", "a,b", "b", "x"])}
    if random.random() < 0.3:
        settings[pick(random, ["alphabet", "scale", "variance_column", "sequence_column", "name"])] = pick(
            random, TEXTS
        )
    if random.random() < 0.98:  # surrogates of a table that is evidence take a second to fit
        settings["gap_score"] = pick(random, [0.0, 0, 1.5, 0.0, 0.0, -1.0, 1e308, "x"])
    layer: dict[str, Any] = {"task": "table", "table": settings}
    if random.random() < 0.3:
        layer["lengths"] = {"variable": True, "max_length": pick(random, [None, 4, 5, 4096])}
    if random.random() < 0.2:
        layer["reward_noise"] = pick(random, ["replicate", "gaussian", "gaussian:0.1", "gaussian:1e308", "x"])
    return lambda: done(launch.resolve_config([layer]))


def sequences(shop: Workshop, random: Random) -> Call:
    """A file of known sequences."""
    ending, good = pick(
        random,
        [
            (".txt", b"01010101\n00000000\n"),
            (".fa", b">a\n0101\n0101\n>b\n00000000\n"),
            (".csv", b"sequence\n01010101\n"),
        ],
    )
    data = good
    for _ in range(int(random.integers(1, 3))):
        data = spoiled(data, random)
    path, task = shop.path / shop.write(f"s{ending}", data), make_task("bits:8,1")
    return lambda: done(encode_for(task, read_sequences(path), str(path)))


def series(shop: Workshop, random: Random) -> Call:
    """A long table of time series, up to what a forecaster learns from; a few are forecast."""
    name = "d.csv"
    data = cells(SERIES, random)
    kind = random.random()
    if kind < 0.15:
        data, name = spoiled(_parquet(random), random) if random.random() < 0.6 else _parquet(random), "d.parquet"
    elif kind < 0.3:
        packed = io.BytesIO()
        name = pick(random, ["d.csv.gz", "d.csv.xz", "d.csv.bz2", "d.csv.zip"])
        pd.DataFrame([row[:4] for row in SERIES[1:]], columns=SERIES[0]).to_csv(
            packed, index=False, compression={"gz": "gzip", "xz": "xz", "bz2": "bz2", "zip": "zip"}[name[6:]]
        )
        data = spoiled(packed.getvalue(), random)
    shop.write(name, data)
    roles: dict[str, Any] = {"past": ("x",)} if random.random() < 0.3 else {}
    freq = pick(random, [None, None, "MS", "D", "h", "QQ", "", "0D", "999999999999D"])
    if random.random() < 0.02:
        horizon = str(pick(random, [1, 3, 0, -1, 10**9]))
        return command("forecast", name, "--horizon", horizon, "--network", "none", "--out", "f.csv", "--overwrite")

    def call() -> str:
        frame = read_frame(shop.path / name, Columns(**roles))
        encoder = Encoder.fit(frame, Columns(**roles), freq)
        return done(encoder.panel(frame))

    return call


def _parquet(random: Random) -> bytes:
    columns: dict[str, Any] = {name: [row[place] for row in SERIES[1:]] for place, name in enumerate(SERIES[0])}
    columns["y"] = [float(number) for number in columns["y"]]
    if random.random() < 0.5:
        odd = pick(
            random,
            [
                [b"x"] * 24,
                [None] * 24,
                [[1, 2]] * 24,
                [{"a": 1}] * 24,
                list(range(24)),
                [10**18] * 24,
                [float("nan")] * 24,
            ],
        )
        columns[pick(random, ["unique_id", "ds", "y", "x", "z"])] = odd
    packed = io.BytesIO()
    pd.DataFrame(columns).to_parquet(packed)
    return packed.getvalue()


def specification(shop: Workshop, random: Random) -> Call:
    """The file of a comparison, up to the runs that it plans."""
    shop.write("sweep.yaml", yaml_text(pick(random, SPECIFICATIONS), random))
    nothing_else = {"settings": (), "track": None, "oracle": (), "deterministic": False}

    def call() -> str:
        given = requested({"config": shop.path / "sweep.yaml", **nothing_else})
        return done(plan(specify(shop.path / "nowhere", given)))

    return call


def _looks(run: Path, random: Random) -> Call:
    """One of the commands that look at a run, or go on with it."""
    words = pick(
        random,
        [
            ("sample", str(run), "-n", "3"),
            ("sample", str(run), "-n", "3", "--score-samples", "--unique"),
            ("evaluate", str(run), "--json"),
            ("evaluate", str(run), "--noise", "0.1"),
            ("train", "--resume", "--out", str(run), "--steps", "3"),
        ],
    )
    return command(*words)


def checkpoint(shop: Workshop, random: Random) -> Call:
    """A checkpoint with flipped bits, or forged with a hash that fits."""
    run = shop.copy(pick(random, ["balance", "planned", "chains", "graph", "table", "oracle"]))
    manifests = sorted((run / "checkpoint").glob("*.json"))
    for manifest in manifests[:-1]:
        manifest.unlink()
    manifest = manifests[-1]
    tensors = manifest.with_suffix(".safetensors")
    kind = random.random()
    if kind < 0.2:
        victim = pick(random, [manifest, tensors])
        victim.write_bytes(spoiled(victim.read_bytes(), random))
    elif kind < 0.3:
        manifest.write_text(json.dumps(changed(json.loads(manifest.read_text()), random)))
    else:
        data = forged_tensors(tensors.read_bytes(), random)
        tensors.write_bytes(data)
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"sha256": hashlib.sha256(data).hexdigest()}))
    return _looks(run, random)


def run_directory(shop: Workshop, random: Random) -> Call:
    """A run directory of a stranger: forged settings, links, odd lines, forged results."""
    run = shop.copy(pick(random, ["balance", "planned", "graph", "table", "oracle"]))
    for victim in _victims(random):
        _forge(run, victim, random)
    return _looks(run, random)


def report(shop: Workshop, random: Random) -> Call:
    """The same, as a page: whatever stands in the run must stay text."""
    run = shop.copy(pick(random, ["balance", "planned", "graph", "table", "oracle"]))
    for victim in _victims(random):
        _forge(run, victim, random)
    call = command("report", str(run), "--out", str(shop.path / "page.html"))

    def checked() -> str:
        page = shop.path / "page.html"
        page.unlink(missing_ok=True)
        return call() or (_injected(page.read_text(encoding="utf-8")) if page.exists() else "")

    return checked


_BAIT = '"><img src=x onerror=alert(1)><script id=bait>alert(1)</script></script>'


def _victims(random: Random) -> list[str]:
    """What of a run is forged: mostly its settings, and none of it twice."""
    names = ["config", "metrics", "summary", "versions", "samples", "table", "link", "odd"]
    likely = [0.3, *[0.1] * (len(names) - 1)]
    chosen = random.choice(names, int(random.integers(1, 4)), replace=False, p=likely)
    return sorted(map(str, chosen), key=names.index)  # links and pipes last: nothing is to be written through them


def _forge(run: Path, victim: str, random: Random) -> None:
    path, secret = run / "config.yaml", str(run.parent / OUTSIDE / "secret.csv")
    tree = yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() and not path.is_symlink() else {}
    if victim == "config" and isinstance(tree, dict):
        forged: dict[str, Any] = pick(
            random,
            [
                {"table": {"file": secret}, "task": "table"},
                {"evaluation": {"reference": secret}},
                {"channel": {"kind": "confusion", "file": secret}},
                {"task": f"oracle:{EVIL}:score", "oracle": {"length": 8, "alphabet": "01"}},
                {"task": f"oracle:{EVIL}:score", "oracle": {"length": 8, "alphabet": "01", "cache": secret}},
                {"task": _BAIT},
                {"method": _BAIT},
                {"table": {"name": _BAIT}},
                {"model": {"width": 2**14, "num_layers": 64}},
                {"optimiser": {"batch_size": 2**20, "replay_size": 2**26}},
                {"evaluation": {"num_samples": 2**20}},
            ],
        )
        tree = merge(tree, forged) if random.random() < 0.5 else changed(tree, random)
        path.write_text(yaml.safe_dump(tree, allow_unicode=True), encoding="utf-8", errors="surrogatepass")
    elif victim == "metrics":
        with (run / "metrics.jsonl").open("ab") as file:
            odd = {pick(random, ["step", "loss", "regret", "trajectories", _BAIT]): value(random) for _ in range(3)}
            lines = [
                json.dumps({"step": 3} | odd),
                "[" * 5000,
                '{"step": 1e999}',
                '{"step": true, "loss": []}',
                "null",
                _BAIT,
            ]
            file.write(pick(random, lines).encode("utf-8", errors="surrogatepass") + b"\n")
    elif victim == "link":
        target = pick(random, [f"{OUTSIDE}/secret.csv", OUTSIDE, "nowhere"])
        place = run / pick(
            random, ["config.yaml", "table.csv", "metrics.jsonl", "summary.json", "samples.csv", "checkpoint"]
        )
        shutil.rmtree(place) if place.is_dir() and not place.is_symlink() else place.unlink(missing_ok=True)
        place.symlink_to(run.parent / target)
    elif victim == "odd":
        place = run / pick(
            random, ["config.yaml", "metrics.jsonl", "summary.json", "samples.csv", "reference.txt", "oracle.id"]
        )
        if place.is_dir() and not place.is_symlink():
            return
        place.unlink(missing_ok=True)
        os.mkfifo(place) if random.random() < 0.5 else place.mkdir()
    else:
        name = {"summary": "summary.json", "versions": "versions.json", "samples": "samples.csv", "table": "table.csv"}[
            victim
        ]
        place = run / name
        if not place.is_file():
            return
        data = place.read_bytes()
        if name.endswith(".json") and random.random() < 0.6:
            data = json.dumps(changed(json.loads(data) | {"noise": _BAIT}, random)).encode("utf-8", errors="replace")
        elif random.random() < 0.3:
            data = data.replace(b"0", _BAIT.encode(), 3)
        else:
            data = spoiled(data, random)
        place.unlink()
        place.write_bytes(data)


class _Reader(html.parser.HTMLParser):
    """Finds what a browser would run or load."""

    def __init__(self) -> None:
        super().__init__()
        self.found = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, text in attrs:
            if name.startswith("on") or text == "bait" or (name == "src" and text == "x"):
                self.found = f"<{tag} {name}={text}>"


def _injected(page: str) -> str:
    reader = _Reader()
    reader.feed(page)
    return f"the page holds {reader.found}" if reader.found else ""


def cache(shop: Workshop, random: Random) -> Call:
    """A database of paid scores, damaged or forged."""
    run = shop.copy("oracle")
    path = run / "oracle.sqlite"
    for other in run.glob("oracle.sqlite-*"):
        other.unlink()
    kind = random.random()
    if kind < 0.6:
        path.write_bytes(spoiled(path.read_bytes(), random))
    else:
        forged = pick(
            random,
            [
                "UPDATE scores SET score = 'text'",
                "UPDATE scores SET score = 9e999",
                "UPDATE scores SET score = -1",
                "UPDATE scores SET score = x'00ff'",
                "UPDATE scores SET payer = x'ff'",
                "DROP TABLE scores",
                "PRAGMA application_id = 7",
                "ALTER TABLE scores RENAME COLUMN score TO other",
                "CREATE VIEW more AS SELECT * FROM scores",
                "CREATE TRIGGER t AFTER INSERT ON scores BEGIN DELETE FROM scores; END",
                "DROP TABLE scores; CREATE VIEW scores AS WITH RECURSIVE n(i) AS "
                "(SELECT 1 UNION ALL SELECT i + 1 FROM n) "
                "SELECT 'o' AS oracle, 'd' AS design, i AS score, 'p' AS payer FROM n",
            ],
        )
        connection = sqlite3.connect(path)
        connection.executescript(forged)
        connection.close()
    for name in ("wal", "shm", "journal"):
        if random.random() < 0.1:
            (run / f"oracle.sqlite-{name}").write_bytes(bytes(random.integers(0, 256, 600, dtype=np.uint8)))
    return _looks(run, random)


def forecaster(shop: Workshop, random: Random) -> Call:
    """A saved forecaster, damaged or forged with a seal that fits."""
    folder = shop.saved_forecaster()
    manifest, tensors = folder / "forecaster.json", folder / "forecaster.safetensors"
    kind, tree = random.random(), json.loads(manifest.read_text())
    if kind < 0.2:
        victim = pick(random, [manifest, tensors])
        victim.write_bytes(spoiled(victim.read_bytes(), random))
    else:
        tree.pop("seal")
        if kind < 0.6:
            tree = changed(tree, random)
        else:
            tensors.write_bytes(forged_tensors(tensors.read_bytes(), random))
        if isinstance(tree, dict):
            tree["sha256"] = hashlib.sha256(tensors.read_bytes()).hexdigest()
            tree["seal"] = _seal(tree)
        manifest.write_text(json.dumps(tree))
    return lambda: done(StochflowForecaster.load(folder).predict())


COMMANDS: dict[str, list[str]] = {}


def _options() -> dict[str, list[str]]:
    """Options of every command, from the command line itself."""
    import typer

    if not COMMANDS:
        for name, found in typer.main.get_command(cli.app).commands.items():  # type: ignore[attr-defined]
            COMMANDS[name] = [
                option for parameter in found.params for option in parameter.opts if option.startswith("-")
            ]
    return COMMANDS


def arguments(shop: Workshop, random: Random) -> Call:
    """Words of a command line in any order, with values of any kind."""
    name, options = pick(random, list(_options().items()))
    run = str(shop.run("balance"))
    values = [
        *TEXTS,
        *map(str, NUMBERS),
        run,
        "good.csv",
        "series.csv",
        "matrix.yaml",
        "known.txt",
        "0.1,0.2",
        "0.4:0.6",
        "x=1",
    ]
    values += [
        "model.width=10**9",
        "model.width=1000000000",
        "optimiser.batch_size=999999999999",
        "a.b.c=1",
        "=",
        "seed=[1",
    ]
    words = [name] if random.random() < 0.97 else [pick(random, TEXTS)]
    first = {
        "sample": run,
        "evaluate": run,
        "report": run,
        "forecast": "series.csv",
        "train": "bits:8,1",
        "exact": "bits:8,1",
    }
    if name in first and random.random() < 0.8:
        words.append(first[name])
    for _ in range(int(random.integers(0, 5))):
        words.append(pick(random, options or ["--help"]))
        if random.random() < 0.8:
            words.append(str(pick(random, values)))
    if random.random() < 0.2:
        words.insert(int(random.integers(len(words) + 1)), str(pick(random, values)))
    if name == "train":
        words += [word for text in _small_settings() for word in ("--set", text)]
        words += ["--steps", "1", "--overwrite", "--out", "trained"]
    if name == "forecast":
        words += ["--network", "none", "--set", "num_paths=8", "--overwrite"]
    if name == "studio" or "--watch" in words:  # these end when they are told to
        words += ["--help"]
    if name in ("exact", "config"):
        words += ["--set", "task=bits:8,1"] if name == "config" and random.random() < 0.5 else []
    return command(*words)


def _small_settings() -> list[str]:
    return [f"{part}.{name}={number}" for part, inside in SMALL.items() for name, number in inside.items()]


KINDS: dict[str, Callable[[Workshop, Random], Call]] = {
    "config": config,
    "matrix": matrix,
    "pairs": pairs,
    "channel": channel,
    "table": table,
    "sequences": sequences,
    "series": series,
    "specification": specification,
    "checkpoint": checkpoint,
    "run_directory": run_directory,
    "report": report,
    "cache": cache,
    "forecaster": forecaster,
    "arguments": arguments,
}

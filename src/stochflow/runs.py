"""The run directory: config, versions, metrics, checkpoints, samples, summary."""

import json
import os
import platform
import shutil
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd
from torch import Tensor

from stochflow.checkpoint import load_checkpoint, save_checkpoint
from stochflow.config import Config, dump_yaml, read_yaml, resolve
from stochflow.errors import ConfigError, DataError
from stochflow.evaluation import Summary
from stochflow.files import read_limited, write_atomically

CONFIG = "config.yaml"
TABLE = "table.csv"
REFERENCE = "reference.txt"
PROFILE = "profile.txt"
PAID = "oracle.sqlite*"
SEQUENCE = "sequence"
_FILES = (
    *(CONFIG, TABLE, REFERENCE, PROFILE, "metrics.jsonl", "summary.json", "samples.csv", "samples.fasta"),
    *("versions.json", "oracle.sqlite", "oracle.id", "worker.json"),
)
_MOST_METRICS = 512 * 2**20
_PACKAGES = ("stochflow", "torch", "numpy", "scipy", "pandas")


class RunDirectory:
    """Paths and files of one run; everything but the growing `metrics.jsonl` is written atomically."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._metrics = path / "metrics.jsonl"

    @classmethod
    def create(
        cls,
        path: Path,
        config: Config,
        overwrite: bool,
        table: str | None = None,
        reference: str | None = None,
    ) -> "RunDirectory":
        """A new run directory; an old run is replaced only if asked, and anything else is never touched.

        A `table` is kept in it as CSV and a `reference` as text, whatever the config says of where they came from.
        """
        config = _with_files_in(config, Path())
        check_free(path, overwrite)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # prepared beside its place and then renamed: a run that exists has a config
            with tempfile.TemporaryDirectory(dir=path.parent, prefix=".stochflow-") as workshop:
                fresh, retired = Path(workshop) / "new", Path(workshop) / "old"
                fresh.mkdir()
                write_atomically(fresh / CONFIG, dump_yaml(config))
                if table is not None:
                    write_atomically(fresh / TABLE, table)
                if reference is not None:
                    write_atomically(fresh / REFERENCE, reference)
                write_atomically(fresh / "versions.json", json.dumps(versions(), indent=2) + "\n")
                # replacing a run must not make anybody pay again for what it knew
                for paid in path.glob(PAID):
                    shutil.copy2(paid, fresh)
                try:
                    if path.exists():
                        path.rename(retired)
                    fresh.rename(path)
                except BaseException:
                    # whatever stopped us, the old run goes back before the workshop is cleared away
                    if retired.exists() and not path.exists():
                        retired.rename(path)
                    raise
        except OSError as error:
            raise unwritable(path, error) from None
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> "RunDirectory":
        """An existing run directory."""
        if not os.path.isdir(path):
            raise DataError(f"{path} is not a run directory; give the --out of an earlier `stochflow train`")
        if not (path / CONFIG).is_file():
            raise DataError(f"{path} has no {CONFIG}, so it is not a complete run; train again with another --out")
        _check_inside(path)
        return cls(path)

    def config(self) -> Config:
        """The settings of the run; the copies of files under their paths from here, wherever the run was moved to."""
        config = resolve([read_yaml(self.path / CONFIG)])
        if config.channel.file is not None:
            raise DataError(
                f"the {CONFIG} in {self.path} names the channel file {config.channel.file}, and a run reads nothing "
                "outside of its folder; write the matrix itself into it as channel.matrix"
            )
        return _with_files_in(config, self.path)

    def rewrite_config(self, config: Config) -> None:
        """Record a config that changed on resume."""
        write_atomically(self.path / CONFIG, dump_yaml(_with_files_in(config, Path())))

    def append_metrics(self, record: dict[str, Any]) -> None:
        with self._metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def metrics(self) -> pd.DataFrame:
        """All records so far, one row per training step."""
        return pd.DataFrame(self._records())

    def rewind_metrics(self, step: int) -> None:
        """Drop records after a step: they will be made again."""
        kept = [json.dumps(record) + "\n" for record in self._records() if record["step"] <= step]
        write_atomically(self._metrics, "".join(kept))

    def save_checkpoint(self, state: dict[str, Tensor], step: int) -> None:
        save_checkpoint(self.path / "checkpoint", state, step)

    def load_checkpoint(self) -> dict[str, Tensor]:
        return load_checkpoint(self.path / "checkpoint")

    def write_samples(self, frame: pd.DataFrame) -> None:
        write_atomically(self.path / "samples.csv", format_samples(frame, "csv"))
        if SEQUENCE in frame:
            write_atomically(self.path / "samples.fasta", format_samples(frame, "fasta"))

    def write_summary(self, summary: Summary) -> None:
        write_atomically(self.path / "summary.json", summary.model_dump_json(indent=2) + "\n")

    def write_reference(self, text: str) -> None:
        write_atomically(self.path / REFERENCE, text)

    def write_profile(self, text: str) -> None:
        write_atomically(self.path / PROFILE, text)

    def summary(self) -> Summary:
        try:
            return Summary.model_validate_json(read_limited(self.path / "summary.json", 2**20))
        except OSError:
            raise DataError(f"{self.path} has no summary yet; finish it with --resume") from None
        except ValueError:
            raise DataError(f"the summary.json in {self.path} is damaged; run `stochflow evaluate` on it") from None

    def _records(self) -> list[dict[str, Any]]:
        if not self._metrics.exists():
            return []
        records = []
        try:
            text = read_limited(self._metrics, _MOST_METRICS).decode("utf-8", errors="replace")
        except OSError as error:
            raise DataError(f"{self._metrics} cannot be read ({error.strerror}); restore or remove it") from None
        for line in text.splitlines():
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                continue  # a line cut short when the machine stopped; its step is made again
            if isinstance(record, dict) and isinstance(record.get("step"), int):
                records.append(record)
        return records


def _with_files_in(config: Config, folder: Path) -> Config:
    """The config with the run's own copies of its table and reference: nothing outside of a run is ever read for it."""
    table, evaluation = config.table, config.evaluation
    if table.file is not None:
        table = table.model_copy(update={"file": str(folder / TABLE)})
    if evaluation.reference is not None:
        evaluation = evaluation.model_copy(update={"reference": str(folder / REFERENCE)})
    return config.model_copy(update={"table": table, "evaluation": evaluation})


def _check_inside(path: Path) -> None:
    """Refuse links that lead out of a run directory, to be read or written, and what is neither file nor folder."""
    root = os.path.realpath(path)
    folder = next((name for name in _FILES if os.path.isdir(path / name)), None)
    if folder is not None:
        raise DataError(f"{path / folder} is a folder, where a file belongs; remove it")
    for found in [*path.iterdir(), *(path / "checkpoint").glob("*")]:
        if found.is_symlink() and not Path(os.path.realpath(found)).is_relative_to(root):
            raise DataError(f"{found} is a link that leads out of the run directory; put the file itself there")
        if os.path.exists(found) and not os.path.isfile(found) and not os.path.isdir(found):
            raise DataError(f"{found} is neither a file nor a folder; remove it")


def unwritable(path: Path, error: OSError | ValueError) -> ConfigError:
    """What to say when a folder cannot be written to."""
    return ConfigError(f"cannot write to {path} ({getattr(error, 'strerror', error)}); choose another --out")


def check_free(path: Path, overwrite: bool) -> None:
    """Refuse a path that holds a run (unless it may be overwritten) or anything that is not a run."""
    try:
        path.lstat()  # a link that leads nowhere is something too
        if path.is_dir() and not any(path.iterdir()):
            return
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise unwritable(path, error) from None
    if not (path / CONFIG).is_file():
        raise ConfigError(f"{path} exists and is not a run directory; choose another --out")
    if not overwrite:
        raise ConfigError(
            f"{path} holds a run already; continue it with --resume, replace it with --overwrite, "
            "or choose another --out"
        )


def format_samples(frame: pd.DataFrame, style: str) -> str:
    """Designs as csv, jsonl or fasta text."""
    if style == "csv":
        return frame.to_csv(index=False)
    if style == "jsonl":
        return frame.to_json(orient="records", lines=True, double_precision=15)
    if style == "fasta":
        if SEQUENCE not in frame:
            raise ConfigError("objects of a graph are no sequences, which FASTA is made for; choose csv or jsonl")
        rows = zip(frame["sequence"], frame["score"], frame["log_prob"], strict=True)
        return "".join(
            f">design_{number} score={score:.6g} log_prob={log_prob:.6g}\n{sequence}\n"
            for number, (sequence, score, log_prob) in enumerate(rows, start=1)
        )
    raise ConfigError(f"unknown format '{style}'; choose one of: csv, fasta, jsonl")


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide the numbers."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    return found | {name: metadata.version(name) for name in _PACKAGES}

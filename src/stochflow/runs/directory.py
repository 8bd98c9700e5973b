"""The run directory: config, versions, metrics, checkpoints, samples, summary."""

import contextlib
import hashlib
import json
import os
import platform
import shutil
import tempfile
import warnings
import zlib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import BaseFileLock, FileLock, Timeout
from torch import Tensor

from stochflow.runs.checkpoint import has_checkpoint, load_checkpoint, remove_old, save_checkpoint
from stochflow.config.layers import resolve
from stochflow.config.schema import Config
from stochflow.config.yaml import dump_yaml, read_yaml
from stochflow.core.errors import ConfigError, DataError
from stochflow.evaluation.summary import Summary
from stochflow.core.files import read_limited, remove_leftovers, sync_file, sync_folder, unwritable, write_atomically

FORMAT = "1"
CONFIG = "config.yaml"
TABLE = "table.csv"
REFERENCE = "reference.txt"
PROFILE = "profile.txt"
PAID = "oracle.sqlite*"
VERSIONS = "versions.json"
LOCK = ".lock"
SEQUENCE = "sequence"
_FILES = (
    *(CONFIG, TABLE, REFERENCE, PROFILE, "metrics.jsonl", "summary.json", "samples.csv", "samples.fasta"),
    *("versions.json", "oracle.sqlite", "oracle.id", "worker.json"),
)
_MOST_METRICS = 512 * 2**20
_PACKAGES = ("stochflow", "torch", "numpy", "scipy", "pandas")
_SEAL = "# sha256 of what follows: "
CHECKSUM = "crc32"
_MARK = f', "{CHECKSUM}": "'
# a process that was killed a moment ago may still be on its way out
_PATIENCE = 5.0


class RunDirectory:
    """Paths and files of one run; everything but the growing `metrics.jsonl` is written atomically."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._metrics = path / "metrics.jsonl"
        self._lock: BaseFileLock | None = None

    @classmethod
    def create(
        cls,
        path: Path,
        config: Config,
        overwrite: bool,
        table: str | None = None,
        reference: str | None = None,
        hold: bool = False,
    ) -> "RunDirectory":
        """A new run directory; an old run is replaced only if asked, and anything else is never touched.

        A `table` is kept in it as CSV and a `reference` as text, whatever the config says of where they came from.

        Args:
            hold: as after `hold`, without a moment in which another process could take it.
        """
        config = _with_files_in(config, Path())
        check_free(path, overwrite)
        created = cls(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # prepared beside its place and then renamed: a run that exists has a config
            with tempfile.TemporaryDirectory(dir=path.parent, prefix=_workshop_prefix(path)) as workshop:
                fresh, retired = Path(workshop) / "new", Path(workshop) / "old"
                fresh.mkdir()
                with contextlib.ExitStack() as locks:
                    # held until it is in its place: that tells the workshop from one whose owner was killed
                    created._lock = _locked(fresh)
                    if (path / CONFIG).is_file():
                        locks.callback(_locked(path).release)
                    _furnish(fresh, path, config, table, reference)
                    try:
                        if path.exists():
                            path.rename(retired)
                        fresh.rename(path)
                    except BaseException:
                        # whatever stopped us, the old run goes back before the workshop is cleared away
                        if retired.exists() and not path.exists():
                            retired.rename(path)
                        raise
                sync_folder(path.parent)
        except BaseException as error:
            created.release()
            if isinstance(error, OSError):
                raise unwritable(path, error) from None
            raise
        if not hold:
            created.release()
        return created

    @classmethod
    def open(cls, path: Path) -> "RunDirectory":
        """An existing run directory."""
        if not os.path.isdir(path):
            recover(path)
        if not os.path.isdir(path):
            raise DataError(f"{path} is not a run directory; give the --out of an earlier `stochflow train`")
        if not (path / CONFIG).is_file():
            raise DataError(f"{path} has no {CONFIG}, so it is not a complete run; train again with another --out")
        _check_inside(path)
        found = _format_of(path)
        if found not in (None, FORMAT):
            raise DataError(
                f"{path} has the run format {found}, but this version of stochflow reads {FORMAT}; "
                f"use the version that its {VERSIONS} names, or train again with another --out"
            )
        return cls(path)

    def hold(self) -> None:
        """Keep other processes from training here, and clear away what killed ones left; until `release` or the end.

        Whoever only reads needs no permission.
        """
        self._lock = _locked(self.path)
        for folder in (self.path, self.path / "checkpoint"):
            remove_leftovers(folder)
        with self._writing():
            remove_old(self.path / "checkpoint")

    def release(self) -> None:
        """Let others train here."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    @property
    def begun(self) -> bool:
        """False for a run that was killed before its first checkpoint, so that nothing is lost by a fresh start."""
        return has_checkpoint(self.path / "checkpoint") or bool(self._records())

    def config(self) -> Config:
        """The settings of the run; the copies of files under their paths from here, wherever the run was moved to."""
        config = resolve([read_yaml(self.path / CONFIG)])
        if config.channel.file is not None:
            raise DataError(
                f"the {CONFIG} in {self.path} names the channel file {config.channel.file}, and a run reads nothing "
                "outside of its folder; write the matrix itself into it as channel.matrix"
            )
        return _with_files_in(config, self.path)

    def check_config(self) -> None:
        """Refuse to go on with settings that were damaged, or changed by hand without saying so."""
        try:
            first, _, text = (self.path / CONFIG).read_bytes().partition(b"\n")
        except OSError:
            return  # whoever reads the settings says so
        if first.startswith(_SEAL.encode()) and first != _sealed(text).partition(b"\n")[0]:
            raise DataError(
                f"the {CONFIG} in {self.path} is not as it was written; restore it, or remove its first line, which "
                "vouches for the others, to go on with it as it is"
            )

    def rewrite_config(self, config: Config) -> None:
        """Record a config that changed on resume."""
        with self._writing():
            write_atomically(self.path / CONFIG, _sealed(dump_yaml(_with_files_in(config, Path())).encode()))

    def append_metrics(self, record: dict[str, Any]) -> None:
        with self._writing(), self._metrics.open("a", encoding="utf-8") as file:
            file.write(_line(record))

    def metrics(self) -> pd.DataFrame:
        """All records so far, one row per training step; those that do not fit their checksum are left out."""
        return pd.DataFrame(self._records())

    def rewind_metrics(self, step: int) -> None:
        """Drop records after a step: they will be made again."""
        kept = [record for record in self._records() if record["step"] <= step]
        if [record["step"] for record in kept] != list(range(1, step + 1)):
            warnings.warn(
                f"{self._metrics} is damaged: it does not hold each of its first {step} steps once; they stay as they "
                "are, and what was learned is not affected",
                stacklevel=2,
            )
        with self._writing():
            write_atomically(self._metrics, "".join(map(_line, kept)))

    def save_checkpoint(self, state: dict[str, Tensor], step: int) -> None:
        with self._writing():
            if self._metrics.exists():
                sync_file(self._metrics)  # what led to a checkpoint must not be lost before it
            save_checkpoint(self.path / "checkpoint", state, step)

    def load_checkpoint(self) -> dict[str, Tensor]:
        return load_checkpoint(self.path / "checkpoint")

    def write_samples(self, frame: pd.DataFrame) -> None:
        with self._writing():
            write_atomically(self.path / "samples.csv", format_samples(frame, "csv"))
            if SEQUENCE in frame:
                write_atomically(self.path / "samples.fasta", format_samples(frame, "fasta"))

    def write_summary(self, summary: Summary) -> None:
        with self._writing():
            write_atomically(self.path / "summary.json", summary.model_dump_json(indent=2) + "\n")

    def write_reference(self, text: str) -> None:
        with self._writing():
            write_atomically(self.path / REFERENCE, text)

    def write_profile(self, text: str) -> None:
        with self._writing():
            write_atomically(self.path / PROFILE, text)

    def summary(self) -> Summary:
        try:
            return Summary.model_validate_json(read_limited(self.path / "summary.json", 2**20))
        except OSError:
            raise DataError(f"{self.path} has no summary yet; finish it with --resume") from None
        except ValueError:
            raise DataError(f"the summary.json in {self.path} is damaged; run `stochflow evaluate` on it") from None

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DataError(
                f"cannot write to {self.path} ({error.strerror}); free the space or allow writing there, then go on "
                "with --resume"
            ) from None

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
                record = json.loads(_checked(line))
            except (ValueError, RecursionError):
                continue  # a line cut short when the machine stopped, and made again, or a damaged one
            if isinstance(record, dict) and isinstance(record.get("step"), int):
                records.append(record)
        return records


def _line(record: dict[str, Any]) -> str:
    """A record as a line of JSON whose last entry vouches for the others."""
    text = json.dumps(record)
    return f'{text[:-1]}{_MARK}{zlib.crc32(text.encode()):08x}"}}\n'


def _checked(line: str) -> str:
    """The record of a line without its checksum; a ValueError where that does not fit. Older runs have none."""
    text, mark, end = line.rpartition(_MARK)
    if not mark:
        return line
    text += "}"
    if end != f'{zlib.crc32(text.encode()):08x}"}}':
        raise ValueError("not as it was written")
    return text


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


def recover(path: Path) -> None:
    """Put back the run that an --overwrite had taken away when it was killed, and clear away what it left behind."""
    # where it cannot be done the run is missing, or its name is refused, and that is said elsewhere
    with contextlib.suppress(OSError, ValueError):
        for workshop in path.parent.glob(f"{_workshop_prefix(path)}*"):
            lock = FileLock(workshop / "new" / LOCK)
            if (workshop / "new" / LOCK).exists():
                try:
                    lock.acquire(timeout=0)
                except Timeout:
                    continue  # somebody is at work there
            if (workshop / "old").exists() and not os.path.lexists(path):
                (workshop / "old").rename(path)
                warnings.warn(f"{path} was being replaced when that was stopped; the old run is back", stacklevel=2)
            lock.release()
            shutil.rmtree(workshop)


def is_vacant(path: Path) -> bool:
    """True where there is nothing yet, or an empty folder; what an --overwrite had taken away is put back first."""
    recover(path)
    try:
        return not os.path.lexists(path) or (path.is_dir() and not any(path.iterdir()))
    except (OSError, ValueError):
        return False  # and why it cannot be read is said when it is opened


def check_free(path: Path, overwrite: bool) -> None:
    """Refuse a path that holds a run (unless it may be overwritten) or anything that is not a run."""
    recover(path)
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
    """The format of run directories, and versions of Python and of the packages that decide the numbers."""
    found = {"run-format": FORMAT, "python": platform.python_version(), "platform": platform.platform()}
    return found | {name: metadata.version(name) for name in _PACKAGES}


def _format_of(path: Path) -> str | None:
    """The mark in versions.json; None in older runs, which have none."""
    try:
        found = json.loads((path / VERSIONS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return str(found["run-format"]) if isinstance(found, dict) and "run-format" in found else None


def _furnish(fresh: Path, path: Path, config: Config, table: str | None, reference: str | None) -> None:
    """What a run directory begins with; what the run that it replaces has paid for belongs to it."""
    write_atomically(fresh / CONFIG, _sealed(dump_yaml(config).encode()))
    if table is not None:
        write_atomically(fresh / TABLE, table)
    if reference is not None:
        write_atomically(fresh / REFERENCE, reference)
    write_atomically(fresh / VERSIONS, json.dumps(versions(), indent=2) + "\n")
    for paid in path.glob(PAID):
        shutil.copy2(paid, fresh)
        sync_file(fresh / paid.name)


def _sealed(text: bytes) -> bytes:
    """Settings below a line that vouches for them; to YAML it is a comment."""
    return f"{_SEAL}{hashlib.sha256(text).hexdigest()}\n".encode() + text


def _locked(path: Path) -> BaseFileLock:
    """The lock of a run directory, acquired; the system lets go of it when the process ends, however it ends."""
    lock = FileLock(path / LOCK, thread_local=False)
    try:
        lock.acquire(timeout=_PATIENCE)
    except Timeout:
        raise ConfigError(
            f"another process is at work in {path}; wait for it, end it, or choose another --out"
        ) from None
    except OSError as error:
        raise unwritable(path, error) from None
    return lock


def _workshop_prefix(path: Path) -> str:
    """How folders are called in which a run of this name is prepared; a name itself may be too long for more."""
    return f".stochflow-{hashlib.sha256(path.name.encode('utf-8', 'replace')).hexdigest()[:8]}-"

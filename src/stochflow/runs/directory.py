"""The run directory: config, versions, metrics, checkpoints, samples and summary of one run."""

import contextlib
import hashlib
import json
import os
import platform
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import BaseFileLock, FileLock, Timeout
from torch import Tensor

from stochflow.config.layers import resolve
from stochflow.config.schema import Config
from stochflow.config.yaml import dump_yaml, read_yaml
from stochflow.core.errors import ConfigError, DataError
from stochflow.core.files import read_limited, remove_leftovers, sync_file, sync_folder, unwritable, write_atomically
from stochflow.environments.factory import TABLE_COPY
from stochflow.evaluation.summary import Summary
from stochflow.runs.checkpoint import has_checkpoint, load_checkpoint, remove_old, save_checkpoint
from stochflow.runs.metrics_file import append_record, encode_record, read_records

FORMAT = "1"
CONFIG = "config.yaml"
REFERENCE = "reference.txt"
HELD_OUT = "held_out.csv"
PROFILE = "profile.txt"
PAID = "oracle.sqlite*"
VERSIONS = "versions.json"
LOCK = ".lock"
SEQUENCE, ORDER = "sequence", "order"
_FILES = (
    *(
        CONFIG,
        TABLE_COPY,
        REFERENCE,
        HELD_OUT,
        PROFILE,
        "metrics.jsonl",
        "summary.json",
        "samples.csv",
        "samples.fasta",
    ),
    *("versions.json", "oracle.sqlite", "oracle.id", "worker.json"),
)
_PACKAGES = ("stochflow", "torch", "numpy", "scipy", "pandas")
_CHECKSUM_LINE = "# sha256 of what follows: "
# seconds to wait for a lock: a process that was just killed may still hold it
_LOCK_TIMEOUT = 5.0


class RunDirectory:
    """Files of one run; all but `metrics.jsonl`, which grows line by line, are written atomically."""

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
        """Create a run directory; an existing run is replaced only with `overwrite`, any other folder never.

        Args:
            table: the user's table as CSV, kept in the run; the config then refers to this copy.
            reference: the known sequences as text, kept in the same way.
            hold: keep the lock, as `hold` does, without an interval in which another process could take it.
        """
        config = _with_files_in(config, Path())
        check_free(path, overwrite)
        created = cls(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # prepared in a staging folder and then renamed, so that a run directory always has a config
            with tempfile.TemporaryDirectory(dir=path.parent, prefix=_staging_prefix(path)) as staging:
                fresh, retired = Path(staging) / "new", Path(staging) / "old"
                fresh.mkdir()
                with contextlib.ExitStack() as locks:
                    # the lock marks the staging folder as in use, so that `recover` leaves it alone
                    created._lock = _locked(fresh)
                    if (path / CONFIG).is_file():
                        locks.callback(_locked(path).release)
                    _write_initial_files(fresh, path, config, table, reference)
                    try:
                        if path.exists():
                            path.rename(retired)
                        fresh.rename(path)
                    except BaseException:
                        # restore the old run before the staging folder is removed
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
        """Open an existing run directory; a DataError where it is incomplete or of another format."""
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
        """Acquire the lock for training, until `release` or the end of the process; readers need no lock.

        Temporary files and half-removed checkpoints of killed processes are deleted.
        """
        self._lock = _locked(self.path)
        for folder in (self.path, self.path / "checkpoint"):
            remove_leftovers(folder)
        with self._writing():
            remove_old(self.path / "checkpoint")

    def release(self) -> None:
        """Release the lock, so that other processes can train here."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    @property
    def begun(self) -> bool:
        """True when there is a checkpoint or a record; a run without either can start afresh without loss."""
        return has_checkpoint(self.path / "checkpoint") or bool(read_records(self._metrics))

    def config(self) -> Config:
        """The settings of the run, with the paths of its own copies of table and reference, even if it was moved."""
        config = resolve([read_yaml(self.path / CONFIG)])
        if config.channel.file is not None:
            raise DataError(
                f"the {CONFIG} in {self.path} names the channel file {config.channel.file}, and a run reads nothing "
                "outside of its folder; write the matrix itself into it as channel.matrix"
            )
        return _with_files_in(config, self.path)

    def check_config(self) -> None:
        """Raise a DataError if the settings do not match their checksum: they are damaged or were edited by hand."""
        try:
            first, _, text = (self.path / CONFIG).read_bytes().partition(b"\n")
        except OSError:
            return  # `config` reports it
        if first.startswith(_CHECKSUM_LINE.encode()) and first != _with_checksum(text).partition(b"\n")[0]:
            raise DataError(
                f"the {CONFIG} in {self.path} is not as it was written; restore it, or remove its first line, the "
                "checksum of the others, to go on with it as it is"
            )

    def rewrite_config(self, config: Config) -> None:
        """Replace the config, after a resume has changed it."""
        self.write(CONFIG, _with_checksum(dump_yaml(_with_files_in(config, Path())).encode()))

    def append_metrics(self, record: dict[str, Any]) -> None:
        with self._writing():
            append_record(self._metrics, record)

    def metrics(self) -> pd.DataFrame:
        """All records so far, one row per training step; records that do not match their checksum are left out."""
        return pd.DataFrame(read_records(self._metrics))

    def rewind_metrics(self, step: int) -> None:
        """Drop the records after a step, which a resumed run makes again."""
        kept = [record for record in read_records(self._metrics) if record["step"] <= step]
        if [record["step"] for record in kept] != list(range(1, step + 1)):
            warnings.warn(
                f"{self._metrics} is damaged: it does not hold each of its first {step} steps once; they stay as they "
                "are, and what was learned is not affected",
                stacklevel=2,
            )
        self.write(self._metrics.name, "".join(map(encode_record, kept)))

    def save_checkpoint(self, state: dict[str, Tensor], step: int) -> None:
        with self._writing():
            if self._metrics.exists():
                sync_file(self._metrics)  # records up to a checkpoint must reach the disk before it
            save_checkpoint(self.path / "checkpoint", state, step)

    def keep_newest_checkpoint(self) -> None:
        """Delete the checkpoints before the newest, once that is known to be whole."""
        self.load_checkpoint()
        with self._writing():
            remove_old(self.path / "checkpoint", 1)

    def load_checkpoint(self) -> dict[str, Tensor]:
        return load_checkpoint(self.path / "checkpoint")

    def write_samples(self, frame: pd.DataFrame) -> None:
        for style in ("csv", "fasta") if SEQUENCE in frame else ("csv",):
            self.write(f"samples.{style}", format_samples(frame, style))

    def write_summary(self, summary: Summary) -> None:
        self.write("summary.json", summary.model_dump_json(indent=2) + "\n")

    def write(self, name: str, content: bytes | str) -> None:
        """Replace one of the files of the run."""
        with self._writing():
            write_atomically(self.path / name, content)

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


def _with_files_in(config: Config, folder: Path) -> Config:
    """The config with the run's own copies of table and reference, so that nothing outside the run is read."""
    table, evaluation = config.table, config.evaluation
    if table.file is not None:
        table = table.model_copy(update={"file": str(folder / TABLE_COPY)})
    if table.file is not None and table.world is None:  # a run from before worlds had names
        table = table.model_copy(update={"world": "complete", "gap_score": 0.0})
    if evaluation.reference is not None:
        evaluation = evaluation.model_copy(update={"reference": str(folder / REFERENCE)})
    motifs = config.motifs.model_copy(update={"file": None})  # the matrices themselves are among the settings
    return config.model_copy(update={"table": table, "evaluation": evaluation, "motifs": motifs})


def _check_inside(path: Path) -> None:
    """Raise a DataError for links that lead out of a run directory, and for pipes and devices."""
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
    """Restore a run whose replacement by --overwrite was killed, and delete the staging folder that it left."""
    # on failure the run is missing or its name is invalid, which the caller reports
    with contextlib.suppress(OSError, ValueError):
        for staging in path.parent.glob(f"{_staging_prefix(path)}*"):
            lock = FileLock(staging / "new" / LOCK)
            if (staging / "new" / LOCK).exists():
                try:
                    lock.acquire(timeout=0)
                except Timeout:
                    continue  # in use by a living process
            if (staging / "old").exists() and not os.path.lexists(path):
                (staging / "old").rename(path)
                warnings.warn(f"{path} was being replaced when that was stopped; the old run is back", stacklevel=2)
            lock.release()
            shutil.rmtree(staging)


def is_vacant(path: Path) -> bool:
    """True where there is nothing yet, or an empty folder; what an --overwrite had taken away is put back first."""
    recover(path)
    try:
        return not os.path.lexists(path) or (path.is_dir() and not any(path.iterdir()))
    except (OSError, ValueError):
        return False  # and why it cannot be read is said when it is opened


def check_free(path: Path, overwrite: bool) -> None:
    """Raise a ConfigError for a path that holds a run (unless it may be overwritten) or anything else."""
    recover(path)
    try:
        path.lstat()  # a dangling link exists too
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
    """Designs as text in the format `csv`, `jsonl` or `fasta`; FASTA has the orders, where there are some."""
    if style == "csv":
        return frame.to_csv(index=False)
    if style == "jsonl":
        return frame.to_json(orient="records", lines=True, double_precision=15)
    if style == "fasta":
        if SEQUENCE not in frame:
            raise ConfigError("objects of a graph are no sequences, which FASTA is made for; choose csv or jsonl")
        name, sequence, figures = "design", SEQUENCE, ["score", "log_prob"]
        if ORDER in frame:
            name, sequence, figures = "order", ORDER, ["expected_score", "exact_probability"]
        described = zip(frame[sequence], *(frame[figure] for figure in figures), strict=True)
        return "".join(
            f">{name}_{number} {figures[0]}={first:.6g} {figures[1]}={second:.6g}\n{letters}\n"
            for number, (letters, first, second) in enumerate(described, start=1)
        )
    raise ConfigError(f"unknown format '{style}'; choose one of: csv, fasta, jsonl")


def versions() -> dict[str, str]:
    """Format of run directories, and versions of Python and of the packages that determine the numbers."""
    found = {"run-format": FORMAT, "python": platform.python_version(), "platform": platform.platform()}
    return found | {name: metadata.version(name) for name in _PACKAGES}


def _format_of(path: Path) -> str | None:
    """The format in versions.json; None in runs of the first version, which have none."""
    try:
        found = json.loads((path / VERSIONS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return str(found["run-format"]) if isinstance(found, dict) and "run-format" in found else None


def _write_initial_files(fresh: Path, path: Path, config: Config, table: str | None, reference: str | None) -> None:
    """Write the first files of a run directory; the oracle cache of the run that it replaces is copied."""
    write_atomically(fresh / CONFIG, _with_checksum(dump_yaml(config).encode()))
    if table is not None:
        write_atomically(fresh / TABLE_COPY, table)
    if reference is not None:
        write_atomically(fresh / REFERENCE, reference)
    write_atomically(fresh / VERSIONS, json.dumps(versions(), indent=2) + "\n")
    for paid in path.glob(PAID):
        shutil.copy2(paid, fresh)
        sync_file(fresh / paid.name)


def _with_checksum(text: bytes) -> bytes:
    """Settings with their SHA-256 as a YAML comment in the first line."""
    return f"{_CHECKSUM_LINE}{hashlib.sha256(text).hexdigest()}\n".encode() + text


def _locked(path: Path) -> BaseFileLock:
    """The lock of a run directory, acquired; the system releases it when the process ends, however it ends."""
    lock = FileLock(path / LOCK, thread_local=False)
    try:
        lock.acquire(timeout=_LOCK_TIMEOUT)
    except Timeout:
        raise ConfigError(
            f"another process is at work in {path}; wait for it, end it, or choose another --out"
        ) from None
    except OSError as error:
        raise unwritable(path, error) from None
    return lock


def _staging_prefix(path: Path) -> str:
    """Prefix of the staging folders of a run; a hash of its name, which itself may be too long to be extended."""
    return f".stochflow-{hashlib.sha256(path.name.encode('utf-8', 'replace')).hexdigest()[:8]}-"

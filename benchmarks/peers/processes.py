"""Workers: one process each, on one core, in its own interpreter; what they say comes back as rows."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = dict[str, Any]

ROOT = Path(__file__).parents[2]
# libraries read these when they are loaded
ONE_THREAD = {
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"),
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_PLATFORMS": "cpu",
}


class WorkerError(RuntimeError):
    """A worker failed, or said what cannot be understood."""


@dataclass(frozen=True)
class Peers:
    """Where the peers are installed.

    Attributes:
        folder: the environment that `make bench-peers` builds, with gfnx's source distribution in `sources`.
        rewards: folder of what all are told about the reward, one file per ground.
    """

    folder: Path
    rewards: Path

    def reward(self, ground: str) -> Path:
        """The file of a ground: a table of log R, or the modes of bit sequences."""
        return self.rewards / f"{ground}.bin"

    def command(self, system: str, ground: str = "tfbind8") -> list[str]:
        """The interpreter and the module that answer for a system, with what they need to know."""
        module = ["-m", f"benchmarks.peers.worker_{system}"]
        if system == "ours":
            return [sys.executable, *module, "--ground", ground]
        python, told = self.folder.absolute() / "bin" / "python", self.reward(ground).absolute()
        command = [str(python), *module, "--ground", ground, "--rewards", str(told)]
        if system == "gfnx":
            (sources,) = (path for path in (self.folder / "sources").glob("gfnx-*") if path.is_dir())
            command += ["--sources", str(sources.absolute())]
        return command


def use_one_core(core: int | None) -> None:
    """Bind this process and all that it starts to one core, the last by default, where the system can do that."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0)) if core is None else core})


def work(command: list[str], arguments: Iterable[object]) -> Iterator[Row]:
    """Run a worker and yield its rows as they come."""
    whole = [*command, *map(str, arguments)]
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    with subprocess.Popen(
        whole, cwd=ROOT, env=os.environ | ONE_THREAD | {"PYTHONPATH": path}, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield parse(line)
    if process.returncode:
        raise WorkerError(f"exit code {process.returncode} of: {' '.join(whole)}")


def parse(line: str) -> Row:
    """The row in a line of a worker, or an error that shows the line."""
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    if not isinstance(row, dict):
        raise WorkerError(f"a worker must say one JSON object per line, and said: {line.strip()[:200]}")
    return row

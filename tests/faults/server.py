"""A process that has imported and tried everything and forks one child per command, so that a life costs no start.

One JSON line in, one out. It runs as a script. A child may be killed after some time, end itself at its n-th operation
on files of a folder, with or without what a power loss takes along, or have such operations fail.
"""

import contextlib
import ctypes
import gc
import io
import json
import multiprocessing
import os
import random
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

_SUBREAPER = 36
_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000
_GRACE = 20.0
CUT = 99


class Disk:
    """Counts what a process does to files below a folder, and disturbs it at an operation.

    Args:
        at: number of the operation at which it happens; those after it are reached only when it is a failure.
        failure: error number that this operation and all later ones fail with; without one the process ends.
        power: take away what was not synced, as a power loss does.
        clock: called at every operation with its number.
    """

    def __init__(self, folder: str, at: int | None, failure: int | None, power: int | None) -> None:
        self.folder, self.at, self.failure, self.power = os.path.realpath(folder), at, failure, power
        self.count = 0
        self.synced = {path.stat().st_ino: path.stat().st_size for path in self.files()}
        for name in ("replace", "rename", "unlink", "mkdir", "rmdir"):
            self.patch(os, name, lambda path, *_, **__: True)
        self.patch(os, "fsync", lambda path, *_: True)
        writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT
        self.patch(os, "open", lambda path, flags, *_, **__: bool(flags & writing))
        self.patch(io, "open", lambda path, mode="r", *_, **__: any(letter in mode for letter in "wax+"))

    def patch(self, module: Any, name: str, counts: Any) -> None:
        function = getattr(module, name)

        def patched(first: Any, *others: Any, **options: Any) -> Any:
            if self.inside(first) and counts(first, *others, **options):
                self.happens(first)
            result = function(first, *others, **options)
            if name == "fsync":
                found = os.fstat(first)
                self.synced[found.st_ino] = found.st_size
            return result

        setattr(module, name, patched)

    def inside(self, place: Any) -> bool:
        if isinstance(place, int):
            try:
                place = os.readlink(f"/proc/self/fd/{place}")
            except OSError:
                return False
        return os.path.abspath(os.fspath(place)).startswith(self.folder)

    def happens(self, place: Any) -> None:
        self.count += 1
        if self.at is None or self.count < self.at:
            return
        if self.failure is not None:
            raise OSError(self.failure, os.strerror(self.failure), None if isinstance(place, int) else os.fspath(place))
        if self.power is not None:
            self.lose_power(random.Random(self.power))
        os._exit(CUT)

    def files(self) -> list[Path]:
        # the database of an oracle looks after itself, beyond our sight
        return [path for path in Path(self.folder).rglob("*") if path.is_file() and "sqlite" not in path.name]

    def lose_power(self, rng: random.Random) -> None:
        for path in self.files():
            found = path.stat()
            known = self.synced.get(found.st_ino, 0)
            if found.st_size > known:
                os.truncate(path, rng.randint(known, found.st_size))


def run(request: dict[str, Any]) -> None:
    """The life of a child: one command line, then the end."""
    os.setsid()
    code = 1
    with open(request["log"], "wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    try:
        from stochflow.cli import app as cli
        from stochflow.experiments.sweep import local

        os.chdir(request["cwd"])
        sys.path[:0] = request["path"]
        sys.argv = ["stochflow", *request["argv"]]
        # workers of `compare` are forked as well, for they have nothing to import either
        fork = multiprocessing.get_context("fork")
        multiprocessing.get_context = lambda method=None: fork  # type: ignore[assignment,method-assign]
        local._GRACE = 0.0  # they inherit the end of the pipe whose closing would send them home
        if request["file_size"] is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_size"],) * 2)
        disk = None
        if request["folder"] is not None:
            disk = Disk(request["folder"], request["at"], request["failure"], request["power"])
        try:
            cli.main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        if disk is not None:
            Path(f"{request['log']}.count").write_text(str(disk.count))
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def follow(pid: int, seconds: float | None) -> tuple[int, bool]:
    """Wait for a child and kill it if it lives too long; its status, and whether all that it started ended with it."""
    handle = os.pidfd_open(pid)
    ended, _, _ = select.select([handle], [], [], seconds)
    os.close(handle)
    if not ended:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    deadline = time.monotonic() + _GRACE
    while time.monotonic() < deadline:
        try:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.001)
        except ChildProcessError:
            return status, True
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    return status, False


def answer(request: dict[str, Any]) -> dict[str, Any]:
    if "shell" in request:
        done = subprocess.run(request["shell"], capture_output=True, text=True, check=False)
        return {"code": done.returncode, "text": done.stdout + done.stderr}
    started = time.monotonic()
    pid = os.fork()
    if pid == 0:
        run(request)
    status, alone = follow(pid, request["kill_after"])
    log = Path(request["log"])
    count = Path(f"{log}.count")
    reply = {
        "code": os.waitstatus_to_exitcode(status),
        "seconds": time.monotonic() - started,
        "alone": alone,
        "text": log.read_text(encoding="utf-8", errors="replace") if log.exists() else "",
        "count": int(count.read_text()) if count.exists() else None,
    }
    for path in (log, count):
        path.unlink(missing_ok=True)
    return reply


def isolate() -> bool:
    """Namespaces of our own, as `unshare --user --map-root-user --mount` makes them; whether that is allowed."""
    user, group = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None)
    if libc.unshare(_NEW_MOUNTS | _NEW_USER):
        return False
    for name, text in {"setgroups": "deny", "uid_map": f"0 {user} 1", "gid_map": f"0 {group} 1"}.items():
        Path(f"/proc/self/{name}").write_text(text)
    return True


def serve() -> None:
    """Answer until there are no more requests, or until one asks to leave; what is isolated is served by a fork."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)  # who loses a parent becomes ours
    for line in iter(sys.stdin.readline, ""):
        request = json.loads(line)
        if "leave" in request:
            return
        if "isolate" not in request:
            print(json.dumps(answer(request)), flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            allowed = isolate()
            print(json.dumps({"isolated": allowed}), flush=True)
            if allowed:
                serve()
                print(json.dumps({"left": True}), flush=True)
            os._exit(0)
        os.waitpid(pid, 0)


def warm_up() -> None:
    """Do once what every child would do for the first time: half of the time of a short command goes there."""
    import pandas as pd
    import torch

    from stochflow import api
    from stochflow.campaigns.campaign import Campaign
    from stochflow.cli import app as cli  # noqa: F401
    from stochflow.experiments.sweep import compare  # noqa: F401
    from stochflow.forecasting.forecaster import StochflowForecaster

    torch.set_num_threads(1)
    tiny = ("optimiser.batch_size=4", "optimiser.updates=1", "model.width=8", "evaluation.num_samples=4", "device=cpu")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, (task, method) in enumerate([("bits:8,4", "sgfn-kl"), ("hypergrid:2,4", "sgfn-db")]):
            run = api.train(task, method=method, steps=1, settings=tiny, out=Path(folder) / str(number))
            run.sample(2).to_csv(Path(folder) / "designs.csv")
            api.report(run.path)
        campaign = Campaign.create(Path(folder) / "lab", length=4)
        campaign.tell(campaign.ask(2)[["id"]].assign(score=1.0))
        campaign.ask(2)
        days = pd.date_range("2020-01-01", periods=30)
        StochflowForecaster(freq="D", horizon=2, network="none").fit(pd.DataFrame({"ds": days, "y": 1.0})).predict(2)


def main() -> None:
    warm_up()
    gc.freeze()  # what is never touched is never copied
    print(json.dumps({"ready": True}), flush=True)
    serve()


if __name__ == "__main__":
    main()

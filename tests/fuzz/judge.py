"""What a hostile input may lead to: success, or one sentence with exit code 2, soon, in little memory, no code run."""

import contextlib
import io
import os
import re
import resource
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from stochflow.cli import app as cli
from stochflow.core.errors import StochflowError

SECONDS = 10
MEMORY = 2 * 2**30
# nothing may read this folder, or import the module in it
OUTSIDE = "outside"
EVIL = "evil_module_of_a_stranger"
_CODE = {
    *("os.system", "os.exec", "os.posix_spawn", "os.fork", "os.spawn", "pty.spawn"),
    *("subprocess.Popen", "pickle.find_class"),
}
_LOOKS = {"open", "sqlite3.connect", "os.listdir", "os.scandir", "os.rename", "os.remove", "os.truncate"}


class Hang(BaseException):
    """Raised by the alarm; nothing that is meant to be caught."""


class RefusedError(Exception):
    """One sentence and exit code 2, as it should be."""


class Watch:
    """Hears from the interpreter itself what is opened, imported and started while an input is at work."""

    def __init__(self) -> None:
        self._secret, self._active = "", False
        self.seen, self.num_refused = "", 0
        sys.addaudithook(self._hear)

    def begin(self, secret: Path | None) -> None:
        """Count anew; nothing may open the folder `secret`."""
        self._secret, self.num_refused = str(secret or ""), 0

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        self._active, self.seen = True, ""
        try:
            yield
        finally:
            self._active = False

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._active:
            return
        started = event in _CODE or (event == "import" and arguments[0] == EVIL)
        looked = bool(self._secret) and event in _LOOKS and self._secret in os.fsdecode(_path(arguments))
        if started or looked:
            self.seen = f"{event} {arguments!r:.200}"


def _path(arguments: tuple[Any, ...]) -> Any:
    return arguments[0] if arguments and isinstance(arguments[0], str | bytes | os.PathLike) else ""


def limit_memory() -> None:
    """No more address space than there is now and two gigabytes: what needs more fails at once."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, now + MEMORY))


def problem_of(call: Callable[[], str], watch: Watch) -> str:
    """What is wrong with how an input ended; empty if nothing is."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise Hang

    # time of this process, which a busy machine does not change; and a clock for what waits for ever
    for timer, number, seconds in (
        (signal.ITIMER_PROF, signal.SIGPROF, SECONDS),
        (signal.ITIMER_REAL, signal.SIGALRM, 60),
    ):
        signal.signal(number, ring)
        signal.setitimer(timer, seconds)
    try:
        with watch.active(), warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            problem = call()
        return problem or (f"it reached what it must not: {watch.seen}" if watch.seen else "")
    except RefusedError:
        watch.num_refused += 1
        return f"it reached what it must not: {watch.seen}" if watch.seen else ""
    except StochflowError as error:
        watch.num_refused += 1
        return not_a_sentence(str(error)) or (f"it reached what it must not: {watch.seen}" if watch.seen else "")
    except Hang:
        return "it took more than 10 s: " + "".join(traceback.format_exc()[-1500:])
    except BaseException:
        return "it ended in a traceback: " + traceback.format_exc()[-3000:]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


def not_a_sentence(text: str) -> str:
    """Why an error is not one line that can be shown in a terminal; empty if it is."""
    if not text.strip():
        return "its error is empty"
    if "Traceback" in text or len(text) > 20_000:
        return f"its error is no sentence: {text[:300]!r}"
    return ""


def command(*words: str) -> Callable[[], str]:
    """`stochflow …` in this process; what is wrong with its exit code and its streams."""

    def call() -> str:
        out, err = io.StringIO(), io.StringIO()
        before = warnings.showwarning
        sys.argv = ["stochflow", *words]
        code: object = None
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                cli.main()
        except SystemExit as ended:
            code = ended.code
        finally:
            warnings.showwarning = before
        problem = _verdict(code, out.getvalue(), err.getvalue())
        if code == 2 and not problem:
            raise RefusedError
        return problem

    return call


def _verdict(code: object, out: str, err: str) -> str:
    errors = [line for line in err.splitlines() if line.startswith("Error:")]
    if "Traceback" in out + err:
        return f"it printed a traceback: {err[-2000:]}"
    if "\x1b" in err or re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", err):
        return f"it printed control characters: {err[:300]!r}"
    if code == 0:
        return f"it ended well and with an error: {errors}" if errors else ""
    if code != 2:
        return f"it ended with code {code}: {err[-500:]!r}"
    if len(errors) != 1 or not err.rstrip().splitlines()[-1].startswith("Error:"):
        return f"it ended without one sentence: {err[-500:]!r}"
    return not_a_sentence(errors[0])

"""Requests to stop: Ctrl-C, a termination request, a terminal that closes."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def stop_signal(patient: bool = False) -> Iterator[Callable[[], bool]]:
    """A function that returns True after SIGINT (Ctrl-C), SIGTERM or SIGHUP.

    Unless `patient`, a second SIGINT or SIGTERM takes its usual effect; SIGHUP comes several times as a terminal
    closes, so it never does.
    """
    requested = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield requested.is_set
        return
    hangup = getattr(signal, "SIGHUP", None)
    terminals = [stream.fileno() for stream in (sys.__stdout__, sys.__stderr__) if stream and stream.isatty()]

    def on_signal(number: int, frame: object) -> None:
        requested.set()
        if number == hangup:
            for descriptor in terminals:  # writing to a closed terminal would fail
                os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
        elif not patient:
            signal.signal(number, previous[number])

    previous: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    if hangup is not None and signal.getsignal(hangup) != signal.SIG_IGN:  # `nohup` has it ignored
        previous[hangup] = signal.getsignal(hangup)
    for number in previous:
        signal.signal(number, on_signal)
    try:
        yield requested.is_set
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Let a Ctrl-C in the middle of an import, which may take seconds, just end the process."""
    before = signal.getsignal(signal.SIGINT)
    ours = before is signal.default_int_handler and threading.current_thread() is threading.main_thread()
    if ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, before)

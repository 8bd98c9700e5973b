"""Worker process of a score function: one line of JSON in, one out. It runs as a script without stochflow."""

import importlib
import inspect
import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

Function = Callable[[list[str]], Any]


def load(name: str) -> Function:
    """Import `package.module:function`; a ValueError says why it cannot be used.

    >>> load("statistics:mean").__name__
    'mean'
    """
    module_name, _, attributes = name.partition(":")
    if not all(module_name.split(".")) or not all(attributes.split(".")):
        raise ValueError(f"'{name}' is not of the form package.module:function")
    try:
        found: Any = importlib.import_module(module_name)
    # a module may raise anything while it is imported
    except BaseException as error:
        raise ValueError(f"the module '{module_name}' cannot be imported ({described(error)})") from None
    for attribute in attributes.split("."):
        if not hasattr(found, attribute):
            raise ValueError(f"'{module_name}' has no '{attributes}'")
        found = getattr(found, attribute)
    return checked(found, name)


def checked(function: Any, name: str) -> Function:
    """The function itself; a ValueError if it is not callable or is a coroutine."""
    if not callable(function):
        raise ValueError(f"'{name}' is not a function but {type(function).__name__}")
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
        raise ValueError(f"'{name}' is a coroutine; give an ordinary function that returns the scores")
    return function


def answer(function: Function, designs: list[str]) -> dict[str, Any]:
    """{"scores": one float per design}, or {"problem": reason}.

    >>> answer(lambda designs: [len(design) for design in designs], ["AC", "ACG"])
    {'scores': [2.0, 3.0]}
    """
    try:
        given = function(list(designs))
    except BaseException as error:
        return {"problem": f"it raised {described(error)}"}
    if isinstance(given, str | bytes | dict | set) or inspect.isawaitable(given) or not hasattr(given, "__iter__"):
        return {"problem": f"it returned {type(given).__name__} instead of a list of numbers"}
    try:
        scores = list(given)
        texts = [score for score in scores if isinstance(score, str | bytes)]
        if texts:
            return {"problem": f"it returned the text {texts[0]!r} instead of a number"}
        scores = [float(score) for score in scores]
    except BaseException as error:
        return {"problem": f"what it returned are not numbers ({described(error)})"}
    if len(scores) != len(designs):
        return {"problem": f"it returned {len(scores)} scores for {len(designs)} designs"}
    return {"scores": scores}


def described(error: BaseException) -> str:
    """Type and message of an error on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")


def serve() -> None:
    """Answer requests until the parent process is gone; then exit at once, even during a call."""
    # Ctrl-C and a closing terminal are handled by the training process, which stops its workers
    for name in ("SIGINT", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    # standard output of the function goes to standard error, and its standard input is empty
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    lines: queue.Queue[str] = queue.Queue()

    def listen() -> None:
        for line in requests:
            lines.put(line)
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()

    def reply(message: dict[str, Any]) -> None:
        try:
            replies.write(json.dumps(message) + "\n")
            replies.flush()
        except BrokenPipeError:  # the parent process is gone
            os._exit(0)

    first = json.loads(lines.get())
    sys.path[:] = first["path"]
    try:
        function = load(first["function"])
    except ValueError as error:
        reply({"refused": str(error)})
        return
    reply({"scores": []})
    while True:
        reply(answer(function, json.loads(lines.get())))


if __name__ == "__main__":
    serve()

"""Errors that a user can cause or correct. A message says what was given, what is allowed and what to do.

Messages are written in options and commands; in a Python session they name arguments and functions instead.
"""

import re

_FLAG = re.compile(r"(?<![\w-])--([a-z][a-z-]*)")
_COMMAND = re.compile(r"`stochflow (train|pretrain|sample|evaluate|report|doctor|exact|compare|status)( [^`]*)?`")
# arguments whose names are not those of the options, and options without a value
_ARGUMENTS = {"set": "settings", "from": "pretrained", "format": "style", "json": "as_json", "threshold": "thresholds"}
_CONSTRAINTS = {"forbid", "gc", "fixed", "max-homopolymer", "symmetric"}
_SWITCHES = {
    *("resume", "overwrite", "deterministic", "unique", "variable-length", "score-samples", "profile"),
}
_at_the_command_line = False


def speak_as_command_line() -> None:
    """Let errors of this process name options and commands, as they are written."""
    global _at_the_command_line
    _at_the_command_line = True


def in_python(message: str) -> str:
    """A message with arguments and functions in the place of options and commands.

    >>> in_python("runs/a holds a run already; continue it with --resume, or choose another --out")
    'runs/a holds a run already; continue it with `resume=True`, or choose another `out`'
    >>> in_python("give the --out of an earlier `stochflow train`, or see `stochflow tasks`")
    'give the `out` of an earlier `stochflow.train`, or see `stochflow tasks`'
    """
    commands: list[str] = []

    def function(found: re.Match[str]) -> str:
        commands.append(
            f"`stochflow.{found[1]}({_given(found[2].split())})`" if found[2] else f"`stochflow.{found[1]}`"
        )
        return f"\0{len(commands) - 1}\0"

    text = _COMMAND.sub(function, message)
    text = _FLAG.sub(lambda found: f"`{_argument(found[1])}`", text)
    return re.sub("\0(\\d+)\0", lambda found: commands[int(found[1])], text)


def _given(words: list[str]) -> str:
    """Arguments of a call from the words of a command."""
    given: list[str] = []
    for word, before in zip(words, ["", *words], strict=False):
        name = before.removeprefix("--")
        if word.startswith("--"):
            given.append(_argument(word[2:]))
        elif before.startswith("--") and name not in _SWITCHES:
            given[-1] += f"={word}" if word.isdigit() else f"={word!r}"
        else:
            given.append(repr(word))
    return ", ".join(given)


def _argument(flag: str) -> str:
    if flag in _CONSTRAINTS:
        return f'constraints["{flag.replace("-", "_")}"]'
    return f"{flag.replace('-', '_')}=True" if flag in _SWITCHES else _ARGUMENTS.get(flag, flag.replace("-", "_"))


class StochflowError(Exception):
    """Base of all errors that the command line reports as one sentence."""

    exit_code = 2

    def __str__(self) -> str:
        message = super().__str__()
        return message if _at_the_command_line else in_python(message)


class ConfigError(StochflowError):
    """A setting is unknown, has the wrong type or lies outside its range."""


class DataError(StochflowError):
    """A data table, matrix file, run directory or checkpoint cannot be used as it is."""


class Note(UserWarning):
    """How something was understood that could be meant in two ways; the command line prints it as it is."""


class OracleError(StochflowError):
    """A score function failed or returned NaN, a negative score or the wrong number of scores."""


class DistributedError(StochflowError):
    """A process of a distributed run has ended."""

    exit_code = 1


class NumericsError(StochflowError):
    """A loss, gradient or weight is not finite; the last checkpoint is kept."""

    exit_code = 1

"""Parameters of commands, made of the table of options."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from stochflow.config.methods import METHODS
from stochflow.config.options import Option
from stochflow.environments.registry import GRAPHS, TASKS

Command = Callable[..., None]
# what a shell offers after the option
_CHOICES: dict[str, Callable[[], list[str]]] = {
    "task": lambda: [*TASKS, *GRAPHS],
    "method": lambda: list(METHODS),
}


def takes(*options: Option) -> Callable[[Command], Command]:
    """Give a command `f(**given)` the parameters of these options, by their names."""

    def decorated(command: Command) -> Command:
        signature = inspect.Signature([_parameter(option) for option in options])
        command.__signature__ = signature  # type: ignore[attr-defined]  # what typer reads; functions have no such stub
        return command

    return decorated


def _parameter(option: Option) -> inspect.Parameter:
    required = option.default is ...
    kind = option.kind if required or option.default is not None else option.kind | None
    shown: dict[str, Any] = {
        "help": _help(option),
        "metavar": option.metavar,
        "autocompletion": _CHOICES.get(option.name),
    }
    if option.flag == "":
        info = typer.Argument(**shown)
    else:
        info = typer.Option(option.flag or f"--{option.name.replace('_', '-')}", **shown)
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if required else option.default,
        annotation=Annotated[kind, info],
    )


def _help(option: Option) -> str:
    """What an option is for, and its default where typer does not say it: none, unless the text names one."""
    silent = option.default is None and option.kind is not bool and "[default:" not in option.help
    return f"{option.help}  [default: none]" if silent else option.help

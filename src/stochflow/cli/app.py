"""The command `stochflow`: its commands, and what becomes of errors."""

import sys
from typing import Annotated

import typer
from rich.markup import escape

from stochflow import __version__
from stochflow.cli import campaign, channel
from stochflow.cli.compare import INTERRUPTED, compare
from stochflow.cli.forecast import forecast, series
from stochflow.cli.inspect import doctor, evaluate, exact, methods, report, sample, show_config, tasks
from stochflow.cli.render import console, messages, plain, show_warnings, tell
from stochflow.cli.status import status
from stochflow.cli.studio import studio
from stochflow.cli.train import pretrain, train
from stochflow.core.errors import StochflowError, speak_as_command_line
from stochflow.core.processes import leads

app = typer.Typer(
    name="stochflow",
    help="Train, sample and exactly evaluate stochastic generative flow networks.",
    add_completion=True,
    pretty_exceptions_enable=False,
)
for command in (
    train,
    pretrain,
    compare,
    sample,
    evaluate,
    report,
    doctor,
    status,
    exact,
    tasks,
    methods,
    forecast,
    series,
    studio,
):
    app.command()(command)
app.command(name="config")(show_config)
app.add_typer(channel.app, name="channel")
app.add_typer(campaign.app, name="campaign")


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        console.print(f"stochflow {__version__}", highlight=False)
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


def main() -> None:
    """Entry point: errors a user can mend are one sentence on standard error, with exit code 2."""
    show_warnings()
    speak_as_command_line()
    console.quiet = messages.quiet = not leads()  # of the processes that share a run one speaks
    try:
        code = app(standalone_mode=False)
    except StochflowError as error:
        _fail(str(error), error.exit_code)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        hint = f"; see `{context.command_path} --help`" if context else ""
        _fail(f"{error.format_message().rstrip('.')}{hint}", 2)
    except (KeyboardInterrupt, typer.Abort):
        _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has enough; Python would complain at exit
        sys.exit(0)
    except (MemoryError, RuntimeError) as error:  # torch has no class of its own for it on a CPU
        if not isinstance(error, MemoryError) and "memory" not in str(error):
            raise
        _fail("there is not enough memory for this; choose smaller numbers, or free some", 2)
    except OSError as error:
        _fail(f"{error.filename or 'a file'}: {error.strerror}; free the space or choose another place", 2)
    if code == INTERRUPTED:  # typer turns Ctrl-C into this code without a word
        _fail("interrupted", INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int) -> None:
    tell(f"[bold red]Error:[/] {escape(plain(message))}")
    sys.exit(code)


if __name__ == "__main__":
    main()

"""`stochflow studio`."""

import importlib
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from stochflow.cli.render import console, tell
from stochflow.core.extras import extra
from stochflow.core.signals import importing

_LOCAL = "127.0.0.1"


def studio(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of runs and campaigns.")] = Path("runs"),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes any that is free.")] = 8321,
    oracle: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PACKAGE.MODULE:FUNCTION",
            help="Score function that runs may call; repeatable. None but those named here ever runs.  [default: none]",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Interface to listen on; another than this one is for containers.")
    ] = _LOCAL,
) -> None:
    """Open pages on this machine about the runs and campaigns of a folder: watch, start, ask, tell, download."""
    for name in ("starlette", "uvicorn"):
        extra(name, "studio")
    with importing():
        serve = importlib.import_module("stochflow.studio.server").serve

    def ready(address: str) -> None:
        console.print(
            f"Studio of {escape(str(folder))}; open this address in a browser, Ctrl-C ends it:", soft_wrap=True
        )
        print(address, flush=True)
        if host != _LOCAL:
            tell(f"It listens on {escape(host)}: whoever reaches this machine and knows the token may use it.")

    running = serve(folder, port, host, oracle or (), ready)
    if running:
        jobs = "1 job goes" if running == 1 else f"{running} jobs go"
        tell(f"{jobs} on; `stochflow studio {escape(str(folder))}` shows what becomes of it.")

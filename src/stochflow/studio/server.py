"""Listen on this machine until somebody says it is enough."""

import contextlib
import secrets
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn

from stochflow import ConfigError
from stochflow.core.files import unwritable
from stochflow.studio.app import Studio, application
from stochflow.studio.folder import Folder

HOST, PORT = "127.0.0.1", 8321


def serve(
    folder: Path,
    port: int = PORT,
    host: str = HOST,
    oracles: Sequence[str] = (),
    ready: Callable[[str], None] | None = None,
) -> int:
    """Serve the pages of a folder until Ctrl-C; returns how many jobs go on without it.

    Args:
        port: 0 for any that is free.
        host: the interface; the default is reached from this machine alone.
        oracles: names of score functions that may run.
        ready: called with the address to open, its token in it, once that answers.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(folder, error) from None
    token, studio = secrets.token_urlsafe(24), Studio(Folder(folder), oracles)
    with _listening(host, port) as listener:
        port = listener.getsockname()[1]
        config = uvicorn.Config(
            application(studio, token, host),
            http="h11",
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=1,
        )
        if ready is not None:
            ready(f"http://{host}:{port}/?token={token}")
        with contextlib.suppress(KeyboardInterrupt):  # uvicorn ends in order, and then raises what ended it
            uvicorn.Server(config).run(sockets=[listener])
    return sum(job.state == "running" for job in studio.jobs.all())


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens; a ConfigError where the port is taken or the interface is not ours."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"port {port} of {host} cannot be used ({reason}); choose another by --port, or 0") from None
    return listener

"""The application of a studio, asked without a network, and requests as its own pages make them."""

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from starlette.types import ASGIApp, Message

from stochflow.studio.app import Studio, application
from stochflow.studio.folder import Folder

TOKEN, HOST = "a-token", "127.0.0.1:8321"
COOKIE = {"cookie": f"stochflow_studio_8321={TOKEN}", "host": HOST}
OWN_PAGE = COOKIE | {"origin": f"http://{HOST}"}


class Answer(NamedTuple):
    code: int
    headers: dict[str, str]
    body: bytes

    @property
    def content(self) -> Any:
        return json.loads(self.body)


Asking = Callable[..., Answer]


def asked(
    app: ASGIApp, path: str, body: bytes | None = None, headers: Mapping[str, str] = OWN_PAGE, method: str = ""
) -> Answer:
    """One request to an application; a POST where it has a body."""
    target, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": method or ("GET" if body is None else "POST"),
        "path": target,
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    sent: list[Message] = []
    coming: list[Message] = [{"type": "http.request", "body": body or b"", "more_body": False}]

    async def receive() -> Message:
        if not coming:
            await asyncio.Event().wait()  # a browser that stays
        return coming.pop()

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return Answer(sent[0]["status"], found, b"".join(message.get("body", b"") for message in sent[1:]))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """An empty folder of a studio."""
    (tmp_path / "lab").mkdir()
    return Folder(tmp_path / "lab")


@pytest.fixture
def ask(folder: Folder) -> Asking:
    """Ask the studio of the folder; content other than bytes is sent as JSON."""
    app = application(Studio(folder, ["lab:affinity"]), TOKEN)

    def call(path: str, content: Any = None, **more: Any) -> Answer:
        body = content if content is None or isinstance(content, bytes) else json.dumps(content).encode()
        return asked(app, path, body, **more)

    return call

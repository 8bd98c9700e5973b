"""Who may ask a studio for anything: whoever knows its token, from its own pages, under its own name."""

import hmac
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stochflow.studio.folder import MAX_UPLOAD

COOKIE = "stochflow_studio"
MAX_BODY = MAX_UPLOAD + 2**10
_LOCAL = {"127.0.0.1", "localhost", "[::1]"}
_SAFE = {"GET", "HEAD"}
# pages are made of our own files alone, ask nobody else, and are shown in no frame
_HEADERS = [
    (b"content-security-policy", b"default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
     b"frame-ancestors 'none'; object-src 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"cache-control", b"no-store"),
]  # fmt: skip


class Guard:
    """Middleware that answers in the place of the application whatever must not reach it.

    Args:
        token: what a visitor must know; the printed address has it, and a cookie afterwards.
        host: a name beside those of this machine under which the studio may be reached.
    """

    def __init__(self, app: ASGIApp, token: str, host: str = "127.0.0.1") -> None:
        self._app, self._token, self._hosts = app, token, _LOCAL | {host}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        answer = self._refusal(scope, headers)
        if answer is not None:
            await answer(scope, receive, _with_headers(send))
            return
        await self._app(scope, _bounded(receive), _with_headers(send))

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        """What is answered instead; None for a request that may pass."""
        host = headers.get("host", "")
        if host.rpartition(":")[0] not in self._hosts and host not in self._hosts:
            return _refused(f"This studio is not called '{host[:100]}'; open the address that it printed.", 403)
        asked = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if asked and scope["method"] == "GET" and self._is_token(asked):
            entered = RedirectResponse(scope["path"], 303)
            name = f"{COOKIE}_{host.rpartition(':')[2]}"  # cookies are shared by all ports of a machine
            entered.set_cookie(name, self._token, httponly=True, samesite="strict")
            return entered
        if not self._knows_token(headers, host):
            return _refused("Open the address that `stochflow studio` printed; it has the token of this studio.", 403)
        if scope["method"] not in _SAFE and not _from_own_page(headers, host):
            return _refused("This request comes from another site and is refused.", 403)
        if int(headers.get("content-length", "0") or 0) > MAX_BODY:
            return _refused(_too_large(), 413)
        return None

    def _knows_token(self, headers: Headers, host: str) -> bool:
        try:
            morsel = SimpleCookie(headers.get("cookie", "")).get(f"{COOKIE}_{host.rpartition(':')[2]}")
        except CookieError:
            return False
        return morsel is not None and self._is_token(morsel.value)

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self._token.encode())


def _from_own_page(headers: Headers, host: str) -> bool:
    """True for what a page of the studio sends: a browser says where a request comes from, and a page cannot lie."""
    return urlsplit(headers.get("origin", "")).netloc == host


def _bounded(receive: Receive) -> Receive:
    """The same body, cut off by an error where it is larger than it may be, whatever it says of its length."""
    total = 0

    async def read() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total > MAX_BODY:
            raise BodyTooLargeError(_too_large())
        return message

    return read


class BodyTooLargeError(Exception):
    """A request has a larger body than is taken."""


def _too_large() -> str:
    return f"Files of more than {MAX_UPLOAD // 2**20} MB are not taken here; use the command line for them."


def _refused(sentence: str, code: int) -> Response:
    return PlainTextResponse(sentence, code)


def _with_headers(send: Send) -> Send:
    """The same answer with the headers that every answer has; those that it has already stay."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            present = {name.lower() for name, _ in message["headers"]}
            message["headers"] = [*message["headers"], *(pair for pair in _HEADERS if pair[0] not in present)]
        await send(message)

    return sent

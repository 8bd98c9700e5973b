import pytest

from stochflow.studio import guard
from tests.studio.conftest import COOKIE, OWN_PAGE, TOKEN, Asking


def test_nothing_is_shown_without_the_token(ask: Asking) -> None:
    for path in ("/", "/api/overview", "/files/studio.css", "/download?path=x", "/nowhere"):
        assert ask(path, headers={"host": "127.0.0.1:8321"}).code == 403
        assert ask(path, headers=COOKIE | {"cookie": "stochflow_studio_8321=another"}).code == 403
    assert ask("/").code == 200


def test_the_printed_address_lets_in_and_leaves_no_token_behind(ask: Asking) -> None:
    entered = ask(f"/?token={TOKEN}", headers={"host": "127.0.0.1:8321"})
    assert (entered.code, entered.headers["location"]) == (303, "/")
    cookie = entered.headers["set-cookie"]
    assert cookie.startswith(f"stochflow_studio_8321={TOKEN};")
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert ask("/?token=another", headers={"host": "127.0.0.1:8321"}).code == 403


@pytest.mark.parametrize(
    "origin", [None, "http://evil.example", "null", "http://127.0.0.1:9999", "http://localhost:8321"]
)
def test_another_site_cannot_make_the_studio_do_anything(origin: str | None, ask: Asking) -> None:
    headers = COOKIE if origin is None else COOKIE | {"origin": origin}
    refused = ask("/api/stop", {"path": "x"}, headers=headers)
    assert (refused.code, refused.body) == (403, b"This request comes from another site and is refused.")
    assert ask("/api/stop", {"path": "x"}).code == 422


def test_a_name_that_was_pointed_at_this_machine_is_refused(ask: Asking) -> None:
    answer = ask("/", headers=COOKIE | {"host": "evil.example:8321"})
    assert answer.code == 403
    assert b"not called 'evil.example:8321'" in answer.body


def test_uploads_are_bounded_whatever_they_say_of_their_length(ask: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    said = OWN_PAGE | {"content-length": str(guard.MAX_BODY + 1)}
    assert ask("/api/upload?name=a.csv", b"x", headers=said).code == 413
    monkeypatch.setattr(guard, "MAX_BODY", 10)
    answer = ask("/api/upload?name=a.csv", b"x" * 11)
    assert answer.code == 413
    assert b"are not taken here" in answer.body


def test_every_answer_forbids_requests_to_others_and_frames(ask: Asking) -> None:
    for path in ("/", "/api/overview", "/files/studio.css"):
        headers = ask(path).headers
        assert headers["content-security-policy"].startswith("default-src 'self'; img-src 'self' data:;")
        assert (headers["x-frame-options"], headers["cache-control"]) == ("DENY", "no-store")

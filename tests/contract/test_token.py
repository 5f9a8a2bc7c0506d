"""The shutdown token's form, and the resume token that only who knows the service's key can make."""

import json

import pytest

from tidegate.contract import token
from tidegate.contract.token import Shutdown, sign, verify

KEY, AT = b"drain-key", 1_800_000_000.9
TOKEN = Shutdown("Rollout", "req-1", 412, "tgr1.x.y")
FIELDS = {
    "type": "shutdown", "reason": "Rollout", "requestId": "req-1", "generatedTokens": 412, "resumeToken": "tgr1.x.y",
}  # fmt: skip


def signed() -> str:
    return sign(KEY, request_id="req-1", path="/v1/completions", generated=412, at=AT)


def test_the_error_comes_first_with_the_fields_in_it_and_beside_it() -> None:
    document = TOKEN.document()
    assert next(iter(document)) == "error"
    error = document.pop("error")
    assert document == TOKEN.fields() == FIELDS
    assert error == TOKEN.error()
    assert error == FIELDS | {
        "message": "the server is shutting down before the response is complete",
        "code": "server_shutdown",
        "param": None,
    }


def test_as_an_event_of_its_own_the_token_is_the_bare_object() -> None:
    name, data, *end = TOKEN.event().split(b"\n")
    assert (name, end) == (b"event: shutdown", [b"", b""])
    assert json.loads(data.removeprefix(b"data: ")) == FIELDS


def test_what_was_signed_is_read_by_any_key_in_force() -> None:
    claims = {"id": "req-1", "path": "/v1/completions", "n": 412, "at": 1_800_000_000}
    assert verify([KEY], signed()) == claims
    assert verify([b"next", KEY], signed()) == claims


def other_payload() -> str:
    _, _, signature = signed().split(".")
    _, payload, _ = sign(KEY, request_id="req-2", path="/", generated=0, at=AT).split(".")
    return f"tgr1.{payload}.{signature}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tgr1",
        "..",
        "tgr1..",
        "tgr1.e30.e30",
        "tgr1.é.é",
        signed()[:-1],
        signed() + "A",
        signed().replace("tgr1", "tgr2"),
        other_payload(),
    ],
)
def test_what_this_service_has_not_signed_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a resume token"):
        verify([KEY], text)


def test_another_version_s_token_is_refused_though_it_is_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as older:
        older.setattr(token, "VERSION", "tgr0")
        old = signed()
        assert verify([KEY], old)["id"] == "req-1"
    with pytest.raises(ValueError, match="not a resume token"):
        verify([KEY], old)


@pytest.mark.parametrize("keys", [[], [b"other"]])
def test_without_the_key_nothing_is_believed(keys: list[bytes]) -> None:
    with pytest.raises(ValueError, match="not a resume token"):
        verify(keys, signed())

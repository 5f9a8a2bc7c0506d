"""The key and the wait of a call."""

import pytest

from tidegate.contract.calls import MAX_WAIT_SECONDS, key_fits, parse_wait


@pytest.mark.parametrize(
    ("text", "seconds"), [("25s", 25), ("500ms", 0.5), ("1m", 60), ("3", 3), ("0.25s", 0.25), ("999999999m", 60)]
)
def test_a_wait_is_read_and_capped(text: str, seconds: float) -> None:
    assert parse_wait(text) == seconds <= MAX_WAIT_SECONDS


@pytest.mark.parametrize("text", ["", "soon", "-1s", "5h", "1.s", ".5s", "1e3", "5 s", "٣s", "1" * 10, "5s\n"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_wait(text)


def test_any_of_the_keys_will_do() -> None:
    assert key_fits(b"new", [b"new", b"old"])
    assert key_fits(b"old", [b"new", b"old"])
    assert not key_fits(b"ne", [b"new", b"old"])


@pytest.mark.parametrize(("given", "keys"), [(None, [b"key"]), (b"", [b"key"]), (b"", [b""]), (None, []), (b"x", [])])
def test_no_key_given_or_none_there_is_no_match(given: bytes | None, keys: list[bytes]) -> None:
    assert not key_fits(given, keys)

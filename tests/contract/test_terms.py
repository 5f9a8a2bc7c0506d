"""What is read from a call, and what is refused with the name of its field."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.contract.terms import MAX_SECONDS, DrainRequest, InvalidDrainError, Settings, State, seconds_of


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ([], "object"),
        ({}, "id"),
        ({"id": ""}, "id"),
        ({"id": 7}, "id"),
        ({"id": "a", "reason": 1}, "reason"),
        ({"id": "a", "remainingSeconds": "5"}, "remainingSeconds"),
        ({"id": "a", "quietSeconds": True}, "quietSeconds"),
        ({"id": "a", "flushSeconds": float("nan")}, "flushSeconds"),
        ({"id": "a", "stalledAfterSeconds": float("inf")}, "stalledAfterSeconds"),
        ({"id": "a", "propagationSeconds": 10**400}, "propagationSeconds"),
    ],
)
def test_a_wrong_body_is_refused_by_field(body: object, field: str) -> None:
    with pytest.raises(InvalidDrainError, match=field):
        DrainRequest.parse(body)


def test_a_whole_body_is_read() -> None:
    body = {
        "id": "a", "reason": "Rollout", "remainingSeconds": -2, "sinceWithdrawalSeconds": 1.5, "propagationSeconds": 5,
        "quietSeconds": 2, "flushSeconds": 3, "stalledAfterSeconds": 4, "deadline": "2026-11-29T20:00:00Z",
    }  # fmt: skip
    assert DrainRequest.parse(body) == DrainRequest("a", "Rollout", 0, 1.5, 5, 2, 3, 4)
    assert DrainRequest.parse({"id": "a", "remainingSeconds": None}).remaining is None


@pytest.mark.parametrize("body", [b"", b"not json", b'{"id": "d"', b"\xff", b"[" * 100_000])
def test_a_body_that_is_not_json_is_refused_as_such(body: bytes) -> None:
    with pytest.raises(InvalidDrainError, match="not JSON"):
        DrainRequest.from_json(body)


def test_a_body_of_json_is_read() -> None:
    assert DrainRequest.from_json(b'{"id": "d", "flushSeconds": 2}') == DrainRequest("d", flush=2)
    with pytest.raises(InvalidDrainError, match="object"):
        DrainRequest.from_json(b"[]")


def test_seconds_that_no_timer_can_count_are_thirty_years() -> None:
    assert DrainRequest.parse({"id": "a", "remainingSeconds": 1e300}).remaining == MAX_SECONDS


SECONDS = st.none() | st.integers(0, 10**9) | st.floats(0, MAX_SECONDS)


@given(st.builds(
    DrainRequest, id=st.text(min_size=1), reason=st.text(), remaining=SECONDS, since_withdrawal=st.floats(0, 1e6),
    propagation=SECONDS, quiet=SECONDS, flush=SECONDS, stalled_after=SECONDS,
))  # fmt: skip
def test_a_request_is_read_as_it_was_written(request: DrainRequest) -> None:
    assert DrainRequest.from_json(json.dumps(request.document("2026-11-29T20:00:00Z")).encode()) == request


def test_only_what_a_request_says_overrides_the_numbers_of_the_environment() -> None:
    defaults = Settings(grace=1, propagation=2, quiet=3, flush=4, stalled_after=5)
    assert DrainRequest("d").settings(defaults) == defaults
    asked = DrainRequest("d", remaining=9, propagation=0, stalled_after=0)
    assert asked.settings(defaults) == Settings(grace=1, propagation=0, quiet=3, flush=4, stalled_after=0)


@pytest.mark.parametrize("value", [True, "5", None, [], float("nan"), float("-inf"), 10**400])
def test_what_is_no_number_of_seconds_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="number of seconds"):
        seconds_of(value)


def test_seconds_keep_their_sign_for_who_may_mean_it() -> None:
    assert (seconds_of(2), seconds_of(-0.5), seconds_of(10**12)) == (2, -0.5, MAX_SECONDS)


def test_a_state_is_the_word_that_the_answer_has() -> None:
    assert [f"{state}" for state in State] == ["starting", "serving", "draining", "sealed"]
    assert json.dumps({"state": State.SEALED}) == '{"state": "sealed"}'

"""The lane notices each thing that it watches for: a fault is put into a real gateway, and must be told."""

import json
import random
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from dev.hammerlane import cli, noise, watch
from dev.hammerlane.book import Book
from dev.hammerlane.cli import ROUNDS, Round, play
from dev.hammerlane.watch import Ended, Quiet, faults, is_stray

BROKEN = Path(__file__).with_name("broken.py")
STATE: dict[str, object] = {"state": "serving", "inFlight": 0, "streams": 0, "queued": 0, "stalled": 0}
STILL = Quiet(STATE, {"in_flight": 0, "streams": 0, "queued": 0, "stalled": 0}, 30 << 20, 16)
HAMMER, FUZZ = ROUNDS


async def played(which: Round, fault: str, seconds: float) -> list[str]:
    return await play(which, [sys.executable, str(BROKEN), fault, "gateway"], seconds, 1, tell=lambda _: None)


@pytest.mark.long
@pytest.mark.parametrize("which", ROUNDS, ids=lambda each: each.name)
async def test_in_a_sound_gateway_nothing_is_found(which: Round, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without a warm-up that deserves the name memory still grows.
    monkeypatch.setattr(watch, "STEADY_BYTES", 64 << 20)
    assert await played(which, "sound", 1.0) == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "which", "told"),
    [
        ("replays", FUZZ, "was sent 1 and seen 2 times"),
        ("forgets", HAMMER, "inFlight is "),
        ("leaks_memory", HAMMER, "the memory has grown"),
        ("leaks_descriptors", HAMMER, "descriptors are open, "),
        ("prints", HAMMER, "stray line: Task exception was never retrieved"),
        ("exits_badly", HAMMER, "exit code 1 after SIGTERM"),
    ],
)
async def test_a_gateway_with_a_fault_is_found_out(
    fault: str, which: Round, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "SETTLE_SECONDS", 3.0)
    found = await played(which, fault, 3.0)
    assert any(told in each for each in found), found


async def test_a_gateway_that_dies_ends_its_round() -> None:
    with pytest.raises(Ended, match="the gateway has ended with 9"):
        await played(HAMMER, "dies", 1.0)


def test_a_round_that_cannot_be_played_is_a_fault(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def dies(*_: object) -> list[str]:
        raise Ended("the gateway has ended with 9")

    monkeypatch.setattr(cli, "play", dies)
    assert cli.main(["--seed", "3"]) == 1
    told = capsys.readouterr()
    assert told.out == "seed 3: 2 faults\n"
    assert told.err.splitlines() == [f"dev/hammer: {name}: the gateway has ended with 9" for name in ("hammer", "fuzz")]


@pytest.mark.parametrize("wrong", ["0", "-1", "inf", "nan", "soon"])
def test_a_length_that_is_none_is_refused(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--seconds", wrong])
    assert "--seconds" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (STILL, []),
        (replace(STILL, rss=40 << 20), ["the memory has grown from 30720 to 40960 KiB"]),
        (replace(STILL, open=17), ["17 descriptors are open, 16 were"]),
        (replace(STILL, state=STATE | {"queued": 2}), ["queued is 2, and nothing runs"]),
        (replace(STILL, gauges=STILL.gauges | {"streams": 1.0}), ["the metric streams is 1, and nothing runs"]),
        (replace(STILL, state=STATE | {"state": "sealed"}), ["the state is sealed, and every drain was undone"]),
    ],
)
def test_what_is_left_is_told(after: Quiet, told: list[str]) -> None:
    assert faults(STILL, after, Book(), []) == told


def test_a_request_that_its_client_sent_once_may_be_seen_once() -> None:
    book = Book(sent=Counter(a=1, b=2, c=1), seen=Counter(a=1, b=2, c=2, unknown=9))
    assert book.replayed() == ["c"]
    assert faults(STILL, STILL, book, []) == ["request c was sent 1 and seen 2 times"]


def test_an_id_that_a_fault_has_turned_into_another_one_counts_for_that() -> None:
    book = Book()
    mine, other = book.new_id(), book.new_id()
    book.note(f"X-Hammer: {mine}\r\n".encode())
    book.note(f"X-Hammer: {mine}\r\nX: {other}{other[1:]}".encode())
    assert book.sent == {mine: 2, other: 2}


@pytest.mark.parametrize(
    "line",
    [
        "Traceback (most recent call last):", "Task was destroyed but it is pending!", "", "7", '"text"', "{}",
        json.dumps({"at": 1.0, "event": "request-failed", "instance": "i"}),
    ],
)  # fmt: skip
def test_a_line_that_does_not_belong_in_the_log_is_stray(line: str) -> None:
    assert is_stray(line)
    assert faults(STILL, STILL, Book(), [line])


def test_the_events_of_the_log_are_not_stray() -> None:
    assert not is_stray(json.dumps({"at": 1.0, "event": "serving", "instance": "i", "state": "serving"}))


def test_the_same_seed_makes_the_same_noise() -> None:
    def made() -> list[bytes]:
        rng = random.Random(3)
        return [noise.mutated(noise.request("h1h", rng), rng) + noise.response(rng)[0] for _ in range(50)]

    assert made() == made()


def test_a_call_with_the_key_can_change_nothing() -> None:
    rng = random.Random(4)
    calls = [call for call in (noise.call(rng, "key") for _ in range(500)) if b"Tidegate-Key: key" in call]
    assert calls
    assert not [call for call in calls if b'remainingSeconds":0' in call or b'{"id":"noise"' in call]

"""The drain contract from the operator's side: against the service that speaks it, and against pods that do not."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from apps.running import KEY, server
from tidegate.api.errors import KeyRefused, PodTrouble, TooLate
from tidegate.core.planner.actions import DrainOrder
from tidegate.core.state.snapshot import DrainRecord
from tidegate.drain import contract
from tidegate.drain.contract import MOST_BYTES, Address, Contract, http_client
from wiring.pod_server import SOUND, Script, http, pod, said

NOW = 1_800_000_000.0
RECORD = DrainRecord("our-id", None, "Rollout", NOW - 10, NOW + 20, 30.0)


def order(**numbers: int) -> DrainOrder:
    known = {"propagation_seconds": 1, "quiet_seconds": 0, "flush_seconds": 1, "stalled_after_seconds": 300}
    return DrainOrder(pod="p", uid="u", ip="127.0.0.1", port=1, record=RECORD, **(known | numbers))


@pytest.fixture
async def talk() -> AsyncIterator[Contract]:
    client = http_client()
    yield Contract(client)
    await client.aclose()


async def trouble(talk: Contract, address: Address, key: str = KEY) -> PodTrouble:
    """What is wrong with a pod, by its kind and words."""
    with pytest.raises(PodTrouble) as caught:
        await talk.ask(address, key, NOW)
    return caught.value


async def test_a_whole_conversation_with_the_service(talk: Contract, tmp_path: Path):
    async with server(tmp_path) as running:
        address = Address("127.0.0.1", running.admin)
        idle = await talk.ask(address, KEY, NOW)
        assert (idle.state, idle.in_flight, idle.drain_id, idle.oldest_seconds, idle.at) == (
            "serving",
            0,
            None,
            None,
            NOW,
        )
        stream = running.stream(400, 100)
        while not (busy := await talk.wait(address, KEY, idle.sequence, NOW)).in_flight:
            pass
        assert (busy.in_flight, busy.instance) == (1, idle.instance)
        assert busy.sequence > idle.sequence and busy.oldest_seconds is not None
        told = await talk.start(address, KEY, order(), 0.0, NOW)
        assert (told.state, told.drain_id, told.in_flight) == ("draining", "our-id", 1)
        stream.cancel()
        while (last := await talk.wait(address, KEY, told.sequence, NOW)).state != "sealed":
            told = last
        assert (last.drain_id, last.in_flight, last.instance) == ("our-id", 0, idle.instance)
        with pytest.raises(TooLate):
            await talk.undo(address, KEY, "our-id")


async def test_undo_by_the_id_in_force_and_by_no_other(talk: Contract, tmp_path: Path):
    async with server(tmp_path) as running:
        address = Address("127.0.0.1", running.admin)
        long = order(propagation_seconds=300)
        assert (await talk.start(address, KEY, long, 0.0, NOW)).state == "draining"
        with pytest.raises(TooLate):
            await talk.undo(address, KEY, "another-id")
        await talk.undo(address, KEY, "our-id")
        assert (await talk.ask(address, KEY, NOW)).state == "serving"
        with pytest.raises(KeyRefused):
            await talk.start(address, "wrong", long, 0.0, NOW)
        with pytest.raises(KeyRefused):
            await talk.undo(address, "", "our-id")


async def test_every_way_in_which_the_service_can_be_told_to_misbehave_is_a_trouble(talk: Contract, tmp_path: Path):
    kinds = {
        "status-500": "status", "status-404": "status", "rubbish": "rubbish", "redirect": "status",
        "endless": "too-long", "lie-negative": "contradiction", "hang": "timeout",
    }  # fmt: skip
    async with server(tmp_path) as running:
        address = Address("127.0.0.1", running.admin)
        for way, kind in kinds.items():
            await running.call("POST", "/misbehave", way.encode())
            assert (await trouble(talk, address)).kind == kind, way
        await running.call("POST", "/misbehave", b"")
        assert (await talk.ask(address, KEY, NOW)).state == "serving"


async def test_post_says_every_number_and_counts_the_rest_itself(talk: Contract):
    async with pod(said(state="draining", drainId="our-id")) as script:
        await talk.start(script.address, KEY, order(quiet_seconds=2), 3.5, NOW)
    ((line, headers, body),) = script.requests
    assert (line, headers["tidegate-key"]) == ("POST /drain", KEY)
    assert json.loads(body) == {
        "id": "our-id", "reason": "Rollout", "remainingSeconds": 20.0, "sinceWithdrawalSeconds": 3.5,
        "propagationSeconds": 1, "quietSeconds": 2, "flushSeconds": 1, "stalledAfterSeconds": 300,
        "deadline": "2027-01-15T08:00:20.000Z",
    }  # fmt: skip


async def test_a_held_drain_has_neither_rest_nor_deadline_and_a_late_one_no_rest(talk: Contract):
    held = replace(order(), record=replace(RECORD, deadline=None))
    async with pod(said(state="draining", drainId="our-id")) as script:
        await talk.start(script.address, KEY, held, 0.0, NOW)
        await talk.start(script.address, KEY, order(), 0.0, NOW + 90)
    first, second = (json.loads(body) for _, _, body in script.requests)
    assert (first["remainingSeconds"], first["deadline"]) == (None, None)
    assert second["remainingSeconds"] == 0


async def test_the_waiting_get_and_the_undo_name_what_they_are_about(talk: Contract):
    async with pod(said()) as script:
        await talk.wait(script.address, KEY, 817, NOW)
        await talk.undo(script.address, KEY, "a/b")
    lines = [line for line, _, _ in script.requests]
    assert lines == [f"GET /drain?wait={contract.WAIT_SECONDS:.0f}s&since=817", "DELETE /drain?id=a%2Fb"]


async def test_an_empty_answer_to_an_undo_is_fine_and_to_a_question_it_is_not(talk: Contract):
    async with pod(http(204)) as script:
        await talk.undo(script.address, KEY, "our-id")
        assert (await trouble(talk, script.address)).kind == "rubbish"


WRONG = {
    "no contract": ({"contract": ...}, "contract"),
    "another contract": ({"contract": "v2"}, "contract"),
    "no instance": ({"instance": ...}, "contract"),
    "an empty instance": ({"instance": ""}, "contract"),
    "an endless instance": ({"instance": "x" * 129}, "contract"),
    "an unknown state": ({"state": "fine"}, "contradiction"),
    "no state": ({"state": ...}, "contradiction"),
    "a state that is a list": ({"state": ["serving"]}, "contradiction"),
    "no count": ({"inFlight": ...}, "contract"),
    "a count in words": ({"inFlight": "0"}, "contract"),
    "a count with a fraction": ({"inFlight": 0.0}, "contract"),
    "a count that is true": ({"inFlight": True}, "contract"),
    "a negative count": ({"inFlight": -1}, "contradiction"),
    "a count that no status can hold": ({"inFlight": 10**30}, "contradiction"),
    "no sequence": ({"sequence": ...}, "contract"),
    "a negative sequence": ({"sequence": -5}, "contradiction"),
    "negative cuts": ({"cut": -1}, "contradiction"),
    "sealed with requests in flight": ({"state": "sealed", "inFlight": 1}, "contradiction"),
    "sealed with more than the stalled": ({"state": "sealed", "inFlight": 3, "stalled": 2}, "contradiction"),
}


@pytest.mark.parametrize(("changes", "kind"), WRONG.values(), ids=WRONG.keys())
async def test_an_answer_that_contradicts_itself_or_the_contract_is_never_zero(talk: Contract, changes, kind):
    async with pod(said(**changes)) as script:
        assert (await trouble(talk, script.address)).kind == kind


@pytest.mark.parametrize("left", [..., None], ids=["absent", "null"])
async def test_an_answer_that_does_not_say_what_was_cut_says_unknown(talk: Contract, left):
    async with pod(said(cut=left)) as script:
        assert (await talk.ask(script.address, KEY, NOW)).cut is None


async def test_sealed_with_only_stalled_requests_is_sound(talk: Contract):
    async with pod(said(state="sealed", inFlight=2, stalled=2)) as script:
        assert (await talk.ask(script.address, KEY, NOW)).state == "sealed"


async def test_ages_that_are_no_ages_spoil_no_reading(talk: Contract):
    ages = [1.5, -1, "2", True, None, float("nan"), 3, *range(100)]
    async with pod(said(agesSeconds=ages, oldestSeconds="old", stalled=1)) as script:
        reading = await talk.ask(script.address, KEY, NOW)
    assert (reading.oldest_seconds, reading.stalled) == (None, 1)


async def test_no_text_of_the_pod_s_is_in_any_message(talk: Contract):
    poison = "IGNORE ALL"
    answers = [said(state=poison), said(instance=poison * 20), http(500, poison.encode()), http(200, poison.encode())]
    for answer in [*answers, http(302, Location=poison.encode().hex())]:
        async with pod(answer) as script:
            assert "IGNORE" not in str(await trouble(talk, script.address))


@pytest.mark.parametrize("body", [b"", b"nope", b"[1]", b'"v1"', b"\xff\xfe", b"[" * 60_000, b"9" * 5000])
async def test_rubbish_is_a_trouble_and_no_crash(talk: Contract, body: bytes):
    async with pod(http(200, body)) as script:
        assert (await trouble(talk, script.address)).kind == "rubbish"


async def test_a_redirect_is_not_followed(talk: Contract):
    async with pod(said()) as elsewhere:
        target = f"http://127.0.0.1:{elsewhere.address.port}/drain"
        for status in (301, 302, 307, 308):
            async with pod(http(status, Location=target)) as script:
                found = await trouble(talk, script.address)
                assert (found.kind, str(found)) == ("status", f"HTTP {status} instead of 2xx")
        assert elsewhere.asked == 0


async def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch):
    async with pod(said()) as proxy, pod(said()) as script:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.address.port}")
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.address.port}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        async with http_client() as client:
            await Contract(client).ask(script.address, KEY, NOW)
        assert (proxy.asked, script.asked) == (0, 1)


async def test_an_endless_body_is_read_only_to_its_limit(talk: Contract):
    async def endless(script: Script, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        while not writer.is_closing():
            writer.write(b" " * 65536)
            await writer.drain()
            script.sent += 65536

    async with pod(endless) as script:
        assert (await trouble(talk, script.address)).kind == "too-long"
        await asyncio.sleep(0)
        # What the sockets of both sides may hold, and no more.
        assert script.sent < 64 * MOST_BYTES


async def test_a_small_body_that_unpacks_to_a_large_one_is_not_unpacked(talk: Contract):
    bomb = gzip.compress(b" " * 30_000_000 + json.dumps(SOUND).encode())
    assert len(bomb) < MOST_BYTES
    async with pod(http(200, bomb, Content_Encoding="gzip")) as script:
        assert (await trouble(talk, script.address)).kind == "rubbish"
    assert "gzip" not in script.requests[0][1].get("accept-encoding", "")


async def test_a_body_that_drips_for_ever_ends_by_time(talk: Contract, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(contract, "CALL_SECONDS", 0.4)

    async def drip(script: Script, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        while not writer.is_closing():
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.05)

    async with pod(drip) as script:
        assert (await trouble(talk, script.address)).kind == "timeout"


async def test_a_connection_that_breaks_and_a_port_where_nobody_listens(talk: Contract):
    async with pod(b"") as script:
        assert (await trouble(talk, script.address)).kind == "broken"
    assert (await trouble(talk, script.address)).kind == "refused"
    async with pod(b"nonsense\r\n\r\n") as script:
        assert (await trouble(talk, script.address)).kind == "broken"


async def test_an_address_of_version_6_is_put_into_brackets():
    assert Address("fd00::1", 9901).url == "http://[fd00::1]:9901/drain"
    assert Address("192.0.2.1", 9901).url == "http://192.0.2.1:9901/drain"


def test_the_client_follows_nothing_and_trusts_no_environment():
    client = http_client()
    assert (client.follow_redirects, client.trust_env) == (False, False)
    assert isinstance(client, httpx.AsyncClient)

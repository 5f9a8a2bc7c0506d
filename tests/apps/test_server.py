"""The server over real sockets: the contract's calls, the streams under a drain, signals, and what it logs."""

import asyncio
from pathlib import Path

from apps.check import Client
from apps.running import call, server


async def test_streams_and_whole_answers_are_complete(tmp_path: Path) -> None:
    async with server(tmp_path, VERSION="v2") as s:
        client = Client(s.target, keep_alive=True)
        for number in range(3):
            exchange = await s.ask(client, f"a{number}", 5, 0)
            assert (exchange.tokens, exchange.pod, exchange.version, exchange.reused) == (5, "pod-0", "v2", number > 0)
        assert (await s.ask(client, "w", 3, 100, stream=False)).tokens == 3
        models = await call(s.port, "GET", "/v1/models")
        assert models.json()["data"][0]["id"] == "v2"
        text = await call(s.port, "POST", "/v1/completions", b'{"max_tokens": 2}')
        assert text.json()["choices"] == [{"index": 0, "finish_reason": "stop", "text": "1 2 "}]
        ends = s.named("stream-end")
        assert [(end["id"], end["tokens"], end["whole"]) for end in ends] == [(f"a{n}", 5, True) for n in range(3)]


async def test_the_log_proves_what_was_held_at_withdrawal(tmp_path: Path) -> None:
    async with server(tmp_path) as s:
        streams = [s.stream(75, 25, f"s{number}") for number in range(3)]
        await s.logged("stream-start", 3)
        await s.drain(reason="Rollout", propagationSeconds=0.1)
        await s.sealed()
        await asyncio.gather(*streams)
        [drain], [withdrawn] = s.named("drain"), s.named("withdrawn")
        assert sorted(withdrawn["streams"]) == sorted(entry["id"] for entry in drain["streams"]) == ["s0", "s1", "s2"]
        assert drain["reason"] == "Rollout"
        ends = {end["id"]: end for end in s.named("stream-end")}
        assert all(ends[name]["whole"] and ends[name]["at"] > withdrawn["withdrawnAt"] for name in withdrawn["streams"])
        assert [entry["event"] for entry in s.events][-1] == "sealed"


async def test_a_start_takes_its_time_and_every_start_has_another_instance(tmp_path: Path) -> None:
    seen = set()
    for _ in range(2):
        async with server(tmp_path, START_SECONDS="60") as s:
            assert (await s.call("GET", "/readyz")).status == 503
            assert (await s.call("GET", "/livez")).status == 200
            state = await s.state()
            assert state["state"] == "starting"
            seen.add(state["instance"])
            assert (await s.drain(propagationSeconds=0))["drainId"] == "d"
            assert (await s.sealed())["inFlight"] == 0
            (tmp_path / "pod-0.jsonl").unlink()
    assert len(seen) == 2


async def test_what_is_not_a_request_of_the_contract_is_refused(tmp_path: Path) -> None:
    async with server(tmp_path) as s:
        assert (await s.call("PUT", "/drain", {"id": "d"})).status == 405
        assert (await s.call("GET", "/elsewhere")).status == 404
        assert (await s.call("POST", "/misbehave", b"dance")).status == 400
        assert (await call(s.port, "POST", "/v1/completions", b"{")).status == 400
        assert (await call(s.port, "POST", "/v1/completions", b'{"max_tokens": -1}')).status == 400
        assert (await call(s.port, "GET nonsense", "/")).status == 400


async def test_told_to_hurry_what_runs_ends_at_once_and_whole_and_what_begins_later_takes_its_time(
    tmp_path: Path,
) -> None:
    async with server(tmp_path) as s:
        running = [s.stream(3600, 1, f"s{number}") for number in range(2)]
        await s.logged("stream-start", 2)
        assert (await call(s.port, "POST", "/hurry")).json() == {"running": 2}
        assert [exchange.tokens for exchange in await asyncio.gather(*running)] == [3600, 3600]
        later = s.stream(3600, 1, "later")
        await s.logged("stream-start", 3)
        await s.logged("stream-end", 2)
        assert {end["id"] for end in s.named("stream-end")} == {"s0", "s1"}
        later.cancel()

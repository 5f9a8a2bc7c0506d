"""Each kind of service with an endpoint of its own is what it says, LiteLLM's traps included."""

import asyncio
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from apps.running import Answered, Server, call, server

TOKEN = {"X-Drain-Token": "s3cret"}


def foreign(directory: Path, kind: str, **env: str) -> AbstractAsyncContextManager[Server]:
    return server(directory, key=None, module="apps.foreign", KIND=kind, **env)


async def ask(s: Server, method: str, path: str, headers: Mapping[str, str] | None = None) -> Answered:
    return await call(s.port, method, path, headers=headers)


@pytest.mark.parametrize(("kind", "method"), [("blocking-get", "GET"), ("blocking-post", "POST")])
async def test_a_blocking_call_answers_after_the_last_request(tmp_path: Path, kind: str, method: str) -> None:
    async with foreign(tmp_path, kind) as s:
        stream = s.stream(3600, 1)
        await s.logged("stream-start")
        drain = asyncio.create_task(ask(s, method, "/internal/drain"))
        await s.logged("drain-call")
        assert (await ask(s, "POST", "/hurry")).status == 200
        assert (await drain).status == 200
        order = [line["event"] for line in s.events if line["event"] in ("drain-call", "stream-end", "drain-answer")]
        assert order == ["drain-call", "stream-end", "drain-answer"]
        assert (await stream).tokens == 3600
        other = "POST" if method == "GET" else "GET"
        assert (await ask(s, other, "/internal/drain")).status == 503
        assert (await call(s.port, "POST", "/v1/completions", b'{"max_tokens": 2}')).status == 503


async def test_a_count_counts_its_reader(tmp_path: Path) -> None:
    async with foreign(tmp_path, "counting") as s:
        assert (await ask(s, "GET", "/internal/stats")).json() == {"requests": {"active": 1}}
        stream = s.stream(200, 20)
        await s.logged("stream-start")
        assert (await ask(s, "POST", "/internal/drain")).status == 202
        assert (await ask(s, "GET", "/internal/stats")).json() == {"requests": {"active": 2}}
        assert not s.named("stream-end")
        stream.cancel()


async def test_litellm_turns_liveness_off_gives_up_with_200_and_still_serves(tmp_path: Path) -> None:
    async with foreign(tmp_path, "litellm", DRAIN_ENDPOINT_TOKEN="s3cret", GRACEFUL_SHUTDOWN_TIMEOUT="0.3") as s:
        probes = ("/health/readiness", "/health/liveliness", "/health/liveness")
        assert [(await ask(s, "GET", path)).status for path in probes] == [200, 200, 200]
        for wrong in ({}, {"X-Drain-Token": "s3cre"}):
            assert (await ask(s, "GET", "/health/drain", wrong)).status == 401
        assert (await ask(s, "GET", "/health/readiness")).status == 200
        stream = s.stream(200, 20)
        await s.logged("stream-start")
        answer = await ask(s, "GET", "/health/drain", TOKEN)
        assert (answer.status, s.named("drain-answer")[-1]["inFlight"]) == (200, 1)
        assert [(await ask(s, "GET", path)).status for path in probes] == [503, 503, 503]
        assert (await ask(s, "GET", "/health/backlog", TOKEN)).json() == {"in_flight_requests": 2}
        assert (await call(s.port, "POST", "/v1/completions", b'{"max_tokens": 2}')).status == 200
        assert not s.named("stream-end")[1:]
        stream.cancel()


async def test_a_kind_that_is_not_there_ends_the_process(tmp_path: Path) -> None:
    async with server(tmp_path, key=None, module="apps.foreign", listen=False, KIND="other") as s:
        assert await s.exited() == 2

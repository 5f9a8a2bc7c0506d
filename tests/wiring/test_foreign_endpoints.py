"""Drain endpoints of applications' own: the operator's client and its sessions against real services on loopback.

Where only times and counts matter, a script answers without a socket, in virtual time.
"""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from apps.running import LIMIT_SECONDS, Server, server
from tidegate.api.errors import PodTrouble, TooLate
from tidegate.api.foreign import Foreign, SecretKeyRef
from tidegate.core.planner.actions import DrainOrder, Question
from tidegate.core.state.snapshot import DrainRecord, Reading
from tidegate.drain import foreign as endpoints
from tidegate.drain.contract import MOST_BYTES, Address, Contract, Peer, http_client
from tidegate.drain.dialects import Dialects
from tidegate.drain.foreign import ForeignEndpoints
from tidegate.drain.sessions import Sessions
from wiring.pod_server import Script, http, pod
from wiring.scripted_pod import now, virtual

RUN = "0/start/abc"
HEADER = {"name": "X-Drain-Token", "secretKeyRef": {"name": "my-app", "key": "drain"}}
STATS = {"path": "/internal/stats", "pointer": "/requests/active", "offset": 1}
BACKLOG = {"path": "/health/backlog", "pointer": "/in_flight_requests", "offset": 1}
SPECS: dict[str, dict[str, Any]] = {
    "blocking-get": {"method": "GET", "path": "/internal/drain", "answersWhenOver": True},
    "blocking-post": {"method": "POST", "path": "/internal/drain", "answersWhenOver": True, "header": HEADER},
    "counting": {"method": "POST", "path": "/internal/drain", "count": STATS},
    "litellm": {
        "method": "GET", "path": "/health/drain", "answersWhenOver": True, "header": HEADER, "count": BACKLOG,
    },
}  # fmt: skip


def spec(kind: str, **changes: Any) -> Foreign:
    return Foreign.parse_at("foreign", SPECS[kind] | changes)


def service(directory: Path, kind: str, **env: str) -> AbstractAsyncContextManager[Server]:
    return server(directory, key=None, module="apps.foreign", KIND=kind, **env)


@dataclass
class Desk:
    """Sessions over real sockets, and what the API server would know: the Secret, and the start of the container."""

    client: httpx.AsyncClient
    secret: str = "s3cret"
    run: str = RUN
    clock: Callable[[], float] = time.time
    secrets_read: int = 0
    wakes: int = 0
    woken: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.endpoints = ForeignEndpoints(self.client, self._secret, self._run)
        self.talk = Dialects(Contract(self.client), self.endpoints)
        self.sessions = Sessions(self.talk, self._keys, self._absent, self._wake, self.clock)

    async def _secret(self, namespace: str, ref: SecretKeyRef) -> str:
        assert (namespace, ref.name, ref.key) == ("shop", "my-app", "drain")
        self.secrets_read += 1
        return self.secret

    async def _run(self, namespace: str, name: str, uid: str) -> str:
        assert (namespace, name, uid) == ("shop", "v1-1", "u")
        return self.run

    async def _keys(self, key: str, fresh: bool) -> tuple[str, ...]:
        return ("drain key",)

    async def _absent(self, key: str, order: DrainOrder) -> bool:
        return True

    def _wake(self, key: str) -> None:
        self.wakes += 1
        self.woken.set()

    @property
    def heard(self) -> Reading | None:
        return self.sessions.readings.get("u")

    @property
    def trouble(self) -> str | None:
        found = self.sessions.troubles.get("u")
        return found.kind if found else None

    def want(self, *orders: DrainOrder) -> None:
        self.sessions.want("shop/chat", orders, ())

    async def ask(self, question: Question) -> None:
        self.sessions.want("shop/chat", (), [question])
        await self.until(lambda: self.heard is not None or self.trouble is not None)

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            while not condition():
                self.woken.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.woken.wait(), 0.05)

    async def sealed(self) -> Reading:
        await self.until(lambda: self.heard is not None and self.heard.state == "sealed")
        assert self.heard is not None
        return self.heard


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    async with opened(Desk(http_client())) as found:
        yield found


@contextlib.asynccontextmanager
async def opened(desk: Desk) -> AsyncIterator[Desk]:
    yield desk
    await desk.sessions.close()
    await desk.endpoints.close()
    await desk.client.aclose()


@contextlib.asynccontextmanager
async def scripted(answer: Callable[[str], Awaitable[httpx.Response]]) -> AsyncIterator[tuple[Desk, Script]]:
    """A desk whose pod is `answer`, called with the method, in virtual time: there is no socket."""
    script = Script()

    async def handle(request: httpx.Request) -> httpx.Response:
        script.requests.append((f"{request.method} {request.url.path}", dict(request.headers), request.content))
        return await answer(request.method)

    async with opened(Desk(httpx.AsyncClient(transport=httpx.MockTransport(handle)), clock=now)) as desk:
        yield desk, script


def active(count: int) -> httpx.Response:
    # A stream, as a connection gives: the client reads it bit by bit.
    return httpx.Response(200, stream=httpx.ByteStream(json.dumps({"requests": {"active": count}}).encode()))


def order(
    s: Server | Script,
    foreign: Foreign,
    *,
    budget: float | None = 600.0,
    run: str = RUN,
    begun: float | None = None,
    **numbers: int,
) -> Any:
    begun = time.time() if begun is None else begun
    record = DrainRecord("our-id", RUN, "Rollout", begun, None if budget is None else begun + budget, budget)
    known = {"propagation_seconds": 1, "quiet_seconds": 0, "flush_seconds": 1, "stalled_after_seconds": 300}
    return DrainOrder(
        pod="v1-1", uid="u", ip="127.0.0.1", port=s.port, record=record, foreign=foreign, run=run, **(known | numbers)
    )


def question(s: Server | Script, foreign: Foreign) -> Question:
    return Question("u", "127.0.0.1", s.port, foreign, RUN)


def address(script: Script, foreign: Foreign, drain_id: str | None = "our-id") -> Address:
    return Address("127.0.0.1", script.port, Peer("shop", "u", foreign, RUN, "v1-1", drain_id))


# -- an endpoint that answers when it is over


@pytest.mark.parametrize(("kind", "env"), [("blocking-get", {}), ("blocking-post", {"DRAIN_ENDPOINT_TOKEN": "s3cret"})])
async def test_a_drain_is_over_when_the_blocking_call_says_so(
    desk: Desk, tmp_path: Path, kind: str, env: dict[str, str]
):
    async with service(tmp_path, kind, **env) as s:
        stream = s.stream(120, 20)
        await s.logged("stream-start")
        desk.want(held := order(s, spec(kind)))
        await s.logged("drain-call")
        assert desk.heard is not None
        assert (desk.heard.state, desk.heard.drain_id, desk.heard.in_flight) == ("draining", "our-id", None)
        last = await desk.sealed()
        assert (last.in_flight, last.drain_id, last.instance, last.cut) == (0, "our-id", RUN, 0)
        assert (await stream).tokens == 120
        (called,) = s.named("drain-call")
        assert called["streams"] == [s.named("stream-start")[0]["id"]]
        # Nobody is refused who was still sent here: the endpoint is called when the propagation time is over.
        assert float(str(called["at"])) >= held.record.since + 1
        assert not s.named("refused") and not s.named("drain-caller-gone")


async def test_a_new_deadline_does_not_call_again(desk: Desk, tmp_path: Path):
    async with service(tmp_path, "blocking-get") as s:
        stream = s.stream(120, 20)
        await s.logged("stream-start")
        desk.want(order(s, spec("blocking-get")))
        await s.logged("drain-call")
        for budget in (700.0, None, 800.0):
            desk.want(order(s, spec("blocking-get"), budget=budget))
            await asyncio.sleep(0.05)
        await desk.sealed()
        assert len(s.named("drain-call")) == 1 and not s.named("drain-caller-gone")
        await stream


@virtual
async def test_a_call_that_nobody_waits_for_is_given_up():
    async def answer(method: str) -> httpx.Response:
        return httpx.Response(200)

    async with scripted(answer) as (desk, script):
        late = int(2 * endpoints.IDLE_SECONDS)
        desk.want(order(script, spec("blocking-get"), begun=now(), budget=None, propagation_seconds=late))
        await desk.until(lambda: desk.heard is not None)
        desk.sessions.forget("shop/chat", set())
        # The propagation time is not over yet, and the call is never made.
        await asyncio.sleep(2 * late)
        assert script.asked == 0 and desk.endpoints._drains == {}


async def test_an_operator_that_ends_gives_up_its_calls(desk: Desk, tmp_path: Path):
    async with service(tmp_path, "blocking-get") as s:
        stream = s.stream(2000, 20)
        await s.logged("stream-start")
        desk.want(order(s, spec("blocking-get"), budget=None))
        await s.logged("drain-call")
        await desk.sessions.close()
        await desk.endpoints.close()
        await s.logged("drain-caller-gone")
        stream.cancel()


async def test_the_budget_bounds_the_call(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(endpoints, "CALL_SECONDS", 0.1)
    async with service(tmp_path, "blocking-get") as s:
        stream = s.stream(2000, 20)
        await s.logged("stream-start")
        desk.want(order(s, spec("blocking-get"), budget=1.2))
        await s.logged("drain-caller-gone")
        await desk.until(lambda: desk.trouble == "timeout")
        assert desk.heard is not None and desk.heard.state == "draining"
        stream.cancel()


async def test_a_call_that_answers_when_it_is_over_is_given_the_time_that_the_budget_leaves(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(endpoints, "CALL_SECONDS", 0.05)

    async def answer(script: Script, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.5)
        writer.write(http(200))
        await writer.drain()

    async with pod(answer) as script:
        desk.want(order(script, spec("blocking-get")))
        await desk.sealed()
        assert script.asked == 1 and desk.trouble is None


async def test_whoever_waits_on_a_drain_that_is_begun_anew_is_told_and_takes_nothing_from_the_new_one(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
):
    called, never = asyncio.Event(), asyncio.Event()

    async def answer(script: Script, writer: asyncio.StreamWriter) -> None:
        called.set()
        await never.wait()

    async with pod(answer) as script:
        mine = address(script, spec("blocking-get"))
        assert mine.peer is not None
        other = replace(mine, peer=replace(mine.peer, run="1/start/def"))
        now, told = time.time(), order(script, spec("blocking-get"))
        first = await desk.endpoints.start(mine, told, 1.0, now)
        waiting = asyncio.create_task(desk.endpoints.wait(mine, first.sequence, now))
        await called.wait()
        await desk.endpoints.start(other, told, 1.0, now)
        # What the one who waited does last must not make the new drain idle.
        monkeypatch.setattr(endpoints, "IDLE_SECONDS", 0.05)
        with pytest.raises(PodTrouble) as caught:
            await waiting
        assert caught.value.kind == "forgotten"
        await asyncio.sleep(0.3)
        assert desk.endpoints._drains["u"].peer == other.peer
        never.set()


# -- an endpoint with a count


async def test_a_drain_is_over_when_the_count_is_0_twice(desk: Desk, tmp_path: Path):
    async with service(tmp_path, "counting") as s:
        streams = [s.stream(count, 20, f"s{count}") for count in (60, 120)]
        await s.logged("stream-start", 2)
        desk.want(order(s, spec("counting")))
        counts: list[int | None] = []
        while desk.heard is None or desk.heard.state != "sealed":
            await desk.until(lambda: desk.woken.is_set())
            desk.woken.clear()
            assert desk.trouble is None
            counts.append(desk.heard.in_flight if desk.heard else None)
        assert counts[-1] == 0 and 2 in counts
        assert [(await stream).tokens for stream in streams] == [60, 120]
        assert len(s.named("drain-call")) == 1 and s.named("drain-call")[0]["streams"]


@virtual
async def test_one_0_between_requests_is_not_the_end():
    later: list[int] = []
    called: list[float] = []

    async def answer(method: str) -> httpx.Response:
        held = 1
        if method == "POST":
            called.append(now())
        elif called and now() >= called[0] + 1:
            # Of what is read after propagation and quiet.
            held = 1 if len(later) == 1 else 0
            later.append(held)
            # So that the 0 before is old enough, were it still to count.
            await asyncio.sleep(1.1 * held)
        return active(1 + held)

    async with scripted(answer) as (desk, script):
        desk.want(order(script, spec("counting"), begun=now(), quiet_seconds=1))
        assert (await desk.sealed()).in_flight == 0
        assert later[:4] == [0, 1, 0, 0]
        assert len(called) == 1


@virtual
async def test_what_is_0_before_the_quiet_time_is_over_proves_nothing():
    async def answer(method: str) -> httpx.Response:
        return active(1)

    async with scripted(answer) as (desk, script):
        desk.want(held := order(script, spec("counting"), begun=now(), quiet_seconds=1))
        # Propagation, quiet, and as long as quiet between the two reads: at the earliest.
        assert (await desk.sealed()).at >= held.record.since + 3


@virtual
async def test_a_count_of_0_proves_nothing_before_the_call_is_answered():
    called, answered = asyncio.Event(), asyncio.Event()
    reads: list[bool] = []

    async def answer(method: str) -> httpx.Response:
        if method == "POST":
            called.set()
            await answered.wait()
        elif called.is_set():
            reads.append(answered.is_set())
            if len(reads) == 3:
                answered.set()
        return active(1)

    async with scripted(answer) as (desk, script):
        desk.want(order(script, spec("counting"), begun=now()))
        await desk.sealed()
        assert reads[:3] == [False, False, False] and answered.is_set()


@virtual
async def test_two_reads_of_0_with_a_failed_one_between_them_are_not_two():
    later: list[int | None] = []
    called: list[float] = []

    async def answer(method: str) -> httpx.Response:
        if method == "POST":
            called.append(now())
        elif called:
            failed = len(later) == 1
            later.append(None if failed else 0)
            if failed:
                return httpx.Response(503)
        return active(1)

    async with scripted(answer) as (desk, script):
        desk.want(order(script, spec("counting"), begun=now()))
        await desk.sealed()
        assert later[:4] == [0, None, 0, 0]


async def test_a_drain_of_another_start_of_the_container_is_not_waited_for(desk: Desk):
    async with pod(counted({"requests": {"active": 2}})) as script:
        now = time.time()
        mine = address(script, spec("counting"))
        assert mine.peer is not None
        await desk.endpoints.start(mine, order(script, spec("counting")), 1.0, now)
        other = replace(mine, peer=replace(mine.peer, run="1/start/def"))
        with pytest.raises(PodTrouble) as caught:
            await desk.endpoints.wait(other, 0, now)
        assert caught.value.kind == "forgotten"
        assert (await desk.endpoints.wait(mine, 0, now)).instance == RUN


async def test_a_candidate_is_asked_without_being_drained(desk: Desk, tmp_path: Path):
    async with service(tmp_path, "counting") as s:
        stream = s.stream(400, 20)
        await s.logged("stream-start")
        await desk.ask(question(s, spec("counting")))
        assert desk.heard is not None
        assert (desk.heard.state, desk.heard.in_flight, desk.heard.drain_id) == ("serving", 1, None)
        assert desk.heard.instance == RUN and not s.named("drain-call")
        stream.cancel()


async def test_an_endpoint_that_only_drains_is_not_asked_but_reached(desk: Desk, tmp_path: Path):
    async with service(tmp_path, "blocking-get") as s:
        await desk.ask(question(s, spec("blocking-get")))
        assert desk.heard is not None
        assert (desk.heard.state, desk.heard.in_flight) == ("serving", None), "unknown is not zero"
        assert not s.named("drain-call")
        s.process.kill()
        await s.exited()
        with pytest.raises(PodTrouble, match="nothing listens") as caught:
            await desk.endpoints.ask(Address("127.0.0.1", s.port, Peer("shop", "u", spec("blocking-get"), RUN)), 1.0)
        assert caught.value.kind == "refused"


# -- LiteLLM


async def test_litellm_that_gives_up_waiting_is_called_until_its_count_is_0(desk: Desk, tmp_path: Path):
    env = {"GRACEFUL_SHUTDOWN_TIMEOUT": "0.2", "DRAIN_ENDPOINT_TOKEN": "s3cret"}
    async with service(tmp_path, "litellm", **env) as s:
        stream = s.stream(80, 20)
        await s.logged("stream-start")
        desk.want(order(s, spec("litellm")))
        answers = await s.logged("drain-answer")
        assert answers[0]["inFlight"] == 1, "it says 200 with a request in flight"
        await desk.sealed()
        assert s.named("stream-end") and (await stream).tokens == 80
        assert s.named("drain-answer")[-1]["inFlight"] == 0 and len(s.named("drain-call")) >= 2


async def test_without_its_count_litellm_would_be_believed(desk: Desk, tmp_path: Path):
    """Why the documentation asks for the count, or for a GRACEFUL_SHUTDOWN_TIMEOUT of the whole budget."""
    env = {"GRACEFUL_SHUTDOWN_TIMEOUT": "0.2", "DRAIN_ENDPOINT_TOKEN": "s3cret"}
    async with service(tmp_path, "litellm", **env) as s:
        stream = s.stream(2000, 20)
        await s.logged("stream-start")
        desk.want(order(s, spec("litellm", count=None)))
        await desk.sealed()
        assert not s.named("stream-end")
        stream.cancel()


# -- the secret header


async def test_a_header_that_changed_is_read_again_and_its_value_shows_nowhere(
    desk: Desk, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    async with service(tmp_path, "blocking-post", DRAIN_ENDPOINT_TOKEN="s3cret-two") as s:
        desk.secret = "s3cret-one"
        desk.want(order(s, spec("blocking-post")))
        await desk.until(lambda: desk.trouble == "unauthorized")
        assert not s.named("drain-call")
        assert desk.sessions.troubles["u"].detail == "the pod refuses key drain of Secret my-app (401)"
        desk.secret = "s3cret-two"
        await desk.sealed()
        assert desk.trouble is None
    assert "s3cret" not in caplog.text and "s3cret" not in repr(desk.sessions.readings)


async def test_a_value_is_not_read_for_every_call(desk: Desk, tmp_path: Path):
    env = {"DRAIN_ENDPOINT_TOKEN": "s3cret"}
    async with service(tmp_path, "litellm", **env) as s:
        where = Address("127.0.0.1", s.port, Peer("shop", "u", spec("litellm"), RUN))
        for _ in range(5):
            assert (await desk.endpoints.ask(where, 1.0)).in_flight == 0
        assert desk.secrets_read == 1


async def test_a_value_is_read_again_in_time_though_it_is_not_refused(desk: Desk, monkeypatch: pytest.MonkeyPatch):
    """So that a value which is no longer in its Secret is not sent for ever."""
    monkeypatch.setattr(endpoints, "TRUSTED_SECONDS", 0.0)
    async with pod(counted({"in_flight_requests": 1})) as script:
        for expected in ("s3cret", "another"):
            desk.secret = expected
            await desk.endpoints.ask(address(script, spec("litellm")), 1.0)
            assert script.requests[-1][1]["x-drain-token"] == expected


@pytest.mark.parametrize("value", ["", "two\nlines", "schlüssel", "tab\t", "\x7f"])
async def test_a_value_that_no_header_can_have_is_never_sent(desk: Desk, value: str):
    desk.secret = value
    async with pod(http(200, b"1")) as script:
        with pytest.raises(PodTrouble, match="is not a valid header value") as caught:
            await desk.endpoints.ask(address(script, spec("litellm")), 1.0)
        assert script.asked == 0
        assert value == "" or value not in str(caught.value)


# -- a container that restarts


@virtual
async def test_a_restart_in_the_middle_is_never_taken_for_empty():
    async def answer(method: str) -> httpx.Response:
        return active(1)

    async with scripted(answer) as (desk, script):
        desk.want(order(script, spec("counting"), begun=now()))
        desk.run = "1/later/def"
        await desk.until(lambda: desk.trouble == "restarted")
        for _ in range(200):
            assert desk.heard is None or desk.heard.state == "draining"
            await asyncio.sleep(0.05)
        # The watch brings the new start: it is told too, and says under its own name that it is empty.
        desk.want(order(script, spec("counting"), begun=now(), run=desk.run))
        assert (await desk.sealed()).instance == "1/later/def"
        assert [line for line, *_ in script.requests].count("POST /internal/drain") == 2


async def test_a_process_that_dies_while_it_is_waited_for_is_not_drained(desk: Desk, tmp_path: Path):
    async with service(tmp_path, "blocking-get") as s:
        stream = s.stream(2000, 20)
        await s.logged("stream-start")
        desk.want(order(s, spec("blocking-get")))
        await s.logged("drain-call")
        s.process.kill()
        await desk.until(lambda: desk.trouble in ("broken", "refused"))
        assert desk.heard is not None and desk.heard.state == "draining"
        with contextlib.suppress(Exception):
            await stream


# -- answers that no well-meant application gives


async def endless(script: Script, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
    while True:
        writer.write(b"1" * 65536)
        await writer.drain()
        script.sent += 65536


def counted(body: object) -> bytes:
    return http(200, json.dumps(body).encode())


WRONG = {
    "404": (http(404), "status"),
    "500": (http(500, b"0"), "status"),
    "redirect": (http(302, Location="http://127.0.0.1:1/"), "status"),
    "rubbish": (http(200, b"{ not json"), "rubbish"),
    "nothing": (http(200), "rubbish"),
    "compressed": (http(200, b"1", Content_Encoding="gzip"), "rubbish"),
    "endless": (endless, "too-long"),
    "no such field": (counted({"requests": {}}), "count"),
    "a step too far": (counted({"requests": 3}), "count"),
    "text": (counted({"requests": {"active": "1"}}), "count"),
    "a boolean": (counted({"requests": {"active": True}}), "count"),
    "a fraction": (counted({"requests": {"active": 1.5}}), "count"),
    "null": (counted({"requests": {"active": None}}), "count"),
    "below its offset": (counted({"requests": {"active": 0}}), "contradiction"),
    "negative": (counted({"requests": {"active": -3}}), "contradiction"),
    "beyond all counts": (counted({"requests": {"active": 10**15}}), "contradiction"),
    "infinite": (http(200, b'{"requests": {"active": Infinity}}'), "count"),
}


@pytest.mark.parametrize(("answer", "kind"), WRONG.values(), ids=WRONG.keys())
async def test_a_wrong_count_is_unknown_and_never_zero(desk: Desk, answer: Any, kind: str):
    async with pod(answer) as script:
        with pytest.raises(PodTrouble) as caught:
            await desk.endpoints.ask(address(script, spec("counting")), 1.0)
        assert caught.value.kind == kind
        assert script.asked == 1, "a redirect is not followed"
        assert script.sent <= 100 * MOST_BYTES


@pytest.mark.parametrize("status", [302, 404, 500, 503])
@virtual
async def test_a_drain_call_that_fails_is_named_and_made_again(status: int):
    async def answer(method: str) -> httpx.Response:
        return httpx.Response(status, headers={"Location": "http://127.0.0.1:1/"})

    async with scripted(answer) as (desk, script):
        desk.want(order(script, spec("blocking-get"), begun=now()))
        await desk.until(lambda: script.asked >= 2)
        await desk.until(lambda: desk.trouble == "status")
        assert desk.sessions.troubles["u"].detail == f"HTTP {status} instead of 2xx"
        assert desk.heard is not None and (desk.heard.state, desk.heard.in_flight) == ("draining", None)


@pytest.mark.parametrize(
    ("pointer", "document", "found"),
    [
        ("", 3, 3),
        ("/active", {"active": 3.0}, 3),
        ("/a~1b/m~0n", {"a/b": {"m~n": 3}}, 3),
        ("/~01", {"~1": 3}, 3),
        ("//x", {"": {"x": 3}}, 3),
        ("/loads/1/n", {"loads": [{"n": 9}, {"n": 3}]}, 3),
        ("/loads/2/n", {"loads": [{"n": 9}, {"n": 3}]}, None),
        ("/loads/01/n", {"loads": [{"n": 9}, {"n": 3}]}, None),
        ("/loads/-", {"loads": [3]}, None),
        ("/0", {"0": 3}, 3),
        ("/x/y", {"x": "y"}, None),
    ],
)
async def test_pointers_point_as_rfc_6901_says(desk: Desk, pointer: str, document: object, found: int | None):
    foreign = spec("counting", count={"path": "/stats?all=1", "pointer": pointer})
    async with pod(counted(document)) as script:
        asked = desk.endpoints.ask(address(script, foreign), 1.0)
        if found is None:
            with pytest.raises(PodTrouble, match="no integer"):
                await asked
        else:
            assert (await asked).in_flight == found
        assert script.requests[0][0] == "GET /stats?all=1"


# -- beside the contract


async def test_no_foreign_endpoint_is_undone(desk: Desk):
    async with pod(http(200)) as script:
        with pytest.raises(TooLate):
            await desk.talk.undo(address(script, spec("counting")), "key", "our-id")
        assert script.asked == 0


async def test_pods_of_the_contract_are_spoken_to_as_ever(desk: Desk, tmp_path: Path):
    async with server(tmp_path) as s:
        where = Address("127.0.0.1", s.admin)
        known = {"propagation_seconds": 1, "quiet_seconds": 0, "flush_seconds": 1, "stalled_after_seconds": 300}
        record = DrainRecord("our-id", None, "Rollout", time.time(), None, None)
        held = DrainOrder(pod="p", uid="u", ip="127.0.0.1", port=s.admin, record=record, **known)
        assert (await desk.talk.ask(where, "drain-key", 1.0)).state == "serving"
        told = await desk.talk.start(where, "drain-key", held, 0.0, time.time())
        assert (told.state, told.drain_id) == ("draining", "our-id")
        await desk.talk.undo(where, "drain-key", "our-id")
        assert (await desk.talk.ask(where, "drain-key", 1.0)).state == "serving"

"""The drain contract v1, from the operator's side: one call, one validated answer.

The operator calls only pods that it owns, without redirects and proxies, with small reads and short timeouts. Only
validated numbers of an answer leave this module: text from a pod never reaches status, events or logs.
"""

import asyncio
import json
import math
import socket
from dataclasses import dataclass
from typing import Any, Final

import httpx

from tidegate.api import names
from tidegate.api.errors import KeyRefused, PodTrouble, TooLate
from tidegate.api.foreign import Foreign
from tidegate.contract import fields
from tidegate.contract.terms import MAX_SECONDS, DrainRequest, State
from tidegate.core.planner.actions import DrainOrder
from tidegate.core.state import times
from tidegate.core.state.snapshot import Reading

MOST_BYTES: Final = 64 * 1024
MOST_COUNT: Final = 10**12
CALL_SECONDS: Final = 3.0
WAIT_SECONDS: Final = 5.0
"""Longest poll, in seconds. The pod answers at once when it is empty; until then, counts in status are at most this
old."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A pod that does not implement the contract, and what it therefore cannot report itself."""

    namespace: str
    uid: str
    foreign: Foreign
    run: str
    """Identifies the run of its container, from start to exit, that is called."""
    pod: str = ""
    drain_id: str | None = None
    """None if no drain has been started."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a pod is called. `peer` is set for a pod with a foreign endpoint."""

    ip: str
    port: int
    peer: Peer | None = None

    @property
    def url(self) -> str:
        """The URL of the contract's drain endpoint."""
        return self.at(names.DRAIN_PATH)

    def at(self, path: str) -> str:
        """The URL of `path`."""
        host = f"[{self.ip}]" if ":" in self.ip else self.ip
        return f"http://{host}:{self.port}{path}"


def http_client() -> httpx.AsyncClient:
    """One client for all pods: each new client takes 70 ms for its TLS context."""
    return httpx.AsyncClient(
        follow_redirects=False,
        trust_env=False,
        timeout=httpx.Timeout(CALL_SECONDS),
        transport=httpx.AsyncHTTPTransport(
            trust_env=False,
            limits=httpx.Limits(max_connections=2000, max_keepalive_connections=50, keepalive_expiry=5),
            socket_options=_alive(),
        ),
    )


def _alive() -> list[tuple[int, int, int]]:
    """TCP keepalive: a connection that waits half an hour for a pod breaks within a minute if the pod vanishes."""
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


class Contract:
    """Calls of the contract. Every method raises `PodTrouble` and nothing else."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def ask(self, address: Address, key: str, now: float) -> Reading:
        """GET: the pod's state and requests in flight."""
        return reading(await self._call("GET", address, key), now)

    async def start(
        self, address: Address, key: str, order: DrainOrder, since_withdrawal: float, now: float
    ) -> Reading:
        """POST: start the drain of `order`, or update its numbers."""
        deadline = order.record.deadline
        request = DrainRequest(
            id=order.record.id,
            reason=order.record.reason,
            # Clocks of nodes differ: the pod counts down the remaining time itself.
            remaining=None if deadline is None else round(max(deadline - now, 0.0), 3),
            since_withdrawal=round(since_withdrawal, 3),
            propagation=order.propagation_seconds,
            quiet=order.quiet_seconds,
            flush=order.flush_seconds,
            stalled_after=order.stalled_after_seconds,
        )
        body = request.document(None if deadline is None else times.text(deadline))
        return reading(await self._call("POST", address, key, body=body), now)

    async def wait(self, address: Address, key: str, sequence: int, now: float) -> Reading:
        """GET, answered on a change or after `WAIT_SECONDS`. `now` is the Unix time at which the call starts."""
        query = {"wait": f"{WAIT_SECONDS:.0f}s", "since": str(sequence)}
        return reading(await self._call("GET", address, key, query=query, patience=WAIT_SECONDS + 5), now)

    async def undo(self, address: Address, key: str, drain_id: str) -> None:
        """DELETE: back to serving; raises `TooLate` when the pod is sealed or drains under another id."""
        await self._call("DELETE", address, key, query={"id": drain_id})

    async def _call(
        self,
        method: str,
        address: Address,
        key: str,
        *,
        body: dict[str, Any] | None = None,
        query: dict[str, str] | None = None,
        patience: float = CALL_SECONDS,
    ) -> dict[str, Any]:
        answer = await exchange(
            self._client,
            method,
            address.url,
            headers={names.KEY_HEADER: key},
            body=body,
            query=query,
            patience=patience,
        )
        return _document(method, answer)


@dataclass(frozen=True, slots=True)
class Answer:
    """A pod's answer, not validated yet. Without a 2xx status its body was not read."""

    status: int
    data: bytes = b""

    @property
    def good(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300

    def must_be_good(self) -> None:
        """Raises `PodTrouble` unless the status is 2xx."""
        if not self.good:
            raise PodTrouble("status", f"HTTP {self.status} instead of 2xx")

    def json(self) -> Any:
        """The body as JSON. Raises `PodTrouble` if it is not JSON."""
        try:
            return json.loads(self.data)
        except (ValueError, RecursionError) as error:
            raise PodTrouble("rubbish", "the answer is not JSON") from error


async def exchange(
    client: httpx.AsyncClient,
    method: str,
    url: str,
    *,
    headers: dict[str, str],
    body: dict[str, Any] | None = None,
    query: dict[str, str] | None = None,
    patience: float | None = CALL_SECONDS,
) -> Answer:
    """One call to a pod, answered within `patience` seconds (None: no limit). Raises `PodTrouble`."""
    timeout = httpx.Timeout(CALL_SECONDS, read=patience)
    # A compressed answer could be a thousand times larger than what was read.
    headers = {**headers, "Accept-Encoding": "identity"}
    try:
        # httpx applies its timeout to each read: a pod that sends one byte at a time would never time out.
        async with (
            asyncio.timeout(None if patience is None else patience + CALL_SECONDS),
            client.stream(method, url, json=body, params=query, headers=headers, timeout=timeout) as response,
        ):
            return await _answer(response)
    except TimeoutError as error:
        raise PodTrouble("timeout", "connected, but no complete answer in time") from error
    except httpx.ConnectTimeout as error:
        raise PodTrouble(
            "timeout", f"connection timed out after {CALL_SECONDS:.0f} s: packets may be dropped"
        ) from error
    except httpx.PoolTimeout as error:
        raise PodTrouble("busy", "the operator has too many connections to pods; it retries") from error
    except httpx.TimeoutException as error:
        raise PodTrouble("timeout", "connected, but no answer in time") from error
    except httpx.ConnectError as error:
        raise PodTrouble("refused", "connection refused: nothing listens on that port") from error
    except httpx.HTTPError as error:
        raise PodTrouble("broken", f"the connection was lost ({type(error).__name__})") from error


async def _answer(response: httpx.Response) -> Answer:
    if not 200 <= response.status_code < 300:
        return Answer(response.status_code)
    data = bytearray()
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise PodTrouble("rubbish", "the answer is compressed, which was not requested")
    async for chunk in response.aiter_raw():
        data += chunk
        if len(data) > MOST_BYTES:
            raise PodTrouble("too-long", f"the answer is larger than {MOST_BYTES // 1024} KiB")
    return Answer(response.status_code, bytes(data))


def _document(method: str, answer: Answer) -> dict[str, Any]:
    if answer.status == 401:
        raise KeyRefused("unauthorized", "the pod refuses the key of the Secret (401)")
    if answer.status == 409:
        raise TooLate("too-late", "the pod is already sealed, or drains under another id (409)")
    answer.must_be_good()
    if not answer.data and method == "DELETE":
        return {}
    document = answer.json()
    if not isinstance(document, dict):
        raise PodTrouble("rubbish", "the answer is not a JSON object")
    return document


def reading(document: dict[str, Any], now: float) -> Reading:
    """Validate an answer. One that contradicts itself raises `PodTrouble`, since unknown never counts as zero."""
    if document.get(fields.CONTRACT) != fields.VERSION:
        raise PodTrouble("contract", f'the answer does not contain "{fields.CONTRACT}": "{fields.VERSION}"')
    try:
        state = State(document.get(fields.STATE, ""))
    except ValueError:
        raise PodTrouble("contradiction", "its state is not one of the contract") from None
    instance = document.get(fields.INSTANCE)
    if not isinstance(instance, str) or not instance or len(instance) > 128:
        raise PodTrouble("contract", "the answer has no valid instance")
    drain_id = document.get(fields.DRAIN_ID)
    in_flight, stalled = _count(document, fields.IN_FLIGHT), _count(document, fields.STALLED, 0)
    if state is State.SEALED and in_flight - stalled > 0:
        held = "1 request" if in_flight == 1 else f"{in_flight} requests"
        raise PodTrouble("contradiction", f"it reports sealed with {held} in flight")
    return Reading(
        at=now,
        instance=instance,
        drain_id=drain_id if isinstance(drain_id, str) and len(drain_id) <= 128 else None,
        state=state,
        in_flight=in_flight,
        stalled=stalled,
        cut=None if document.get(fields.CUT) is None else _count(document, fields.CUT),
        oldest_seconds=_seconds(document.get(fields.OLDEST_SECONDS)) if in_flight else None,
        sequence=_count(document, fields.SEQUENCE),
        last_arrival_seconds=_last_arrival(document),
    )


def _last_arrival(document: dict[str, Any]) -> float | None:
    """Seconds since the last arrival. Null means that nothing has arrived yet; absent means not known."""
    if fields.LAST_ARRIVAL_SECONDS not in document:
        return None
    last = document[fields.LAST_ARRIVAL_SECONDS]
    return math.inf if last is None else _seconds(last)


def _count(document: dict[str, Any], name: str, default: int | None = None) -> int:
    value = document.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise PodTrouble("contract", f"{name} is not an integer")
    if value > MOST_COUNT:
        raise PodTrouble("contradiction", f"{name} is implausibly large")
    if value < 0:
        raise PodTrouble("contradiction", f"{name} is negative")
    return value


def _seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < MAX_SECONDS:
        return None
    return float(value)

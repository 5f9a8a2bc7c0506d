"""Drain endpoints of applications' own, behind the calls of the contract.

This module supplies what pods that implement the contract report themselves: the drain id is the operator's, and the
instance is the run of the container as the kubelet reports it. Sealed means that the container has not restarted, and
that either the call that answers when the drain is over has answered 2xx, or two reads of the count were 0 after the
propagation and quiet time. The call that starts a drain may take as long as the drain, so it runs in the background;
everything else happens while a caller waits.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import httpx

from tidegate.api.errors import PodTrouble
from tidegate.api.foreign import Count, SecretKeyRef
from tidegate.contract.terms import State
from tidegate.core.planner.actions import DrainOrder
from tidegate.core.state.snapshot import Reading

from .contract import CALL_SECONDS, MOST_COUNT, WAIT_SECONDS, Address, Answer, Peer, exchange
from .pointer import pointed

POLL_SECONDS: Final = 1.0
"""Seconds between two reads of a count."""
LEAST_GAP_SECONDS: Final = 1.0
"""Least seconds between the two reads that prove a pod empty, since applications may refresh their counts rarely."""
AGAIN_SECONDS: Final = 1.0
"""Seconds before the next call of an endpoint that returned while its count was not 0."""
IDLE_SECONDS: Final = 120.0
"""Seconds after which a call that nobody waits for is cancelled: its pod is gone, or its drain is undone."""
TRUSTED_SECONDS: Final = 60.0
"""Seconds after which a header's value is read from its Secret again; at once when the pod refuses it."""
REFUSALS: Final = (401, 403)

Secrets = Callable[[str, SecretKeyRef], Awaitable[str]]
"""(namespace, reference) -> the value, read from the API server. Raises `PodTrouble`."""
Runs = Callable[[str, str, str], Awaitable[str]]
"""(namespace, pod, uid) -> the run of its serving container, read from the API server. Raises `PodTrouble`."""


@dataclass(slots=True)
class _Drain:
    """One drain that was started."""

    peer: Peer
    begins: float
    """Loop time at which the propagation time is over: no more requests are sent to the pod."""
    settles: float
    """Loop time from which a count of 0 is conclusive: `begins` + quiet time."""
    gap: float
    deadline: float | None
    call: asyncio.Task[None]
    sequence: int
    in_flight: int | None = None
    empty_since: float | None = None
    sealed: bool = False
    idle: asyncio.TimerHandle | None = None

    def reading(self, now: float) -> Reading:
        state = State.SEALED if self.sealed else State.DRAINING
        known = 0 if self.sealed else self.in_flight
        return Reading(now, self.peer.run, self.peer.drain_id, state, known, sequence=self.sequence)


class ForeignEndpoints:
    """Calls of foreign endpoints. Every method raises `PodTrouble` and nothing else."""

    def __init__(self, client: httpx.AsyncClient, secrets: Secrets, runs: Runs) -> None:
        self._client, self._secrets, self._runs = client, secrets, runs
        self._values: dict[tuple[str, str, str], tuple[float, str]] = {}
        self._drains: dict[str, _Drain] = {}
        # Shared by all pods, so that it keeps rising when a drain is forgotten and started again.
        self._sequence = itertools.count(1)

    async def ask(self, address: Address, now: float) -> Reading:
        """The requests in flight if the endpoint has a count; otherwise only checks that the pod can be reached."""
        peer = _peer(address)
        count = peer.foreign.count
        in_flight = None if count is None else await self._count(address, count)
        if count is None:
            await _connect(address)
        state = State.SERVING if peer.drain_id is None else State.DRAINING
        return Reading(now, peer.run, peer.drain_id, state, in_flight, sequence=next(self._sequence))

    async def start(self, address: Address, order: DrainOrder, since_withdrawal: float, now: float) -> Reading:
        """Start the drain, or continue it. The endpoint is called when the propagation time is over."""
        peer = _peer(address)
        drain = self._drains.get(peer.uid)
        if drain is None or drain.peer != peer:
            self._forget(peer.uid)
            drain = self._drains[peer.uid] = self._begun(address, order, since_withdrawal, now)
        drain.deadline = _rest(order, now)
        if _failed(drain.call):
            drain.call = self._called(address, drain, drain.begins)
        self._touch(drain)
        return drain.reading(now)

    async def wait(self, address: Address, sequence: int, now: float) -> Reading:
        """Answered on a change, or after `WAIT_SECONDS`."""
        drain = self._drains.get(_peer(address).uid)
        if drain is None or drain.peer != address.peer:
            raise PodTrouble("forgotten", "the drain must be started again")
        loop = asyncio.get_running_loop()
        ends = loop.time() + WAIT_SECONDS
        while True:
            self._touch(drain)
            await self._look(address, drain)
            rest = ends - loop.time()
            if drain.sequence > sequence or drain.sealed or rest <= 0:
                return drain.reading(now)
            await self._until_news(drain, min(POLL_SECONDS if drain.peer.foreign.count else rest, rest))

    async def close(self) -> None:
        """Cancel every call."""
        calls = [drain.call for drain in self._drains.values()]
        for uid in list(self._drains):
            self._forget(uid)
        await asyncio.gather(*calls, return_exceptions=True)

    def _begun(self, address: Address, order: DrainOrder, since_withdrawal: float, now: float) -> _Drain:
        loop = asyncio.get_running_loop()
        begins = loop.time() + max(order.propagation_seconds - since_withdrawal, 0.0)
        drain = _Drain(
            peer=_peer(address),
            begins=begins,
            settles=begins + order.quiet_seconds,
            gap=max(order.quiet_seconds, LEAST_GAP_SECONDS),
            deadline=_rest(order, now),
            call=loop.create_future(),  # type: ignore[arg-type]
            sequence=next(self._sequence),
        )
        drain.call = self._called(address, drain, begins)
        return drain

    def _called(self, address: Address, drain: _Drain, at: float) -> asyncio.Task[None]:
        """The call that starts the drain, made at loop time `at`."""

        async def call() -> None:
            loop, foreign = asyncio.get_running_loop(), drain.peer.foreign
            await asyncio.sleep(max(at - loop.time(), 0.0))
            patience: float | None = CALL_SECONDS
            if foreign.answers_when_over:
                patience = None if drain.deadline is None else max(drain.deadline - loop.time(), CALL_SECONDS)
            answer = await self._exchange(address, foreign.method, foreign.path, patience)
            answer.must_be_good()

        task = asyncio.create_task(call(), name=f"drain call to {drain.peer.pod}")
        # `wait` reports a failure. Retrieve the exception here too, so that asyncio does not warn if nobody waits.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    async def _look(self, address: Address, drain: _Drain) -> None:
        """Read the count and the state of the call, and seal the drain when they prove the pod empty."""
        if drain.sealed:
            return
        if drain.call.cancelled():
            raise PodTrouble("forgotten", "the drain must be started again")
        if drain.call.done():
            drain.call.result()
        foreign, loop = drain.peer.foreign, asyncio.get_running_loop()
        called = drain.call.done()
        if foreign.count is not None:
            try:
                self._counted(drain, await self._count(address, foreign.count), loop.time())
            except PodTrouble:
                drain.empty_since, drain.in_flight = None, None
                raise
        if foreign.answers_when_over:
            over = called and drain.in_flight in (None, 0)
            if called and not over:
                drain.call = self._called(address, drain, loop.time() + AGAIN_SECONDS)
        else:
            over = called and drain.empty_since is not None and loop.time() - drain.empty_since >= drain.gap
        if over:
            await self._seal(drain)

    def _counted(self, drain: _Drain, in_flight: int, at: float) -> None:
        if drain.in_flight is None or (in_flight == 0) != (drain.in_flight == 0):
            drain.sequence = next(self._sequence)
        drain.in_flight = in_flight
        if in_flight or at < drain.settles:
            drain.empty_since = None
        elif drain.empty_since is None:
            drain.empty_since = at

    async def _seal(self, drain: _Drain) -> None:
        peer = drain.peer
        # A process that has restarted answers like a drained one.
        if await self._runs(peer.namespace, peer.pod, peer.uid) != peer.run:
            raise PodTrouble("restarted", "its container restarted during the drain")
        drain.sealed, drain.sequence = True, next(self._sequence)

    async def _until_news(self, drain: _Drain, seconds: float) -> None:
        if drain.call.done():
            await asyncio.sleep(seconds)
        else:
            await asyncio.wait((drain.call,), timeout=seconds)

    def _touch(self, drain: _Drain) -> None:
        if drain.idle is not None:
            drain.idle.cancel()
        drain.idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._forget, drain.peer.uid, drain)

    def _forget(self, uid: str, only: _Drain | None = None) -> None:
        drain = self._drains.get(uid)
        if drain is None or (only is not None and drain is not only):
            return
        del self._drains[uid]
        drain.call.cancel()
        if drain.idle is not None:
            drain.idle.cancel()

    async def _count(self, address: Address, count: Count) -> int:
        answer = await self._exchange(address, "GET", count.path, CALL_SECONDS)
        answer.must_be_good()
        value = pointed(answer.json(), count.pointer)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise PodTrouble("count", f"no integer at {count.pointer or 'the root'} in the answer of {count.path}")
        if value > MOST_COUNT:
            raise PodTrouble("contradiction", "the count is implausibly large")
        if value < count.offset:
            raise PodTrouble("contradiction", f"the count is less than its offset of {count.offset}")
        return value - count.offset

    async def _exchange(self, address: Address, method: str, path: str, patience: float | None) -> Answer:
        """A call with its header, if it has one. If the pod refuses the value, it is read again: it may be outdated."""
        peer = _peer(address)
        if peer.foreign.header is None:
            return await exchange(self._client, method, address.at(path), headers={}, patience=patience)
        name, ref = peer.foreign.header.name, peer.foreign.header.secret_key_ref
        for fresh in (False, True):
            value = await self._value(peer.namespace, ref, fresh)
            answer = await exchange(self._client, method, address.at(path), headers={name: value}, patience=patience)
            if answer.status not in REFUSALS:
                return answer
        raise PodTrouble("unauthorized", f"the pod refuses key {ref.key} of Secret {ref.name} ({answer.status})")

    async def _value(self, namespace: str, ref: SecretKeyRef, fresh: bool) -> str:
        slot, now = (namespace, ref.name, ref.key), asyncio.get_running_loop().time()
        held = self._values.get(slot)
        if held is not None and not fresh and now - held[0] < TRUSTED_SECONDS:
            return held[1]
        value = await self._secrets(namespace, ref)
        if not value or not value.isascii() or not value.isprintable():
            raise PodTrouble("no-header", f"key {ref.key} of Secret {ref.name} is not a valid header value")
        self._values[slot] = (now, value)
        return value


def _peer(address: Address) -> Peer:
    assert address.peer is not None, "this module calls only pods with a foreign endpoint"  # noqa: S101
    return address.peer


def _rest(order: DrainOrder, now: float) -> float | None:
    """The deadline as loop time."""
    deadline = order.record.deadline
    return None if deadline is None else asyncio.get_running_loop().time() + deadline - now


def _failed(call: "asyncio.Task[None]") -> bool:
    return call.done() and (call.cancelled() or call.exception() is not None)


async def _connect(address: Address) -> None:
    """Check that something listens: an endpoint without a count has nothing else that can be asked."""
    try:
        async with asyncio.timeout(CALL_SECONDS):
            _, writer = await asyncio.open_connection(address.ip, address.port)
    except TimeoutError as error:
        raise PodTrouble(
            "timeout", f"connection timed out after {CALL_SECONDS:.0f} s: packets may be dropped"
        ) from error
    except OSError as error:
        raise PodTrouble("refused", "connection refused: nothing listens on that port") from error
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()

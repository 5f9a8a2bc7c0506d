"""Drain endpoints of applications' own, behind the calls of the contract.

What pods that speak the contract say of themselves is put together here: the drain id is ours, and the instance is the
start of the container as the kubelet knows it. Sealed means: the call that answers when it is over has answered 2xx; or
the count was 0 on two reads, after the propagation and the quiet time; and the container is still in the same start.
The call that begins a drain may take as long as the drain, so it runs in the background; everything else happens while
somebody waits.
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
"""Between two reads of a count."""
LEAST_GAP_SECONDS: Final = 1.0
"""Between the two reads that prove a pod empty, if the quiet time is shorter: counts are refreshed now and then."""
AGAIN_SECONDS: Final = 1.0
"""Pause before an endpoint is called again that said it was over while its count was not 0."""
IDLE_SECONDS: Final = 120.0
"""A call that nobody has waited for so long is given up: its pod is gone, or its drain is undone."""
TRUSTED_SECONDS: Final = 60.0
"""A header's value is read from its Secret again after so long, or when it is refused."""
REFUSALS: Final = (401, 403)

Secrets = Callable[[str, SecretKeyRef], Awaitable[str]]
"""(namespace, reference) -> the value, read from the API server now. Raises `PodTrouble`."""
Runs = Callable[[str, str, str], Awaitable[str]]
"""(namespace, pod, uid) -> the start of its serving container, read from the API server now. Raises `PodTrouble`."""


@dataclass(slots=True)
class _Drain:
    """One drain that was begun."""

    peer: Peer
    begins: float
    """Loop time from which nobody is sent here any more."""
    settles: float
    """Loop time from which a count of 0 means something: the quiet time after that."""
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
    """The pods that have one. Every method raises `PodTrouble` and nothing else."""

    def __init__(self, client: httpx.AsyncClient, secrets: Secrets, runs: Runs) -> None:
        self._client, self._secrets, self._runs = client, secrets, runs
        self._values: dict[tuple[str, str, str], tuple[float, str]] = {}
        self._drains: dict[str, _Drain] = {}
        # One for all, so that it rises through whatever is forgotten.
        self._sequence = itertools.count(1)

    async def ask(self, address: Address, now: float) -> Reading:
        """What the pod holds, where it can say so without being drained; else only that it can be reached."""
        peer = _peer(address)
        count = peer.foreign.count
        in_flight = None if count is None else await self._count(address, count)
        if count is None:
            await _connect(address)
        state = State.SERVING if peer.drain_id is None else State.DRAINING
        return Reading(now, peer.run, peer.drain_id, state, in_flight, sequence=next(self._sequence))

    async def start(self, address: Address, order: DrainOrder, since_withdrawal: float, now: float) -> Reading:
        """Begin the drain, or carry on with it. The endpoint is called when the propagation time is over."""
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
        """Answered when something changes, or after `WAIT_SECONDS`."""
        drain = self._drains.get(_peer(address).uid)
        if drain is None or drain.peer != address.peer:
            raise PodTrouble("forgotten", "the drain has to be begun again")
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
        """Give up every call."""
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
        """The call that begins the drain, made at loop time `at`."""

        async def call() -> None:
            loop, foreign = asyncio.get_running_loop(), drain.peer.foreign
            await asyncio.sleep(max(at - loop.time(), 0.0))
            patience: float | None = CALL_SECONDS
            if foreign.answers_when_over:
                patience = None if drain.deadline is None else max(drain.deadline - loop.time(), CALL_SECONDS)
            answer = await self._exchange(address, foreign.method, foreign.path, patience)
            answer.must_be_good()

        task = asyncio.create_task(call(), name=f"drain call to {drain.peer.pod}")
        # Looked at while somebody waits; who does not wait any more need not hear of it.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    async def _look(self, address: Address, drain: _Drain) -> None:
        """Take up what there is to know, and seal the drain when that proves the pod empty."""
        if drain.sealed:
            return
        if drain.call.cancelled():
            raise PodTrouble("forgotten", "the drain has to be begun again")
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
        # A process that restarted answers like a drained one.
        if await self._runs(peer.namespace, peer.pod, peer.uid) != peer.run:
            raise PodTrouble("restarted", "its container has restarted in the middle of the drain")
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
            raise PodTrouble("count", f"no whole number at {count.pointer or 'the root'} of {count.path}")
        if value > MOST_COUNT:
            raise PodTrouble("contradiction", "the count is larger than any count")
        if value < count.offset:
            raise PodTrouble("contradiction", f"the count is less than its offset, {count.offset}")
        return value - count.offset

    async def _exchange(self, address: Address, method: str, path: str, patience: float | None) -> Answer:
        """A call with its header, if it has one; a value that is refused is read anew: it may have changed."""
        peer = _peer(address)
        if peer.foreign.header is None:
            return await exchange(self._client, method, address.at(path), headers={}, patience=patience)
        name, ref = peer.foreign.header.name, peer.foreign.header.secret_key_ref
        for fresh in (False, True):
            value = await self._value(peer.namespace, ref, fresh)
            answer = await exchange(self._client, method, address.at(path), headers={name: value}, patience=patience)
            if answer.status not in REFUSALS:
                return answer
        raise PodTrouble("unauthorized", f"the pod refuses the key {ref.key} of Secret {ref.name} ({answer.status})")

    async def _value(self, namespace: str, ref: SecretKeyRef, fresh: bool) -> str:
        slot, now = (namespace, ref.name, ref.key), asyncio.get_running_loop().time()
        held = self._values.get(slot)
        if held is not None and not fresh and now - held[0] < TRUSTED_SECONDS:
            return held[1]
        value = await self._secrets(namespace, ref)
        if not value or not value.isascii() or not value.isprintable():
            raise PodTrouble("no-header", f"the key {ref.key} of Secret {ref.name} is no value that a header can have")
        self._values[slot] = (now, value)
        return value


def _peer(address: Address) -> Peer:
    assert address.peer is not None, "only pods with a foreign endpoint are spoken to here"  # noqa: S101
    return address.peer


def _rest(order: DrainOrder, now: float) -> float | None:
    """The deadline as loop time."""
    deadline = order.record.deadline
    return None if deadline is None else asyncio.get_running_loop().time() + deadline - now


def _failed(call: "asyncio.Task[None]") -> bool:
    return call.done() and (call.cancelled() or call.exception() is not None)


async def _connect(address: Address) -> None:
    """All that can be asked of an endpoint that only drains: whether somebody listens."""
    try:
        async with asyncio.timeout(CALL_SECONDS):
            _, writer = await asyncio.open_connection(address.ip, address.port)
    except TimeoutError as error:
        raise PodTrouble(
            "timeout", f"no connection within {CALL_SECONDS:.0f} s, as when packets are dropped"
        ) from error
    except OSError as error:
        raise PodTrouble("refused", "connection refused: nothing listens on that port") from error
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()

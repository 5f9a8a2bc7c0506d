"""What runs inside the pods: the drain contract under virtual time, its streams, and its faults."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.contract.machine import DrainContract
from tidegate.contract.terms import Admission, Settings, State

CONDUCTS = (
    "honest",
    "ignores",  # answers, but never drains
    "sealed while busy",
    "sealed at once",
    "negative count",
    "falling sequence",
    "foreign id",
    "hangs",
    "500",
    "404",
    "rubbish",
    "refused",
    "dropped",
)


@dataclass(slots=True)
class Ledger:
    """What clients saw."""

    served: int = 0
    late: int = 0
    """Requests that a sealed pod answered with a retryable 503."""
    unserved: int = 0
    """Requests for which there was no endpoint at all."""
    tokens: int = 0
    resets: list[tuple[float, str, str]] = field(default_factory=list)
    """(time, pod uid, what): requests that reached nothing, streams that ended without end or token."""


class Process:
    """One run of whatever speaks the contract: a serving container, or the gateway in front of one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ledger: Ledger, uid: str, contract: DrainContract) -> None:
        self._loop, self._ledger, self.uid = loop, ledger, uid
        self.contract = contract
        self.conduct = "honest"
        self.healthy = True
        self.alive = True
        self.changed: Callable[[], None] = lambda: None
        self._streams: dict[str, asyncio.TimerHandle] = {}
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._waiters: set[asyncio.Future[None]] = set()
        self._seen = (State.STARTING, 0)

    @property
    def ready(self) -> bool:
        """What its readiness probe is told."""
        return self.healthy and self.state is State.SERVING

    @property
    def state(self) -> State:
        """The state that the contract is in."""
        return self.contract.state

    @property
    def in_flight(self) -> int:
        """Requests that it holds."""
        return self.contract.in_flight

    def arrive(self, seconds: float) -> None:
        """A request whose answer takes `seconds`."""
        self._count += 1
        name = f"r{self._count}"
        now = self._loop.time()
        if self.contract.arrive(name, now, streaming=True) is Admission.REFUSE:
            self._ledger.late += 1
        else:
            self._streams[name] = self._loop.call_at(now + seconds, self._end, name)
        self.touch()

    def _end(self, name: str) -> None:
        if self._streams.pop(name, None) is not None:
            self.contract.finish(name)
            self._ledger.served += 1
            self.touch()

    def touch(self) -> None:
        """Let the contract see the time, and everybody who waits for it see what changed."""
        now = self._loop.time()
        step = self.contract.advance(now)
        for name in (*step.tokens, *step.abort):
            timer = self._streams.pop(name, None)
            if timer is not None:
                timer.cancel()
                self.contract.finish(name)
                self._ledger.tokens += 1
        if step.tokens:
            # The last of them may have been all that stood in the way.
            self.contract.advance(now)
        state = (self.state, self.contract.sequence)
        if state != self._seen:
            flipped = state[0] != self._seen[0]
            self._seen = state
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)
            if flipped:
                self._loop.call_soon(self.changed)
        elif self.contract.terminating or self.state is State.DRAINING:
            self._loop.call_soon(self.changed)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.contract.next_at(now)
        if due is not None and self.alive:
            self._timer = self._loop.call_at(due + 1e-6, self.touch)

    def die(self, cause: str) -> None:
        """The process ends; what still streams is lost without a token."""
        self.alive = False
        self._lose(cause)
        if self._timer is not None:
            self._timer.cancel()
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _lose(self, cause: str) -> None:
        for timer in self._streams.values():
            timer.cancel()
            self._ledger.resets.append((self._loop.time(), self.uid, cause))
        self._streams.clear()

    def lose_engine(self, cause: str) -> None:
        """What stands behind this gateway is gone; the gateway stays, and while draining ends each stream in form."""
        if self.state is State.DRAINING:
            for name, timer in self._streams.items():
                timer.cancel()
                self.contract.cut_short(name)
                self._ledger.tokens += 1
        for name in self._streams:
            self.contract.finish(name)
        if self.state is State.DRAINING:
            self._streams.clear()
        self._lose(cause)
        self.contract.engine_gone()
        self.touch()

    def find_engine(self) -> None:
        """Something listens again behind this gateway."""
        self.contract.engine_back()
        self.touch()

    async def change(self, since: int, seconds: float) -> None:
        """Until there is news after `since`, or the wait is over."""
        contract = self.contract
        if contract.sequence > since or self.state is State.SEALED or not self.alive:
            return
        waiter = self._loop.create_future()
        timer = self._loop.call_later(seconds, _end, waiter)
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiters.discard(waiter)

    def document(self) -> dict[str, Any]:
        """The answer to GET /drain, as this process tells it."""
        said = self.contract.snapshot(self._loop.time())
        match self.conduct:
            case "ignores":
                said |= {"drainId": None, "state": "serving"}
            case "sealed while busy":
                said |= {"state": "sealed", "inFlight": max(self.in_flight, 1)}
            case "sealed at once":
                said |= {"state": "sealed", "inFlight": 0}
            case "negative count":
                said |= {"inFlight": -1}
            case "falling sequence":
                self._count += 1
                said |= {"sequence": 1_000_000 - self._count}
            case "foreign id":
                said |= {"drainId": "somebody-else"}
        return said


def settings(container: Mapping[str, Any]) -> dict[str, float]:
    """The contract's numbers from the environment that the operator has rendered."""
    env = {row["name"]: row.get("value", "") for row in container.get("env") or []}
    return {
        name: float(env[f"TIDEGATE_{name.upper()}_SECONDS"])
        for name in ("grace", "propagation", "quiet", "flush", "stalled_after")
    }


def of_service(container: Mapping[str, Any], instance: str) -> DrainContract:
    """The contract as the test service speaks it itself."""
    return DrainContract(Settings(**settings(container)), instance, serves_late=True)


def of_gateway(container: Mapping[str, Any], instance: str) -> DrainContract:
    """The contract as the shipped gateway speaks it for an engine."""
    return DrainContract(Settings(**settings(container)), instance)


def _end(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)

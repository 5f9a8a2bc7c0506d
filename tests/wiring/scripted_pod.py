"""A pod that speaks the drain contract by the book, as a script, and sessions that talk to it, in virtual time."""

import asyncio
import functools
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

from tidegate.api.errors import KeyRefused, TooLate
from tidegate.core.planner.actions import DrainOrder, Question
from tidegate.core.state.snapshot import DrainRecord, Reading
from tidegate.drain.contract import Address
from tidegate.drain.sessions import Sessions
from tidegate.preview.virtual_time import VirtualLoop

LATENCY = 0.001


def virtual(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run in virtual time; a test that waits for something nobody sends fails at once."""

    @functools.wraps(test)
    def run(**given: Any) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(test(**given))

    return run


def now() -> float:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop.now()


def order(**fields: Any) -> DrainOrder:
    begun = now()
    record = DrainRecord("our-id", "run-1", "Rollout", begun, begun + 600, 600.0)
    known = {"propagation_seconds": 5, "quiet_seconds": 2, "flush_seconds": 5, "stalled_after_seconds": 300}
    return DrainOrder(pod="v1-1", uid="u", ip="192.0.2.1", port=9901, record=record, **(known | fields))


@dataclass
class Pod:
    """Speaks the contract by the book: sealed once the propagation is over and `work_ends` has come."""

    work_ends: float = 20.0
    instance: str = "run-1"
    drain_id: str | None = None
    state: str = "serving"
    sequence: int = 1
    keys: tuple[str, ...] = ("key",)
    calls: list[str] = field(default_factory=list)
    alter: Callable[[Reading], Reading] = lambda reading: reading
    fault: Callable[[str], None] = lambda call: None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    began: float | None = None

    def named(self, call: str) -> int:
        return self.calls.count(call)

    async def _enter(self, call: str, key: str) -> None:
        self.calls.append(call)
        await asyncio.sleep(LATENCY)
        self.fault(call)
        if key not in self.keys:
            raise KeyRefused("unauthorized", "the pod refuses the key")

    def _answer(self) -> Reading:
        over = self.began is not None and now() - self.began >= self.work_ends
        busy = 0 if self.state == "sealed" or over else 3
        reading = Reading(now(), self.instance, self.drain_id, self.state, busy, sequence=self.sequence)
        return self.alter(reading)

    def turn(self, state: str, drain_id: str | None = None) -> None:
        self.state, self.drain_id = state, drain_id
        self.sequence += 1
        self.changed.set()

    def restart(self) -> None:
        self.instance, self.state, self.drain_id, self.sequence = "run-2", "serving", None, 1
        self.changed.set()

    async def ask(self, address: Address, key: str, at: float) -> Reading:
        await self._enter("ask", key)
        return self._answer()

    async def start(self, address: Address, key: str, order: DrainOrder, since: float, at: float) -> Reading:
        await self._enter("start", key)
        if self.state == "serving":
            self.began = now()
            self.turn("draining", order.record.id)
            ends = max(self.work_ends, order.propagation_seconds - since)
            asyncio.get_running_loop().call_later(ends, self._seal, self.instance)
        return self._answer()

    def _seal(self, instance: str) -> None:
        if self.state == "draining" and self.instance == instance:
            self.turn("sealed", self.drain_id)

    async def wait(self, address: Address, key: str, sequence: int, at: float) -> Reading:
        await self._enter("wait", key)
        try:
            async with asyncio.timeout(5):
                while self.sequence <= sequence and self.state != "sealed":
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError:
            pass
        return self._answer()

    async def undo(self, address: Address, key: str, drain_id: str) -> None:
        await self._enter("undo", key)
        if self.state == "sealed" or self.drain_id != drain_id:
            raise TooLate("too-late", "sealed, or another id")
        self.turn("serving")


@dataclass
class Desk:
    """Sessions with what they need, and a record of what they asked for."""

    pod: Pod
    keys: tuple[tuple[str, ...], tuple[str, ...]] = (("key",), ("key",))
    leaves_after: float = 0.3
    woken: list[str] = field(default_factory=list)
    fresh: list[bool] = field(default_factory=list)
    looked: int = 0

    def __post_init__(self) -> None:
        self.began = now()
        self.sessions = Sessions(self.pod, self._keys, self._absent, self.woken.append, now)

    async def _keys(self, key: str, fresh: bool) -> tuple[str, ...]:
        self.fresh.append(fresh)
        return self.keys[fresh]

    async def _absent(self, key: str, order: DrainOrder) -> bool:
        self.looked += 1
        await asyncio.sleep(LATENCY)
        return now() - self.began >= self.leaves_after

    def want(self, *orders: DrainOrder, questions: Iterable[Question] = ()) -> None:
        self.sessions.want("shop/chat", orders, questions)

    @property
    def heard(self) -> Reading | None:
        return self.sessions.readings.get("u")

    @property
    def trouble(self) -> str | None:
        found = self.sessions.troubles.get("u")
        return found.kind if found else None


QUESTION = Question("u", "192.0.2.1", 9901)

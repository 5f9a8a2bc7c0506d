"""One conversation per draining pod: withdrawn, told, waited for.

A session keeps nothing that matters: all of it can be asked again. It writes what it learns into `readings`,
`troubles` and `withdrawn`, and wakes the service's reconcile; decisions are taken there.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Final, Protocol

from tidegate.api.errors import KeyRefused, PodTrouble, TooLate
from tidegate.contract.terms import State
from tidegate.core.planner.actions import DrainOrder, Question
from tidegate.core.state.snapshot import Reading, Trouble

from .contract import Address, Peer

log = logging.getLogger(__name__)

FIRST_POLL: Final = 0.05
SLOWEST_POLL: Final = 1.0
FAULT_SECONDS: Final = 5.0
LATE_SECONDS: Final = 5.0
"""A withdrawal that takes longer is named."""
RESTLESS_SECONDS: Final = 0.5
"""Pause after an answer that came at once and said nothing new; with news, which a pod may claim as often as it likes,
FIRST_POLL is enough. So no pod can make the operator spin."""


class Talk(Protocol):
    """The drain contract, as `contract.Contract` has it; `foreign.ForeignEndpoints` makes other endpoints look so."""

    async def ask(self, address: Address, key: str, now: float) -> Reading: ...
    async def start(
        self, address: Address, key: str, order: DrainOrder, since_withdrawal: float, now: float
    ) -> Reading: ...
    async def wait(self, address: Address, key: str, sequence: int, now: float) -> Reading: ...
    async def undo(self, address: Address, key: str, drain_id: str) -> None: ...


Keys = Callable[[str, bool], Awaitable[tuple[str, ...]]]
"""(service key, fresh) -> drain keys to try in order; `fresh` reads the Secret again."""
Absent = Callable[[str, DrainOrder], Awaitable[bool]]
"""Whether the pod is in no EndpointSlice that matters, read from the API server now."""


class Sessions:
    """All conversations of this process, by pod uid."""

    def __init__(
        self, talk: Talk, keys: Keys, absent: Absent, wake: Callable[[str], None], now: Callable[[], float]
    ) -> None:
        self.readings: dict[str, Reading] = {}
        self.troubles: dict[str, Trouble] = {}
        self.withdrawn: dict[str, float] = {}
        self._owners: dict[str, str] = {}
        self._talk, self._keys, self._absent, self._wake, self._now = talk, keys, absent, wake, now
        self._running: dict[str, tuple[str, DrainOrder, asyncio.Task[None]]] = {}
        self._asking: dict[str, tuple[str, asyncio.Task[None]]] = {}

    def want(self, key: str, orders: Iterable[DrainOrder], questions: Iterable[Question]) -> None:
        """Make the conversations of service `key` exactly these."""
        wanted = {order.uid: order for order in orders}
        for uid, (owner, order, task) in list(self._running.items()):
            if owner == key and wanted.get(uid) != order:
                task.cancel()
                del self._running[uid]
                if uid not in wanted or wanted[uid].record.id != order.record.id:
                    # Given back, it enters the slices again: the next drain has to see it leave them.
                    self.withdrawn.pop(uid, None)
                if uid in wanted and wanted[uid].undo != order.undo:
                    # What was said on the way out says nothing about the way back.
                    self.readings.pop(uid, None)
        for uid, order in wanted.items():
            if uid not in self._running:
                self._cancel_question(uid)
                self._running[uid] = (key, order, asyncio.create_task(self._converse(key, order), name=f"drain {uid}"))
        for question in questions:
            if question.uid not in self._asking and question.uid not in self._running:
                task = asyncio.create_task(self._question(key, question), name=f"ask {question.uid}")
                self._asking[question.uid] = (key, task)

    def readings_of(self, key: str) -> dict[str, Reading]:
        """What the pods of service `key` said last, by uid."""
        return {uid: said for uid, said in self.readings.items() if self._owners.get(uid) == key}

    def troubles_of(self, key: str) -> dict[str, Trouble]:
        """What was wrong with the last try of each pod of service `key`, by uid."""
        return {uid: what for uid, what in self.troubles.items() if self._owners.get(uid) == key}

    def forget(self, key: str, standing: set[str]) -> None:
        """Drop what is known of pods of service `key` that are gone; `standing` holds the uids that are not."""
        for uid, (owner, _, task) in list(self._running.items()):
            if owner == key and uid not in standing:
                task.cancel()
                del self._running[uid]
        for uid in [u for u, owner in self._owners.items() if owner == key and u not in standing]:
            self.readings.pop(uid, None)
            self.troubles.pop(uid, None)
            self.withdrawn.pop(uid, None)
            del self._owners[uid]

    async def close(self) -> None:
        tasks = [task for _, _, task in self._running.values()] + [task for _, task in self._asking.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._running.clear()
        self._asking.clear()

    def _cancel_question(self, uid: str) -> None:
        held = self._asking.pop(uid, None)
        if held is not None:
            held[1].cancel()

    async def _question(self, key: str, question: Question) -> None:
        address = _address(key, question)
        try:
            reading = await self._with_key(key, lambda k: self._talk.ask(address, k, self._now()))
            self._learned(key, question.uid, reading)
        except PodTrouble as trouble:
            self._failed(key, question.uid, trouble)
        except Exception:
            log.exception("question to pod %s failed by a fault", question.uid)
            self._failed(key, question.uid, PodTrouble("fault", "a fault of the operator, see its log"))
        finally:
            if self._asking.get(question.uid, (None, None))[1] is asyncio.current_task():
                del self._asking[question.uid]
            self._wake(key)

    async def _converse(self, key: str, order: DrainOrder) -> None:
        while True:
            try:
                if order.undo:
                    await self._back(key, order)
                else:
                    await self._until_sealed(key, order)
            except Exception:
                # A fault of ours must not take a pod for empty, nor leave it alone until its budget is spent.
                log.exception("drain session of pod %s failed by a fault, begun again", order.pod)
                await asyncio.sleep(FAULT_SECONDS)
            else:
                return

    async def _leave(self, key: str, order: DrainOrder) -> None:
        """Until the pod is absent from the slices, as read after the PATCH.

        A pod that stays in them is told all the same when it has just the time left to deliver shutdown tokens.
        """
        pause, began = FIRST_POLL, self._now()
        while order.uid not in self.withdrawn:
            if await self._absent(key, order):
                self._owners[order.uid] = key
                self.withdrawn[order.uid] = self._now()
                return
            deadline = order.record.deadline
            if deadline is not None and self._now() >= deadline - order.flush_seconds - 1:
                return
            if self._now() - began >= LATE_SECONDS and order.uid not in self.troubles:
                self._failed(
                    key, order.uid, PodTrouble("not-withdrawn", "it is in an EndpointSlice, or they cannot be read")
                )
                self._wake(key)
            await asyncio.sleep(pause)
            pause = min(pause * 2, SLOWEST_POLL)

    async def _until_sealed(self, key: str, order: DrainOrder) -> None:
        address = _address(key, order)
        told = False
        pause = FIRST_POLL
        last: Reading | None = None
        while True:
            if not told:
                await self._leave(key, order)
            began = self._now()
            try:
                if not told:
                    since = began - self.withdrawn.get(order.uid, began)
                    reading = await self._with_key(
                        key,
                        lambda k: self._talk.start(address, k, order, since, self._now()),  # noqa: B023
                    )
                else:
                    sequence = last.sequence if last else 0
                    reading = await self._with_key(
                        key,
                        lambda k: self._talk.wait(address, k, sequence, self._now()),  # noqa: B023
                    )
                reading = replace(reading, at=self._now())
                self._check(order, last, reading, just_told=not told)
            except PodTrouble as trouble:
                self._failed(key, order.uid, trouble)
                self._wake(key)
                await asyncio.sleep(pause)
                pause = min(pause * 2, SLOWEST_POLL)
                # It may have restarted behind our back: the same id again only updates its numbers.
                told = False
                continue
            pause = FIRST_POLL
            # A process that restarted, or was undrained by somebody, has to be told again.
            if told and reading.drain_id != order.record.id:
                # Undrained, it may be in the slices again, as when another operator has given it back.
                self.withdrawn.pop(order.uid, None)
            told = reading.drain_id == order.record.id
            news = last is None or reading.sequence != last.sequence or reading.state != last.state
            reading = _followed(self.readings.get(order.uid), _with_cut_age(last, reading))
            last = self._learned(key, order.uid, reading)
            if news:
                self._wake(key)
            if told and reading.state == State.SEALED:
                return
            least = FIRST_POLL if news else RESTLESS_SECONDS
            if self._now() - began < least:
                await asyncio.sleep(least)

    def _check(self, order: DrainOrder, last: Reading | None, reading: Reading, *, just_told: bool) -> None:
        if just_told and reading.drain_id != order.record.id:
            other = "it drains under an id that is not ours"
            raise PodTrouble("ignored", other if reading.drain_id else "it was told to drain and does not")
        if reading.state == State.SEALED and reading.at - order.record.since < order.propagation_seconds:
            raise PodTrouble("contradiction", "it says sealed before the propagation time is over")
        if last is not None and last.instance == reading.instance and reading.sequence < last.sequence:
            raise PodTrouble("contradiction", "its sequence falls")

    async def _back(self, key: str, order: DrainOrder) -> None:
        """Ask the pod to serve again until it says so; a sealed one says that instead.

        Goes on, once a second, until the reconcile has taken the answer up and wants no undo any more: a call that is
        withdrawn late, or one of another operator's, may still tell the pod to drain after it said that it serves. The
        DELETE names our drain id, so a repeated one finds nothing to undo and harms no drain of others.
        """
        address = _address(key, order)
        pause = FIRST_POLL
        while True:
            try:
                try:
                    await self._with_key(key, lambda k: self._talk.undo(address, k, order.record.id))
                except TooLate:
                    log.info("pod %s cannot be undrained any more, or was not told yet", order.pod)
                reading = await self._with_key(key, lambda k: self._talk.ask(address, k, self._now()))
                self._learned(key, order.uid, reading)
                self.withdrawn.pop(order.uid, None)
                self._wake(key)
            except PodTrouble as trouble:
                self._failed(key, order.uid, trouble)
                self._wake(key)
            await asyncio.sleep(pause)
            pause = min(pause * 2, SLOWEST_POLL)

    async def _with_key(self, key: str, call: Callable[[str], Awaitable[Reading | None]]) -> Reading:
        refused: KeyRefused | None = None
        for fresh in (False, True):
            for secret in await self._keys(key, fresh):
                try:
                    return await call(secret)  # type: ignore[return-value]
                except KeyRefused as error:
                    refused = error
        raise refused or PodTrouble("no-key", "the Secret with the drain key is not there")

    def _learned(self, key: str, uid: str, reading: Reading) -> Reading:
        self._owners[uid] = key
        self.readings[uid] = reading
        self.troubles.pop(uid, None)
        return reading

    def _failed(self, key: str, uid: str, trouble: PodTrouble) -> None:
        self._owners[uid] = key
        self.troubles[uid] = Trouble(self._now(), trouble.kind, str(trouble))


def _address(key: str, of: DrainOrder | Question) -> Address:
    if of.foreign is None:
        return Address(of.ip, of.port)
    namespace = key.split("/", 1)[0]
    if isinstance(of, Question):
        return Address(of.ip, of.port, Peer(namespace, of.uid, of.foreign, of.run))
    return Address(of.ip, of.port, Peer(namespace, of.uid, of.foreign, of.run, of.pod, of.record.id))


def _followed(before: Reading | None, reading: Reading) -> Reading:
    """With when the pod was last seen at work and first seen without: an answer alone tells neither.

    An endpoint that does not count is taken to be at work until it says that it is over.
    """
    idle = reading.state == State.SEALED or (reading.in_flight is not None and reading.in_flight <= reading.stalled)
    if not idle:
        return replace(reading, busy_at=reading.at)
    if before is None or before.instance != reading.instance:
        return replace(reading, idle_since=reading.at)
    return replace(reading, busy_at=before.busy_at, idle_since=before.idle_since or reading.at)


def _with_cut_age(last: Reading | None, reading: Reading) -> Reading:
    """The contract does not say how old the cut requests were; the last answer before the cut does."""
    if not reading.cut or last is None or last.instance != reading.instance:
        return reading
    age = last.oldest_cut_seconds
    if reading.cut > last.cut and last.oldest_seconds is not None:
        age = max(age or 0.0, last.oldest_seconds + reading.at - last.at)
    return replace(reading, oldest_cut_seconds=age)

"""One session per draining pod: wait until it is withdrawn, start its drain, wait until it is sealed.

A session holds no state that matters: the pod can be asked for all of it again. It writes results to `readings`,
`troubles` and `withdrawn` and wakes the reconcile of the service, which makes the decisions.
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
"""Seconds after which a pod that is still in an EndpointSlice is reported."""
RESTLESS_SECONDS: Final = 0.5
"""Least seconds between two answers without a change; with a change, which a pod may report as often as it likes, it is
FIRST_POLL. So no pod can make the operator spin."""


class Talk(Protocol):
    """The calls of the drain contract: `contract.Contract`, or `foreign.ForeignEndpoints`, which emulates them."""

    async def ask(self, address: Address, key: str, now: float) -> Reading:
        """What the pod holds now."""

    async def start(
        self, address: Address, key: str, order: DrainOrder, since_withdrawal: float, now: float
    ) -> Reading:
        """Begin the drain, or give a running one its new numbers; `since_withdrawal` in seconds."""

    async def wait(self, address: Address, key: str, sequence: int, now: float) -> Reading:
        """What the pod holds once that is newer than `sequence`, or when the wait of one call is over."""

    async def undo(self, address: Address, key: str, drain_id: str) -> None:
        """Ask the pod to serve again."""


Keys = Callable[[str, bool], Awaitable[tuple[str, ...]]]
"""(service key, fresh) -> drain keys, to be tried in order; `fresh` reads the Secret again."""
Absent = Callable[[str, DrainOrder], Awaitable[bool]]
"""Whether the pod has left all EndpointSlices of its Services, read from the API server."""


class Sessions:
    """All sessions of this process, by pod uid."""

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
        """Make the sessions of service `key` exactly these: start the missing ones and cancel all others."""
        wanted = {order.uid: order for order in orders}
        for uid, (owner, order, task) in list(self._running.items()):
            if owner == key and wanted.get(uid) != order:
                task.cancel()
                del self._running[uid]
                if uid not in wanted or wanted[uid].record.id != order.record.id:
                    # Serving again, it returns to the slices: the next drain has to wait until it leaves them.
                    self.withdrawn.pop(uid, None)
                if uid in wanted and wanted[uid].undo != order.undo:
                    # A reading from before the undo says nothing about its progress.
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
        """The last readings of the pods of service `key`, by uid."""
        return {uid: reading for uid, reading in self.readings.items() if self._owners.get(uid) == key}

    def troubles_of(self, key: str) -> dict[str, Trouble]:
        """Why the last call to a pod of service `key` failed, by uid of those whose last call failed."""
        return {uid: trouble for uid, trouble in self.troubles.items() if self._owners.get(uid) == key}

    def forget(self, key: str, standing: set[str]) -> None:
        """Forget the pods of service `key` that are gone; `standing` holds the uids of those that exist."""
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
        """Cancel all sessions and questions."""
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
            log.exception("asking pod %s failed with an internal error", question.uid)
            self._failed(key, question.uid, PodTrouble("fault", "an internal error of the operator: see its log"))
        finally:
            if self._asking.get(question.uid, (None, None))[1] is asyncio.current_task():
                del self._asking[question.uid]
            self._wake(key)

    async def _converse(self, key: str, order: DrainOrder) -> None:
        while True:
            try:
                if order.watch:
                    await self._watch(key, order)
                elif order.undo:
                    await self._back(key, order)
                else:
                    await self._until_sealed(key, order)
            except Exception:
                # A bug must not make a pod count as empty, nor leave it without a session until its budget is spent.
                log.exception("drain session of pod %s failed with an internal error, retrying", order.pod)
                await asyncio.sleep(FAULT_SECONDS)
            else:
                return

    async def _leave(self, key: str, order: DrainOrder) -> None:
        """Wait until the pod has left the slices, as read after the PATCH.

        Returns early for a pod that stays in them when only the time to deliver shutdown tokens is left.
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
                text = "it is still in an EndpointSlice, or the EndpointSlices cannot be read"
                self._failed(key, order.uid, PodTrouble("not-withdrawn", text))
                self._wake(key)
            await asyncio.sleep(pause)
            pause = min(pause * 2, SLOWEST_POLL)

    async def _until_sealed(self, key: str, order: DrainOrder) -> None:
        address = _address(key, order)
        started = False
        pause = FIRST_POLL
        last: Reading | None = None
        while True:
            if not started:
                await self._leave(key, order)
            began = self._now()
            try:
                if not started:
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
                self._check(order, last, reading, just_started=not started)
            except PodTrouble as trouble:
                self._failed(key, order.uid, trouble)
                self._wake(key)
                await asyncio.sleep(pause)
                pause = min(pause * 2, SLOWEST_POLL)
                # It may have restarted unnoticed: starting the same id again only updates its numbers.
                started = False
                continue
            pause = FIRST_POLL
            # A process that has restarted, or was undrained by somebody, needs its drain started again.
            if started and reading.drain_id != order.record.id:
                # Undrained, for example by another operator, it may be in the slices again.
                self.withdrawn.pop(order.uid, None)
            started = reading.drain_id == order.record.id
            news = last is None or reading.sequence != last.sequence or reading.state != last.state
            reading = _followed(self.readings.get(order.uid), _with_cut_age(last, reading))
            last = self._learned(key, order.uid, reading)
            if news:
                self._wake(key)
            if started and reading.state == State.SEALED:
                return
            least = FIRST_POLL if news else RESTLESS_SECONDS
            if self._now() - began < least:
                await asyncio.sleep(least)

    def _check(self, order: DrainOrder, last: Reading | None, reading: Reading, *, just_started: bool) -> None:
        if just_started and reading.drain_id != order.record.id:
            other = "it drains under another id"
            raise PodTrouble("ignored", other if reading.drain_id else "it does not drain although it was asked to")
        if reading.state == State.SEALED and reading.at - order.record.since < order.propagation_seconds:
            raise PodTrouble("contradiction", "it reports sealed before the propagation time is over")
        if last is not None and last.instance == reading.instance and reading.sequence < last.sequence:
            raise PodTrouble("contradiction", "its sequence decreases")

    async def _back(self, key: str, order: DrainOrder) -> None:
        """Ask the pod to serve again until it reports serving, or sealed if it is too late.

        Repeats once a second until the reconcile has seen the answer and wants no undo any more: a call that is
        cancelled late, or a call of another operator, may still start a drain after the pod reported serving. The
        DELETE names our drain id, so repeating it is harmless, also for drains of others.
        """
        address = _address(key, order)
        pause = FIRST_POLL
        while True:
            try:
                try:
                    await self._with_key(key, lambda k: self._talk.undo(address, k, order.record.id))
                except TooLate:
                    log.info("pod %s can no longer be undrained, or its drain has not started yet", order.pod)
                reading = await self._with_key(key, lambda k: self._talk.ask(address, k, self._now()))
                self._learned(key, order.uid, reading)
                self.withdrawn.pop(order.uid, None)
                self._wake(key)
            except PodTrouble as trouble:
                self._failed(key, order.uid, trouble)
                self._wake(key)
            await asyncio.sleep(pause)
            pause = min(pause * 2, SLOWEST_POLL)

    async def _watch(self, key: str, order: DrainOrder) -> None:
        """Ask a pod that drains by itself, until nobody wants to know any more; its last answer is the one that counts.

        It is called with a wait: what it cuts at the end of its grace period it tells as soon as nothing is left, and a
        moment later it may have ended.
        """
        address = _address(key, Question(order.uid, order.ip, order.port, order.foreign, order.run))
        last: Reading | None = None
        while True:
            try:
                if last is None or address.peer is not None:
                    reading = await self._with_key(key, lambda k: self._talk.ask(address, k, self._now()))
                else:
                    seen = last.sequence
                    reading = await self._with_key(
                        key,
                        lambda k: self._talk.wait(address, k, seen, self._now()),  # noqa: B023
                    )
                reading = replace(reading, at=self._now())
                news = last is None or _told(reading) != _told(last)
                reading = _followed(self.readings.get(order.uid), _with_cut_age(last, reading))
                last = self._learned(key, order.uid, reading)
                if news:
                    self._wake(key)
            except PodTrouble as trouble:
                news, last = order.uid not in self.troubles, None
                self._failed(key, order.uid, trouble)
                if news:
                    self._wake(key)
                await asyncio.sleep(RESTLESS_SECONDS)
                continue
            # What has changed may be the last but one thing that it says.
            await asyncio.sleep(FIRST_POLL if news else RESTLESS_SECONDS)

    async def _with_key(self, key: str, call: Callable[[str], Awaitable[Reading | None]]) -> Reading:
        refused: KeyRefused | None = None
        for fresh in (False, True):
            for secret in await self._keys(key, fresh):
                try:
                    return await call(secret)  # type: ignore[return-value]
                except KeyRefused as error:
                    refused = error
        raise refused or PodTrouble("no-key", "the Secret with the drain key does not exist")

    def _learned(self, key: str, uid: str, reading: Reading) -> Reading:
        self._owners[uid] = key
        self.readings[uid] = reading
        self.troubles.pop(uid, None)
        return reading

    def _failed(self, key: str, uid: str, trouble: PodTrouble) -> None:
        self._owners[uid] = key
        self.troubles[uid] = Trouble(self._now(), trouble.kind, str(trouble))


def _told(reading: Reading) -> tuple[str, int | None, int | None]:
    return reading.state, reading.in_flight, reading.cut


def _address(key: str, of: DrainOrder | Question) -> Address:
    if of.foreign is None:
        return Address(of.ip, of.port)
    namespace = key.split("/", 1)[0]
    if isinstance(of, Question):
        return Address(of.ip, of.port, Peer(namespace, of.uid, of.foreign, of.run))
    return Address(of.ip, of.port, Peer(namespace, of.uid, of.foreign, of.run, of.pod, of.record.id))


def _followed(before: Reading | None, reading: Reading) -> Reading:
    """Add when the pod was last seen busy and first seen idle, which one answer does not contain.

    An endpoint without a count is busy until it reports that the drain is over.
    """
    idle = reading.state == State.SEALED or (reading.in_flight is not None and reading.in_flight <= reading.stalled)
    if not idle:
        return replace(reading, busy_at=reading.at)
    if before is None or before.instance != reading.instance:
        return replace(reading, idle_since=reading.at)
    return replace(reading, busy_at=before.busy_at, idle_since=before.idle_since or reading.at)


def _with_cut_age(last: Reading | None, reading: Reading) -> Reading:
    """Add the age of the oldest request that was cut. The contract lacks it; the last answer before the cut has it."""
    if not reading.cut or last is None or last.instance != reading.instance:
        return reading
    age = last.oldest_cut_seconds
    if reading.cut > (last.cut or 0) and last.oldest_seconds is not None:
        age = max(age or 0.0, last.oldest_seconds + reading.at - last.at)
    return replace(reading, oldest_cut_seconds=age)

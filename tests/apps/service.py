"""What the two ports share: the contract with its clock and log, and the task that does what is due."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from apps.events import EventLog
from apps.misbehave import Misbehaviour
from tidegate.contract.machine import DrainContract
from tidegate.contract.terms import Admission, DrainConflictError, DrainRequest, Settings


@dataclass(slots=True)
class Running:
    """How the contract reaches one request: `end` asks for the shutdown token, `abort` cuts the connection."""

    end: asyncio.Event = field(default_factory=asyncio.Event)
    abort: Callable[[], None] = lambda: None
    tokens: int = 0
    expected: int = 0


class Service:
    """Drives one DrainContract: every event goes through here, is logged, and wakes who waits."""

    def __init__(self, settings: Settings, instance: str, log: EventLog, misbehaviour: Misbehaviour) -> None:
        # The gateway refuses what comes late, this serves it: the operator has to live with both.
        self.contract = DrainContract(settings, instance, serves_late=True)
        self.log = log
        self.misbehaviour = misbehaviour
        self.sealed = asyncio.Event()
        self.running: dict[str, Running] = {}
        self.on_seal: Callable[[], object] = lambda: None
        self.hurried = asyncio.Event()
        """For the streams that run now; those that begin after it is set get another."""
        self._changed = asyncio.Event()
        self._answers = 0
        self._withdrawn = False

    # -- waiting

    def changed(self) -> asyncio.Event:
        """The event that is set at the next happening; ask before looking, then look, then wait."""
        return self._changed

    def touch(self) -> None:
        """Do what is due and wake everybody who waits for a change."""
        now = time.monotonic()
        due = self.contract.advance(now)
        for work_id in due.tokens:
            self.log.write("token", id=work_id, seconds=self._age(work_id, now), tokens=self.running[work_id].tokens)
            self.running[work_id].end.set()
        for work_id in due.abort:
            self.running[work_id].abort()
        if due.sealed:
            state = self.contract.snapshot(now)
            self.log.write("sealed", drainId=state["drainId"], cut=state["cut"], inFlight=state["inFlight"])
            self.on_seal()
            self.sealed.set()
        self._changed.set()
        self._changed = asyncio.Event()

    async def keep_time(self) -> None:
        """Touch the contract when something is due although nothing happens."""
        while True:
            changed = self.changed()
            now = time.monotonic()
            due = self.contract.next_at(now)
            try:
                await asyncio.wait_for(changed.wait(), None if due is None else due - now)
            except TimeoutError:
                self.touch()

    # -- requests

    def arrive(self, work_id: str, running: Running, *, streaming: bool, queued: bool) -> Admission:
        now = time.monotonic()
        admission = self.contract.arrive(work_id, now, streaming=streaming, queued=queued)
        if admission is Admission.REFUSE:
            self.log.write("refused", id=work_id, sinceWithdrawalSeconds=self._since_withdrawal(now))
        else:
            self.running[work_id] = running
            if admission is Admission.SERVE_AND_CLOSE:
                self.log.write("late", id=work_id, sinceWithdrawalSeconds=self._since_withdrawal(now))
            if streaming:
                self.log.write("stream-start", id=work_id, expected=running.expected)
        self.touch()
        return admission

    def finish(self, work_id: str, by: str) -> None:
        """`by`: done, token, client-gone, exit. Streams alone are logged."""
        running = self.running.pop(work_id)
        work = self.contract.work(work_id)
        age = self._age(work_id, time.monotonic())
        self.contract.finish(work_id)
        if work.streaming:
            whole = by == "done"
            self.log.write(
                "stream-end",
                id=work_id,
                seconds=age,
                tokens=running.tokens,
                expected=running.expected,
                whole=whole,
                by=by,
            )
        self.touch()

    def hurry(self) -> None:
        """Let what runs now send the rest of its tokens at once; what begins later takes its time again."""
        self.log.write("hurry", running=len(self.running))
        self.hurried.set()
        self.hurried = asyncio.Event()

    # -- drain

    def post(self, request: DrainRequest) -> None:
        if "ignore-drain" in self.misbehaviour:
            return
        if "lie-early" in self.misbehaviour:
            request = DrainRequest(request.id, request.reason, request.remaining, propagation=0.0, quiet=0.0)
        first = self.contract.drain_id != request.id
        self.contract.post(request, time.monotonic())
        if first:
            self._log_drain("drain", id=request.id, reason=request.reason, remainingSeconds=request.remaining)
        self.touch()

    def undrain(self, drain_id: str | None) -> None:
        """Raises DrainConflictError."""
        try:
            self.contract.undrain(drain_id)
        except DrainConflictError as error:
            self.log.write("undrain-refused", id=drain_id, message=str(error))
            raise
        self._withdrawn = False
        self.log.write("undrain", id=drain_id)
        self.touch()

    def prestop(self) -> None:
        self.contract.prestop(time.monotonic())
        self._log_drain("prestop")
        self.touch()

    def sigterm(self) -> None:
        self.contract.sigterm(time.monotonic())
        self._log_drain("sigterm")
        self.touch()

    def answer(self) -> dict[str, object]:
        """The state as told to who asks, lies included."""
        self._answers += 1
        return self.misbehaviour.alter(self.contract.snapshot(time.monotonic()), self._answers)

    def unfinished(self, by: str) -> None:
        """The process goes now: say of every stream that it was cut."""
        for work_id in list(self.running):
            self.finish(work_id, by)

    def _log_drain(self, event: str, **fields: object) -> None:
        """Log who runs at this call, and before the first one who of them was there when the pod was withdrawn."""
        now = time.monotonic()
        since = self._since_withdrawal(now)
        works = [work for work in self.contract.works() if work.streaming]
        streams = [{"id": work.id, "ageSeconds": round(now - work.arrived, 3)} for work in works]
        if not self._withdrawn and since is not None:
            held = [work.id for work in works if now - work.arrived >= since]
            self.log.write("withdrawn", withdrawnAt=round(time.time() - since, 4), streams=held)
        self._withdrawn = True
        self.log.write(event, **fields, streams=streams, sinceWithdrawalSeconds=since, drainId=self.contract.drain_id)

    def _since_withdrawal(self, now: float) -> float | None:
        withdrawn = self.contract.withdrawn_at
        return None if withdrawn is None else round(now - withdrawn, 3)

    def _age(self, work_id: str, now: float) -> float:
        return round(now - self.contract.work(work_id).arrived, 3)

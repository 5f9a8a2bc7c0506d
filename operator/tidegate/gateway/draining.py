"""Drives the contract: its clock, its timer, who waits for a change, and the requests that it ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

from tidegate.contract.machine import DrainContract
from tidegate.contract.terms import Admission, DrainConflictError, DrainRequest, Settings, State, Work
from tidegate.gateway.clock import Clock
from tidegate.gateway.log import Log


class Endable(Protocol):
    """What the drain does to a request in flight."""

    def end(self) -> None:
        """End it with a shutdown token, in good form."""

    def abort(self) -> None:
        """Cut its connection: no token can reach its client."""

    def drain_changed(self, draining: bool) -> None:
        """A drain has begun, or was taken back."""


class Drain:
    """One DrainContract in a running process. Every event goes through here and wakes who waits."""

    def __init__(
        self, settings: Settings, instance: str, log: Log, clock: Clock, on_seal: Callable[[], object]
    ) -> None:
        self.contract = DrainContract(settings, instance)
        self.draining = False
        self.sealed = asyncio.Event()
        self._on_seal = on_seal
        self._log = log
        self._now = clock.monotonic
        self._running: dict[str, Endable] = {}
        self._changed = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._touching = self._again = False

    @property
    def reason(self) -> str:
        return self.contract.shutdown_reason

    def answer(self) -> dict[str, object]:
        """The state, as told to who asks."""
        return self.contract.snapshot(self._now())

    def changed(self) -> asyncio.Event:
        """The event that is set at the next happening: ask for it, then look, then wait."""
        return self._changed

    # -- requests

    def arrive(self, work_id: str, request: Endable) -> Admission:
        admission = self.contract.arrive(work_id, self._now(), queued=True)
        if admission is not Admission.REFUSE:
            self._running[work_id] = request
        self._happened()
        return admission

    def known(self, work_id: str) -> bool:
        return work_id in self._running

    def work(self, work_id: str) -> Work:
        return self.contract.work(work_id)

    def finish(self, work_id: str) -> None:
        del self._running[work_id]
        self.contract.finish(work_id)
        self._happened()

    # -- the engine

    def started(self) -> None:
        self._tell("serving", self.contract.started)

    def engine_gone(self) -> None:
        self._tell("engine-gone", self.contract.engine_gone)

    def engine_back(self) -> None:
        self._tell("engine-back", self.contract.engine_back)

    # -- calls

    def post(self, request: DrainRequest) -> None:
        first = self.contract.drain_id != request.id
        self.contract.post(request, self._now())
        if first:
            self._write("drain", id=request.id, reason=request.reason, remainingSeconds=request.remaining)
        self.touch()

    def undrain(self, drain_id: str | None) -> None:
        """Raises DrainConflictError."""
        try:
            self.contract.undrain(drain_id)
        except DrainConflictError as error:
            self._write("undrain-refused", id=drain_id, message=str(error))
            raise
        self._write("undrain", id=drain_id)
        self.touch()

    def prestop(self) -> None:
        self.contract.prestop(self._now())
        self._write("prestop")
        self.touch()

    def prestop_over(self) -> bool:
        """Whether the preStop hook may return."""
        return self.contract.prestop_over(self._now())

    def sigterm(self) -> None:
        self.contract.sigterm(self._now())
        self._write("sigterm")
        self.touch()

    def touch(self) -> None:
        """Do what is due, wake everybody who waits for a change, and see to the next moment."""
        self._again = True
        if self._touching:
            # A request that was ended here is an event itself; what was due before it comes first.
            return
        self._touching = True
        try:
            while self._again:
                self._again = False
                self._do_what_is_due()
        finally:
            self._touching = False

    # -- inside

    def _do_what_is_due(self) -> None:
        now = self._now()
        due = self.contract.advance(now)
        if due.sealed:
            state = self.contract.snapshot(now)
            self._log.write("sealed", drainId=state["drainId"], cut=state["cut"], inFlight=state["inFlight"])
            self.sealed.set()
        try:
            self._note_draining()
            for work_id in due.tokens:
                self._tell_request(work_id, lambda request: request.end())
            for work_id in due.abort:
                self._tell_request(work_id, lambda request: request.abort())
            if due.sealed:
                self._on_seal()
        finally:
            self._changed.set()
            self._changed = asyncio.Event()
            self._arm(now)

    def _happened(self) -> None:
        """An arrival or an end: in steady state nobody waits for it and nothing is due."""
        if self.contract.state is State.DRAINING:
            self.touch()
        else:
            self._changed.set()
            self._changed = asyncio.Event()

    def _tell(self, event: str, change: Callable[[], None]) -> None:
        contract = self.contract
        before = contract.state, contract.engine_lost
        change()
        if (contract.state, contract.engine_lost) != before:
            self._log.write(event, state=contract.state.value)
            self.touch()

    def _note_draining(self) -> None:
        draining = self.contract.state in (State.DRAINING, State.SEALED)
        if draining is not self.draining:
            self.draining = draining
            for work_id in tuple(self._running):
                self._tell_request(work_id, lambda request: request.drain_changed(draining))

    def _tell_request(self, work_id: str, tell: Callable[[Endable], None]) -> None:
        """What is wrong with one request must cost no other its token, nor the pod its seal."""
        request = self._running.get(work_id)
        if request is None:
            return
        try:
            tell(request)
        except Exception as error:
            self._log.write("request-failed", requestId=work_id, error=repr(error))
            with contextlib.suppress(Exception):
                request.abort()

    def _arm(self, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.contract.next_at(now)
        if due is not None:
            self._timer = asyncio.get_running_loop().call_later(max(due - now, 0.001), self.touch)

    def _write(self, event: str, **fields: object) -> None:
        contract = self.contract
        self._log.write(event, **fields, drainId=contract.drain_id, inFlight=contract.in_flight)

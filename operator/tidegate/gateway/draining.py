"""Drives the drain contract: its clock, its timer, waiting callers, and the requests that a drain ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

from tidegate.contract.machine import DrainContract
from tidegate.contract.terms import Admission, DrainConflictError, DrainRequest, Settings, State, Work
from tidegate.gateway.clock import Clock
from tidegate.gateway.log import Log


class RequestInFlight(Protocol):
    """A request in flight, as the drain sees it."""

    def end(self) -> None:
        """End it with a shutdown token, as a proper response."""

    def abort(self) -> None:
        """Cut its connection: no token can reach its client any more."""

    def drain_changed(self) -> None:
        """A drain has begun, was undone, or has come to the point at which it may stop the engine."""


class Drain:
    """The DrainContract of this process. Every event passes through here and wakes the waiting callers."""

    def __init__(
        self, settings: Settings, instance: str, log: Log, clock: Clock, close_idle: Callable[[], object]
    ) -> None:
        self.contract = DrainContract(settings, instance)
        self.draining = False
        self.stopping = False
        """Whether the engine may have been told to stop; a drain by POST alone leaves it as it is."""
        self.sealed = asyncio.Event()
        self._close_idle = close_idle
        self._turned_away = False
        self._log = log
        self._now = clock.monotonic
        self._running: dict[str, RequestInFlight] = {}
        self._changed = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._updating = self._update_again = False

    @property
    def reason(self) -> str:
        """The reason of the drain, as clients are told."""
        return self.contract.shutdown_reason

    def snapshot(self) -> dict[str, object]:
        """The JSON answer of the contract, as of now."""
        return self.contract.snapshot(self._now())

    def changed(self) -> asyncio.Event:
        """The event that is set at the next change. Get it, then check the state, then wait for it."""
        return self._changed

    # -- requests

    def arrive(self, work_id: str, request: RequestInFlight) -> Admission:
        """A request has arrived; unless refused it is in flight until `finish`."""
        admission = self.contract.arrive(work_id, self._now(), queued=True)
        if admission is not Admission.REFUSE:
            self._running[work_id] = request
        self._request_changed()
        return admission

    def known(self, work_id: str) -> bool:
        """Whether a request with this id is in flight."""
        return work_id in self._running

    def work(self, work_id: str) -> Work:
        """The contract's record of a request in flight."""
        return self.contract.work(work_id)

    def dequeue(self, work_id: str) -> None:
        """The engine has begun to answer: from now on the request can stall."""
        self.contract.dequeue(work_id)
        if self.draining:
            self._arm(self._now())

    def finish(self, work_id: str) -> None:
        """The request is over."""
        del self._running[work_id]
        self.contract.finish(work_id)
        self._request_changed()

    # -- the engine

    def started(self) -> None:
        """The engine is ready."""
        self._engine_changed("serving", self.contract.started)

    def engine_gone(self) -> None:
        """Nothing listens at the address of the engine any more."""
        self._engine_changed("engine-gone", self.contract.engine_gone)

    def engine_back(self) -> None:
        """Something listens at the address of the engine again."""
        self._engine_changed("engine-back", self.contract.engine_back)

    # -- calls

    def post(self, request: DrainRequest) -> None:
        """Begin a drain, or update the current one."""
        first = self.contract.drain_id != request.id
        self.contract.post(request, self._now())
        if first:
            self._write("drain", id=request.id, reason=request.reason, remainingSeconds=request.remaining)
        self.update()

    def undrain(self, drain_id: str | None) -> None:
        """Raises DrainConflictError."""
        try:
            self.contract.undrain(drain_id)
        except DrainConflictError as error:
            self._write("undrain-refused", id=drain_id, message=str(error))
            raise
        self._write("undrain", id=drain_id)
        self.update()

    def prestop(self) -> None:
        """The preStop hook of the serving container was called."""
        self.contract.prestop(self._now())
        self._write("prestop")
        self.update()

    def prestop_over(self) -> bool:
        """Whether the preStop hook may return."""
        return self.contract.prestop_over(self._now())

    def prestop_returns(self) -> None:
        """The preStop hook of the serving container returns: what is in flight now is left to the engine's own end."""
        self._write("prestop-over", cut=self.contract.cut)

    def sigterm(self) -> None:
        """The process has received SIGTERM."""
        self.contract.sigterm(self._now())
        self._write("sigterm")
        self.update()

    def expire(self) -> None:
        """The process is about to end: what is still in flight is cut, and counted."""
        self.contract.expire(self._now())
        self.update()
        # A client that has not read its response to the end, though it may be whole.
        for work_id in tuple(self._running):
            self._call_request(work_id, lambda request: request.abort())

    def update(self) -> None:
        """Do what is due, wake waiting callers, and set the timer for what is due next."""
        self._update_again = True
        if self._updating:
            # Ending a request is an event too; what was already due comes first.
            return
        self._updating = True
        try:
            while self._update_again:
                self._update_again = False
                self._do_what_is_due()
        finally:
            self._updating = False

    # -- inside

    def _do_what_is_due(self) -> None:
        now = self._now()
        due = self.contract.advance(now)
        try:
            self._update_draining()
            turned_away = self.contract.turns_away(now)
            if turned_away and not self._turned_away:
                # Whoever holds on to a connection learns before its next request that it has to go elsewhere.
                self._close_idle()
            self._turned_away = turned_away
            for work_id in due.tokens:
                self._call_request(work_id, lambda request: request.end())
            for work_id in due.abort:
                self._call_request(work_id, lambda request: request.abort())
            if due.sealed:
                self._write("sealed", cut=self.contract.cut)
                self.sealed.set()
                self._close_idle()
        finally:
            self._changed.set()
            self._changed = asyncio.Event()
            self._arm(now)

    def _request_changed(self) -> None:
        """A request has arrived or ended; unless draining, nothing is due."""
        if self.contract.state is State.DRAINING:
            self.update()
        else:
            self._changed.set()
            self._changed = asyncio.Event()

    def _engine_changed(self, event: str, change: Callable[[], None]) -> None:
        contract = self.contract
        before = contract.state, contract.engine_lost
        change()
        if (contract.state, contract.engine_lost) != before:
            self._log.write(event, state=contract.state.value)
            self.update()

    def _update_draining(self) -> None:
        before = self.draining, self.stopping
        self.draining = self.contract.state in (State.DRAINING, State.SEALED)
        self.stopping = self.contract.stopping
        if (self.draining, self.stopping) != before:
            for work_id in tuple(self._running):
                self._call_request(work_id, lambda request: request.drain_changed())

    def _call_request(self, work_id: str, call: Callable[[RequestInFlight], None]) -> None:
        """An error in one request must not cost others their tokens, nor the pod its seal."""
        request = self._running.get(work_id)
        if request is None:
            return
        try:
            call(request)
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
            self._timer = asyncio.get_running_loop().call_later(max(due - now, 0.001), self.update)

    def _write(self, event: str, **fields: object) -> None:
        contract = self.contract
        self._log.write(event, **fields, drainId=contract.drain_id, inFlight=contract.in_flight)

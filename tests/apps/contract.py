"""The drain contract v1 as a state machine: no sockets, no clock. Methods take the time, in monotonic seconds.

The caller reports what happens to requests and drain calls, then calls `advance`, which says whom to end and whether
the pod has just been sealed, and `next_at`, which says when something is due although nothing happens.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from apps.terms import Admission, DrainConflictError, DrainRequest, Settings, State

AGES_SHOWN = 64
PRESTOP_MARGIN_SECONDS = 1.0


@dataclass(slots=True)
class Work:
    """One request in flight. `whole`: all of it was generated, only bytes are still on their way to the client."""

    id: str
    arrived: float
    streaming: bool
    queued: bool
    progressed: float | None = None
    whole: bool = False
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Advance:
    """What the caller has to do now. `tokens`: ids to end with a shutdown token (already counted as cut)."""

    tokens: tuple[str, ...] = ()
    abort: tuple[str, ...] = ()
    sealed: bool = False


class DrainContract:
    """The state of one process under the contract; see the module's docstring for how to drive it."""

    def __init__(self, settings: Settings, instance: str) -> None:
        self.instance = instance
        self.drain_id: str | None = None
        self.reason = ""
        self.sequence = 1
        self.cut = 0
        self._defaults = settings
        self._numbers = settings
        self._works: dict[str, Work] = {}
        self._started = False
        self._sealed = False
        self._tokens_sent = False
        self._prestopped = False
        self._terminating = False
        self._withdrawn: float | None = None
        self._last_arrival: float | None = None
        self._deadlines: dict[str, float] = {}

    # -- what is so now

    @property
    def state(self) -> State:
        if self._sealed:
            return State.SEALED
        if self.drain_id is not None or self._prestopped or self._terminating:
            return State.DRAINING
        return State.SERVING if self._started else State.STARTING

    @property
    def terminating(self) -> bool:
        return self._terminating

    @property
    def in_flight(self) -> int:
        return len(self._works)

    @property
    def deadline(self) -> float | None:
        """The earliest of the POST's, prestop's and SIGTERM's."""
        return min(self._deadlines.values(), default=None)

    @property
    def withdrawn_at(self) -> float | None:
        return self._withdrawn

    def works(self) -> tuple[Work, ...]:
        return tuple(self._works.values())

    def stalled(self, now: float) -> tuple[Work, ...]:
        """Begun streams that produced nothing for so long; queued and unbegun ones are silent by nature."""
        limit = self._numbers.stalled_after
        return tuple(
            work
            for work in self._works.values()
            if limit > 0 and work.streaming and work.progressed is not None and now >= work.progressed + limit
        )

    def snapshot(self, now: float) -> dict[str, object]:
        """The JSON answer of the contract."""
        ages = sorted((round(now - work.arrived, 3) for work in self._works.values()), reverse=True)
        last = self._last_arrival
        return {
            "contract": "v1",
            "instance": self.instance,
            "drainId": self.drain_id,
            "state": self.state.value,
            "inFlight": len(ages),
            "streams": sum(work.streaming and not work.queued for work in self._works.values()),
            "queued": sum(work.queued for work in self._works.values()),
            "stalled": len(self.stalled(now)),
            "oldestSeconds": ages[0] if ages else 0.0,
            "lastArrivalSeconds": None if last is None else round(now - last, 3),
            "cut": self.cut,
            "agesSeconds": ages[:AGES_SHOWN],
            "sequence": self.sequence,
        }

    # -- requests

    def arrive(self, work_id: str, now: float, *, streaming: bool, queued: bool = False) -> Admission:
        """A request was read. Unless refused it is in flight until `finish`; refused ones are arrivals too."""
        if work_id in self._works:
            raise ValueError(f"request id {work_id} is in flight already")
        self._last_arrival = now
        if self._sealed or self._tokens_sent:
            return Admission.REFUSE
        self._works[work_id] = Work(work_id, now, streaming, queued)
        if len(self._works) == 1:
            self.sequence += 1
        return Admission.SERVE if self.state in (State.SERVING, State.STARTING) else Admission.SERVE_AND_CLOSE

    def dequeue(self, work_id: str) -> None:
        self._works[work_id].queued = False

    def progress(self, work_id: str, now: float) -> None:
        """A part of the response has gone to the client."""
        self._works[work_id].progressed = now

    def generated(self, work_id: str) -> bool:
        """All of the response is generated; False if it was cut before, and the token must end it instead."""
        work = self._works[work_id]
        work.whole = not work.cut
        return work.whole

    def finish(self, work_id: str) -> None:
        """The last byte is written, or the client is gone."""
        del self._works[work_id]
        if not self._works:
            self.sequence += 1

    # -- calls that change the state

    def started(self) -> None:
        """The model is loaded."""
        before = self.state
        self._started = True
        self._count_change(before)

    def post(self, request: DrainRequest, now: float) -> None:
        """Begin a drain, update its numbers, or adopt one that another id or prestop began."""
        before, old = self.state, self._defaults
        self.drain_id, self.reason = request.id, request.reason
        self._withdrawn = now - request.since_withdrawal
        self._numbers = Settings(
            grace=old.grace,
            propagation=_given(request.propagation, old.propagation),
            quiet=_given(request.quiet, old.quiet),
            flush=_given(request.flush, old.flush),
            stalled_after=_given(request.stalled_after, old.stalled_after),
        )
        # Once tokens went out those streams are lost: a longer budget would only keep an ended pod waiting.
        if not self._tokens_sent:
            self._deadlines.pop("post", None)
            if request.remaining is not None:
                self._deadlines["post"] = now + request.remaining
        self._count_change(before)

    def undrain(self, drain_id: str | None) -> None:
        """Back to serving; raises DrainConflictError."""
        if self._sealed:
            raise DrainConflictError("sealed: the drain is over and cannot be undone")
        if drain_id is None or drain_id != self.drain_id:
            raise DrainConflictError(f"id is not the drainId in force, {self.drain_id}")
        if self._prestopped or self._terminating:
            raise DrainConflictError("the container is being stopped and cannot serve again")
        before = self.state
        self.drain_id, self.reason, self._withdrawn = None, "", None
        # The next drain is told what it cuts itself.
        self._numbers, self._tokens_sent, self.cut = self._defaults, False, 0
        self._deadlines.clear()
        self._count_change(before)

    def prestop(self, now: float) -> None:
        """The container is about to be stopped: withdraw. Never seals; a second call does not move the deadline."""
        before = self.state
        self._prestopped = True
        self._withdraw(now)
        self._deadlines.setdefault("prestop", now + self._defaults.grace)
        self._count_change(before)

    def prestop_over(self, now: float) -> bool:
        """Whether the preStop hook may return: nothing holds the pod or will come, or the grace is nearly over."""
        deadline = self._deadlines.get("prestop", math.inf)
        margin = min(PRESTOP_MARGIN_SECONDS, self._numbers.flush / 2)
        empty = self._unheld(now) and now >= self._propagated()
        return self._sealed or empty or now >= deadline - margin

    def sigterm(self, now: float) -> None:
        """SIGTERM: drain, with what is left of the grace if prestop ran before; a second one changes nothing."""
        before = self.state
        self._terminating = True
        self._withdraw(now)
        self._deadlines.setdefault("sigterm", now + self._defaults.grace)
        self._count_change(before)

    # -- time

    def advance(self, now: float) -> Advance:
        """Send what is due: tokens the flush time before the deadline, the seal. To be called after every event."""
        if self.state is not State.DRAINING:
            return Advance()
        tokens: tuple[str, ...] = ()
        deadline = self.deadline
        if deadline is not None and now >= deadline - self._numbers.flush:
            self._tokens_sent = True
            tokens = self._end(work for work in self._works.values() if not work.whole)
        if not (self.drain_id is not None or self._terminating):
            return Advance(tokens)
        expired = deadline is not None and now >= deadline
        if not expired and not self._may_seal(now):
            return Advance(tokens)
        self._sealed = True
        self.sequence += 1
        left = tuple(self._works.values())
        # What is whole, or had its token already, waits for a client that does not read: no token can reach that one.
        abort = tuple(work.id for work in left if expired or work.whole or (work.cut and work.id not in tokens))
        self._end(left)
        return Advance(tuple(work.id for work in left if work.id not in abort), abort, True)

    def next_at(self, now: float) -> float | None:
        """When `advance` may have something to do although nothing happens; None: only an event can change anything."""
        if self.state is not State.DRAINING:
            return None
        due = [moment for moment in self._moments() if moment > now]
        return min(due, default=None)

    # -- inside

    def _moments(self) -> list[float]:
        numbers, moments = self._numbers, list[float]()
        moments += [self._propagated(), self._quiet_over()]
        for deadline in self._deadlines.values():
            margin = min(PRESTOP_MARGIN_SECONDS, numbers.flush / 2)
            moments += [deadline - numbers.flush, deadline - margin, deadline]
        if numbers.stalled_after > 0:
            moments += [w.progressed + numbers.stalled_after for w in self._works.values() if w.progressed is not None]
        return moments

    def _unheld(self, now: float) -> bool:
        return len(self._works) - len(self.stalled(now)) == 0

    def _may_seal(self, now: float) -> bool:
        return self._unheld(now) and now >= self._propagated() and now >= self._quiet_over()

    def _propagated(self) -> float:
        return math.inf if self._withdrawn is None else self._withdrawn + self._numbers.propagation

    def _quiet_over(self) -> float:
        """Arrivals count until one more propagation time is over: who comes later would put the seal off for ever."""
        if self._last_arrival is None:
            return -math.inf
        return min(self._last_arrival, self._propagated() + self._numbers.propagation) + self._numbers.quiet

    def _end(self, works: Iterable[Work]) -> tuple[str, ...]:
        ended = []
        for work in works:
            if not work.cut:
                work.cut = True
                self.cut += 1
                ended.append(work.id)
        return tuple(ended)

    def _withdraw(self, now: float) -> None:
        if self._withdrawn is None:
            self._withdrawn = now

    def _count_change(self, before: State) -> None:
        if self.state is not before:
            self.sequence += 1


def _given(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value

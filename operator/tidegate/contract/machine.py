"""The state machine: what is in flight, who has asked to drain, and when the pod is sealed.

Methods take the time in monotonic seconds. The caller reports requests and drain calls, then calls `advance`, which
says whom to end and whether the pod was just sealed, and `next_at`, which says when something is due by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from tidegate.contract import fields
from tidegate.contract.terms import Admission, Advance, DrainConflictError, DrainRequest, Settings, State, Work

PRESTOP_MARGIN_SECONDS = 1.0
"""How long before the end of the grace period preStop returns, so that SIGTERM still finds time to be obeyed."""
STOPPED = "Terminating"
"""The reason that clients are told when no drain has given one."""


class DrainContract:
    """The state of one process; see the module's docstring for how to drive it.

    What arrives in a drain after the propagation time is refused, unless the process `serves_late`: the contract leaves
    that to it, as long as a refusal is a retryable 503.
    """

    def __init__(self, settings: Settings, instance: str, *, serves_late: bool = False) -> None:
        self.instance = instance
        self.drain_id: str | None = None
        self.reason = ""
        self.sequence = 1
        self.cut = 0
        self.ever_cut = 0
        """Like `cut`, over all drains of this process."""
        self._serves_late = serves_late
        self._defaults = self._numbers = settings
        self._works: dict[str, Work] = {}
        self.prestopped = self.terminating = self.engine_lost = False
        """What has happened to the containers; for others to read alone."""
        self._started = self._sealed = self._tokens_sent = False
        self._withdrawn: float | None = None
        self._last_arrival: float | None = None
        self._deadlines: dict[str, float] = {}

    # -- what is so now

    @property
    def state(self) -> State:
        """The state, as the contract names it."""
        if self._sealed:
            return State.SEALED
        if self.drain_id is not None or self.prestopped or self.terminating:
            return State.DRAINING
        return State.SERVING if self._started else State.STARTING

    @property
    def shutdown_reason(self) -> str:
        """Why requests are ended, as their shutdown tokens say."""
        return self.reason or STOPPED

    @property
    def stopping(self) -> bool:
        """Whether the serving container or this process is being stopped, or the drain is over."""
        return self._sealed or self.prestopped or self.terminating

    @property
    def in_flight(self) -> int:
        """Requests that have arrived and not ended."""
        return len(self._works)

    @property
    def withdrawn_at(self) -> float | None:
        """When new requests were first sent elsewhere; None: they are not."""
        return self._withdrawn

    @property
    def deadline(self) -> float | None:
        """The earliest of the POST's, prestop's and SIGTERM's; None: nothing counts down."""
        return min(self._deadlines.values(), default=None)

    @property
    def killed_at(self) -> float | None:
        """When the kubelet ends the process; None: not known of."""
        return min((at for by, at in self._deadlines.items() if by != "post"), default=None)

    def stalled(self, now: float) -> tuple[Work, ...]:
        """Begun streams that produced nothing for so long. Queued and unbegun requests are silent by nature."""
        limit = self._numbers.stalled_after
        if limit <= 0:
            return ()
        return tuple(work for work, progressed in self._streams() if now >= progressed + limit)

    def snapshot(self, now: float) -> dict[str, object]:
        """The JSON answer of the contract; ages are rounded to milliseconds."""
        works, last = self._works.values(), self._last_arrival
        ages = sorted((round(now - work.arrived, 3) for work in works), reverse=True)
        return {
            fields.CONTRACT: fields.VERSION,
            fields.INSTANCE: self.instance,
            fields.DRAIN_ID: self.drain_id,
            fields.STATE: self.state.value,
            fields.IN_FLIGHT: len(ages),
            fields.STREAMS: sum(work.streaming and not work.queued for work in works),
            fields.QUEUED: sum(work.queued for work in works),
            fields.STALLED: len(self.stalled(now)),
            fields.OLDEST_SECONDS: ages[0] if ages else 0.0,
            fields.LAST_ARRIVAL_SECONDS: None if last is None else round(now - last, 3),
            fields.CUT: self.cut,
            fields.AGES_SECONDS: ages[: fields.MOST_AGES],
            fields.SEQUENCE: self.sequence,
        }

    # -- requests

    def arrive(self, work_id: str, now: float, *, streaming: bool = False, queued: bool = False) -> Admission:
        """A request was read. Unless refused it is in flight until `finish`; refused ones are arrivals too.

        Past the propagation time nobody should send here any more: refusing then keeps a client that holds on to its
        connection from feeding a drain for ever.
        """
        if work_id in self._works:
            raise ValueError(f"request id {work_id} is in flight already")
        self._last_arrival = now
        if self.turns_away(now):
            return Admission.REFUSE
        self._works[work_id] = Work(work_id, now, streaming, queued)
        if len(self._works) == 1:
            self.sequence += 1
        return Admission.SERVE_AND_CLOSE if self.state is State.DRAINING else Admission.SERVE

    def turns_away(self, now: float) -> bool:
        """Whether a request that arrives now is refused: the propagation time, or the drain, is over."""
        late = self.state is State.DRAINING and not self._serves_late and now >= self._propagated()
        return self._sealed or self._tokens_sent or late

    def work(self, work_id: str) -> Work:
        """A request in flight; raises KeyError for any other."""
        return self._works[work_id]

    def works(self) -> tuple[Work, ...]:
        """Everything in flight, in the order of arrival."""
        return tuple(self._works.values())

    def dequeue(self, work_id: str) -> None:
        """The engine has begun a request that arrived `queued`."""
        self._works[work_id].queued = False

    def progress(self, work_id: str, now: float) -> None:
        """The engine has produced a part of the response, or a sign of life."""
        self._works[work_id].progressed = now

    def generated(self, work_id: str) -> bool:
        """All of the response is there; False if it was cut before, and the token ends it instead."""
        work = self._works[work_id]
        work.whole = not work.cut
        return work.whole

    def cut_short(self, work_id: str) -> None:
        """The engine itself ended this request before its end: it gets a token and counts as cut."""
        self._end([self._works[work_id]])

    def was_complete(self, work_id: str) -> None:
        """A request that `advance` has just said to end turns out to need no token: it has not been cut."""
        work = self._works[work_id]
        if work.cut:
            work.cut, work.whole = False, True
            self.cut -= 1
            self.ever_cut -= 1

    def finish(self, work_id: str) -> None:
        """The last byte is written, or the client is gone."""
        del self._works[work_id]
        if not self._works:
            self.sequence += 1

    # -- the engine

    def started(self) -> None:
        """The engine answers, and has answered a real request where that is asked for."""
        before = self.state
        self._started, self.engine_lost = True, False
        self._count_change(before)

    def engine_gone(self) -> None:
        """Nothing listens where the engine was: a hook that waits for its requests waits in vain."""
        before = self.state
        self._started, self.engine_lost = False, True
        self._count_change(before)

    def engine_back(self) -> None:
        """Something listens again after `engine_gone`: preStop was about the container that is gone.

        A failed liveness probe kills the engine alone, and calls preStop; so what preStop began ends here. A drain by
        POST or SIGTERM goes on.
        """
        if not self.engine_lost:
            return
        before = self.state
        self.engine_lost = False
        if self.prestopped and not self._sealed and not self.terminating:
            self.prestopped = False
            self._deadlines.pop("prestop", None)
            if self.drain_id is None:
                # The next drain is told what it cuts itself.
                self._withdrawn, self._tokens_sent, self.cut = None, False, 0
        self._count_change(before)

    # -- calls that change the state

    def post(self, request: DrainRequest, now: float) -> None:
        """Begin a drain, update its numbers, or adopt one that another id or prestop began."""
        before = self.state
        self.drain_id, self.reason = request.id, request.reason
        self._withdrawn = now - request.since_withdrawal
        self._numbers = request.settings(self._defaults)
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
        if self.prestopped or self.terminating:
            raise DrainConflictError("the container is being stopped and cannot serve again")
        before = self.state
        self.drain_id, self.reason, self._withdrawn = None, "", None
        # The next drain is told what it cuts itself.
        self._numbers, self._tokens_sent, self.cut = self._defaults, False, 0
        self._deadlines.clear()
        self._count_change(before)

    def prestop(self, now: float) -> None:
        """The container is about to be stopped: withdraw. Never seals; a second call does not move the deadline."""
        before, self.prestopped = self.state, True
        self._stop("prestop", now)
        self._count_change(before)

    def prestop_over(self, now: float) -> bool:
        """Whether the preStop hook may return: nothing holds the pod, its engine is gone, or the grace nearly over."""
        # A pod that nobody withdrew before still gets requests for the propagation time.
        if self._sealed or self.engine_lost or (self._unheld(now) and now >= self._propagated()):
            return True
        return now >= self._deadlines.get("prestop", math.inf) - self._margin()

    def sigterm(self, now: float) -> None:
        """SIGTERM: drain, with what is left of the grace if prestop ran before; a second one changes nothing."""
        before, self.terminating = self.state, True
        self._stop("sigterm", now)
        self._count_change(before)

    def expire(self, now: float) -> None:
        """The process is about to end: every deadline is over."""
        self._deadlines["exit"] = now

    # -- time

    def advance(self, now: float) -> Advance:
        """Say what is due: tokens the flush time before the deadline, the seal. To be called after every event."""
        if self.state is not State.DRAINING:
            return Advance()
        tokens: tuple[str, ...] = ()
        deadline = self.deadline
        if deadline is not None and now >= deadline - self._numbers.flush:
            self._tokens_sent = True
            tokens = self._end(work for work in self._works.values() if not work.whole and not work.opaque)
        if self.drain_id is None and not self.terminating:
            return Advance(tokens)
        expired = deadline is not None and now >= deadline
        if not expired and not self._may_seal(now):
            return Advance(tokens)
        self._sealed = True
        self.sequence += 1
        left = tuple(self._works.values())
        # What is whole, or had its token already, waits for a client that does not read: no token can reach that one.
        abort = tuple(w.id for w in left if expired or w.whole or (w.cut and w.id not in tokens))
        self._end(left)
        return Advance(tuple(work.id for work in left if work.id not in abort), abort, True)

    def next_at(self, now: float) -> float | None:
        """When `advance` or `prestop_over` may answer otherwise although nothing happens; None: never."""
        if self.state is not State.DRAINING:
            return None
        return min((moment for moment in self._moments() if moment > now), default=None)

    # -- inside

    def _moments(self) -> Iterable[float]:
        numbers = self._numbers
        yield from (self._propagated(), self._quiet_over())
        for deadline in self._deadlines.values():
            yield from (deadline - numbers.flush, deadline - self._margin(), deadline)
        if numbers.stalled_after > 0:
            for _, progressed in self._streams():
                yield progressed + numbers.stalled_after

    def _streams(self) -> Iterable[tuple[Work, float]]:
        """The streams that have begun, and when each last made progress."""
        for work in self._works.values():
            if work.streaming and not work.queued and work.progressed is not None:
                yield work, work.progressed

    def _propagated(self) -> float:
        return math.inf if self._withdrawn is None else self._withdrawn + self._numbers.propagation

    def _quiet_over(self) -> float:
        """When the quiet time is over: whoever comes a second propagation time late will always come."""
        last = -math.inf if self._last_arrival is None else self._last_arrival
        return min(last, self._propagated() + self._numbers.propagation) + self._numbers.quiet

    def _margin(self) -> float:
        return min(PRESTOP_MARGIN_SECONDS, self._numbers.flush / 2)

    def _unheld(self, now: float) -> bool:
        return len(self._works) == len(self.stalled(now))

    def _may_seal(self, now: float) -> bool:
        return self._unheld(now) and now >= max(self._propagated(), self._quiet_over())

    def _end(self, works: Iterable[Work]) -> tuple[str, ...]:
        ended = tuple(work for work in works if not work.cut)
        for work in ended:
            work.cut = True
        self.cut += len(ended)
        self.ever_cut += len(ended)
        return tuple(work.id for work in ended)

    def _stop(self, by: str, now: float) -> None:
        if self._withdrawn is None:
            self._withdrawn = now
        self._deadlines.setdefault(by, now + self._defaults.grace)

    def _count_change(self, before: State) -> None:
        if self.state is not before:
            self.sequence += 1

"""Pods that others take away: whether each may still hold requests, and how it ended.

A pod that is evicted or deleted drains in place, within its grace period, and is asked until its last container has
ended. Only then is its end told, and only once: this process remembers the pods that may hold requests, and the status
lists those that go, so that a successor tells of them too. Nobody can count for it what it did not see itself.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tidegate.api.conditions import DrainReason, Outcome, PodState
from tidegate.api.status import PodStatus
from tidegate.core.state import times
from tidegate.core.state.pods import by_age
from tidegate.core.state.snapshot import DrainRecord, OutcomeRecord, Pod, Reading
from tidegate.core.state.view import View

from . import drains, samples
from .actions import DrainOrder
from .step import Step

TAKEN: Final = (DrainReason.NODE_DRAIN, DrainReason.DELETED)
"""Why a pod goes that Tidegate has not withdrawn."""


@dataclass(frozen=True, slots=True)
class End:
    """The end of a pod that somebody else took away, or that was lost."""

    pod: str
    outcome: OutcomeRecord
    drained_by_us: bool = False
    """Whether it had been withdrawn, and was taken away in the middle of its drain."""
    disruption: str = ""
    """The reason of its condition DisruptionTarget; empty: it has none, or nobody saw it."""
    answered_before_seconds: float | None = None
    """How long before its end the pod gave its last answer; None: it gave none."""


def reason(pod: Pod) -> DrainReason:
    """Why a pod goes that Tidegate has not withdrawn: evicted, preempted or lost with its node, or else deleted."""
    return DrainReason.DELETED if not pod.disruption and pod.phase != "Failed" else DrainReason.NODE_DRAIN


def since(view: View, pod: Pod) -> float:
    """When a pod that goes began to drain, in Unix seconds."""
    if pod.state == PodState.DRAINING and pod.drain is not None:
        return pod.drain.since
    return view.snapshot.now if pod.deleted_at is None else pod.deleted_at


def keep_asking(view: View) -> Step:
    """Keep talking to the pods that go: a drain goes on, and of the others nothing but answers is wanted."""
    step = Step()
    for pod in by_age(view.going):
        if pod in view.stuck and pod.uid in view.snapshot.troubles:
            # Its node is gone, or its kubelet: what could be heard was heard.
            continue
        order = _order(view, pod)
        step += Step(orders=() if order is None else (order,))
    return step


def _order(view: View, pod: Pod) -> DrainOrder | None:
    if pod.state == PodState.DRAINING and pod.drain is not None:
        return drains.order(view, pod, pod.drain, undo=False)
    order = drains.order(view, pod, DrainRecord("", None, reason(pod), since(view, pod), None), undo=False)
    return None if order is None else replace(order, watch=True)


def remembered(view: View) -> Mapping[str, Pod]:
    """By uid, the pods that may hold requests now: what the next pass has to know of those that are gone by then."""
    going = {pod.uid for pod in view.going}
    return {pod.uid: pod for pod in view.snapshot.pods if pod.uid in going or _works(view, pod)}


def _works(view: View, pod: Pod) -> bool:
    if not pod.alive or not view.untold(pod) or view.holds_no_work(pod):
        return False
    # A pod that was never Ready got no requests by the Service.
    return pod.ready or pod.state == PodState.DRAINING or pod.uid in view.snapshot.last_seen


def ends(view: View) -> Iterator[End]:
    """How pods ended that others took away, and whose end the status does not tell yet."""
    snapshot = view.snapshot
    standing = {pod.uid: pod for pod in snapshot.pods}
    seen = [standing.get(uid, pod) for uid, pod in snapshot.last_seen.items()]
    over = [pod for pod in seen if view.untold(pod) and (pod.uid not in standing or _ended(pod))]
    yield from (_end(view, pod) for pod in by_age(over))
    told = {pod.name for pod in over} | view.told
    by_name = {pod.name: pod for pod in snapshot.pods}
    for row in snapshot.status.pods:
        pod = by_name.get(row.name)
        if row.name not in told and (pod is None or (_ended(pod) and view.untold(pod))):
            yield _lost(view, row)


def _ended(pod: Pod) -> bool:
    return not pod.alive and not pod.any_running


def _end(view: View, pod: Pod) -> End:
    now, begun = view.snapshot.now, since(view, pod)
    record = pod.drain if pod.state == PodState.DRAINING else None
    why = DrainReason.MANUAL if pod.state == PodState.DRAINING else reason(pod)
    reading = view.snapshot.readings.get(pod.uid)
    if reading is not None and reading.at < begun:
        # Of the time before: by then it may have held anything.
        reading = None
    cut = _cut(view, pod, reading)
    outcome = OutcomeRecord(
        outcome=_kind(view, pod, cut, reading),
        seconds=round(max(now - begun, 0.0), 3),
        cut=cut,
        oldest_cut_seconds=reading.oldest_cut_seconds if cut and reading is not None else None,
        at=round(now, 3),
        reason=why if record is None else record.reason,
        in_flight=reading.in_flight if cut is None and reading is not None else None,
    )
    if record is not None:
        # By its own budget nothing has ended: what was cut counts as lost from sight.
        kind = Outcome.DRAINED if outcome.outcome is Outcome.DRAINED else Outcome.VANISHED
        lasted = samples.lasted(view, pod, record, kind)
        if lasted is not None:
            arrival = samples.last_arrival(view, pod, record)
            outcome = replace(outcome, drain_seconds=lasted[0], censored=lasted[1], last_arrival_after_seconds=arrival)
    answered = None if reading is None else max(now - reading.at, 0.0)
    return End(pod.name, outcome, pod.state == PodState.DRAINING, pod.disruption, answered)


def _cut(view: View, pod: Pod, reading: Reading | None) -> int | None:
    """What the pod has cut by its own last word; None when that was not its last word."""
    if reading is None:
        return None
    record = pod.drain if pod.state == PodState.DRAINING else None
    if record is not None and record.instance is not None and reading.instance != record.instance:
        return None
    if reading.state == "sealed":
        return reading.cut
    ended = view.snapshot.now if pod.container.exited_at is None else pod.container.exited_at
    in_sight = ended - reading.at <= samples.SIGHT_SECONDS
    # Nothing more arrives at a pod that has sent its tokens, or that was withdrawn long enough ago.
    closed = bool(reading.cut) or reading.at - since(view, pod) >= view.snapshot.spec.drain.propagation_seconds
    empty = reading.state == "draining" and reading.in_flight == 0
    return reading.cut if empty and closed and in_sight else None


def _kind(view: View, pod: Pod, cut: int | None, reading: Reading | None) -> Outcome:
    if cut is None or reading is None:
        return Outcome.VANISHED
    limits = [pod.terminates_by, pod.drain.deadline if pod.drain is not None else None]
    limit = min((at for at in limits if at is not None), default=None)
    # Long before that it has cut what no client read any more.
    late = limit is None or reading.at >= limit - view.snapshot.spec.drain.flush_seconds - 1
    return Outcome.EXPIRED if cut and late else Outcome.DRAINED


def _lost(view: View, row: PodStatus) -> End:
    """Of a pod that a predecessor has listed, and whose end nobody has seen."""
    now = view.snapshot.now
    begun, seen = times.parse(row.since), times.parse(row.observed_at)
    taken = row.reason in TAKEN
    outcome = OutcomeRecord(
        outcome=Outcome.VANISHED,
        seconds=max(now - (now if begun is None else begun), 0.0),
        cut=None,
        oldest_cut_seconds=None,
        at=now,
        reason=row.reason or DrainReason.MANUAL,
        in_flight=row.in_flight,
    )
    if begun is not None and not taken:
        lasted = samples.lost(view, row, begun)
        outcome = replace(outcome, drain_seconds=lasted, censored=True)
    return End(row.name, outcome, not taken, "", None if seen is None else max(now - seen, 0.0))

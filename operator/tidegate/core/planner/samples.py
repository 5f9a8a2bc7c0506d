"""Which drains are over and not yet counted, and what each of them tells.

A drain is counted before its pod can be gone: its samples stand in the pod's annotation until then, and those of a pod
that vanished in the status. So a successor finds whatever its predecessor did not come to count.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from tidegate.api.conditions import Outcome, PodState
from tidegate.api.status import PodStatus
from tidegate.core.drain_time.drain_times import Age, Counted, DrainTimes
from tidegate.core.drain_time.grace import in_force
from tidegate.core.drain_time.histogram import LONGEST, Sample
from tidegate.core.state import times
from tidegate.core.state.snapshot import DrainRecord, OutcomeRecord, Pod, Reading
from tidegate.core.state.view import View

SIGHT_SECONDS: Final = 10.0
"""A pod that was busy, and idle when it was next seen no later than this, was in sight when its drain ended."""


def lasted(view: View, pod: Pod, record: DrainRecord, kind: Outcome) -> tuple[float, bool] | None:
    """Seconds from withdrawal + propagation to the end of the last request, and whether it was longer than that."""
    if kind is Outcome.NO_WORK:
        return None
    began = record.since + view.snapshot.spec.drain.propagation_seconds
    reading = view.snapshot.readings.get(pod.uid)
    busy = max(_busy_at(view, pod, record, reading), record.since)
    ended = None
    if reading is not None and reading.state == "sealed":
        ended = reading.at if reading.idle_since is None else reading.idle_since
    cut = kind is not Outcome.DRAINED or bool(reading is not None and reading.cut)
    if kind is Outcome.EXPIRED and reading is not None and reading.cut and record.deadline is not None:
        # The pod itself ends its requests at that time, whatever was last heard of them.
        busy = max(busy, record.deadline - view.snapshot.spec.drain.flush_seconds)
    if cut or ended is None:
        return _seconds(busy - began), True
    if ended <= began or ended - busy <= SIGHT_SECONDS:
        return _seconds(ended - began), False
    return _seconds(busy - began), True


def last_arrival(view: View, pod: Pod, record: DrainRecord) -> float | None:
    """Seconds from the withdrawal to the last arrival, 0 if there was none after it."""
    reading = view.snapshot.readings.get(pod.uid)
    if reading is None or reading.last_arrival_seconds is None or reading.at < record.since:
        return None
    return _seconds(reading.at - reading.last_arrival_seconds - record.since)


def teardown(pod: Pod) -> Sample | None:
    """From the deletion of a pod that was drained to the exit of its container; both times are whole seconds."""
    outcome = pod.outcome
    if outcome is None or outcome.outcome not in (Outcome.DRAINED, Outcome.EXPIRED):
        return None
    if pod.deleted_at is None or pod.container.exited_at is None or pod.container.exited_at < pod.deleted_at:
        return None
    return Sample(min(pod.container.exited_at - pod.deleted_at + 1.0, LONGEST), False, pod.container.exited_at)


def counted(view: View, ended: Iterable[tuple[str, OutcomeRecord]] = ()) -> DrainTimes | None:
    """What is known with the drains that are over; None when none is new, or none may be counted.

    `ended` are those of pods that carry no outcome themselves.
    """
    snapshot = view.snapshot
    if snapshot.drain_times_trouble:
        return None
    fresh = list(_over(view, ended))
    if not fresh:
        return None
    standing = frozenset(p.name for p in snapshot.pods) | {row.name for row in snapshot.status.pods}
    previous = in_force(snapshot.spec, snapshot.drain_times, max(one.drain.at for one in fresh))
    return snapshot.drain_times.add(fresh, snapshot.teardowns, previous, standing=standing).waiting(
        _ages(view), standing
    )


def _ages(view: View) -> dict[str, Age]:
    """What the pods that still have to be drained said when the victims of this rollout were chosen."""
    if view.target is None:
        return {}
    found = {}
    for pod in view.old_pods:
        said = view.snapshot.readings.get(pod.uid)
        if (
            pod.state == PodState.SERVING
            and said is not None
            and said.oldest_seconds
            and said.oldest_seconds <= LONGEST
        ):
            found[pod.name] = Age(view.target.revision, said.oldest_seconds, said.at)
    return found


def _over(view: View, ended: Iterable[tuple[str, OutcomeRecord]]) -> Iterator[Counted]:
    known = frozenset(view.snapshot.drain_times.counted)
    for pod in view.snapshot.pods:
        if pod.outcome is not None and pod.outcome.drain_seconds is not None and pod.name not in known:
            yield _counted(pod.name, pod.outcome, by_budget=pod.outcome.outcome == Outcome.EXPIRED)
    for name, outcome in ended:
        if outcome.drain_seconds is not None and name not in known:
            # Whatever cut it, it was not the budget.
            yield _counted(name, outcome, by_budget=False)


def _counted(name: str, outcome: OutcomeRecord, *, by_budget: bool) -> Counted:
    seconds, last = min(outcome.drain_seconds or 0.0, LONGEST), outcome.last_arrival_after_seconds
    arrival = None if last is None else Sample(min(last, LONGEST), False, outcome.at)
    return Counted(name, Sample(seconds, outcome.censored, outcome.at), arrival, by_budget)


def lost(view: View, row: PodStatus, since: float) -> float:
    """Seconds for which a drain that began at `since` was seen to last at least, by the status alone."""
    return _seconds((_observed(row) or since) - since - view.snapshot.spec.drain.propagation_seconds)


def _busy_at(view: View, pod: Pod, record: DrainRecord, reading: Reading | None) -> float:
    """When the pod was last seen at work in this drain, by this operator or by the one before it."""
    seen = [record.since]
    if reading is not None and reading.busy_at is not None:
        seen.append(reading.busy_at)
    for row in view.snapshot.status.pods:
        if row.name == pod.name and row.since == times.short(record.since):
            seen.append(_observed(row) or record.since)
    return max(seen)


def _observed(row: PodStatus) -> float | None:
    return times.parse(row.observed_at) if row.in_flight else None


def _seconds(value: float) -> float:
    return round(min(max(value, 0.0), LONGEST), 3)

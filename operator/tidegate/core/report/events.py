"""Events on an LLMService: what was done to its pods, and what changed between two statuses."""

from dataclasses import dataclass
from typing import Final

from tidegate.api import names
from tidegate.api.conditions import ConditionStatus, ConditionType, DrainReason, Outcome, PodState
from tidegate.api.status import LLMServiceStatus, RolloutStatus
from tidegate.core.planner.actions import MarkDrained
from tidegate.core.planner.ends import End
from tidegate.core.state.snapshot import Snapshot

from . import sentences
from .phrases import count, seconds, sentence

QUIET: Final = (ConditionType.READY, ConditionType.RECONCILING)
"""Conditions that change in every rollout; no Event tells of them."""


@dataclass(frozen=True, slots=True)
class Event:
    """An Event on the LLMService, before it has a time and a name."""

    reason: str
    message: str
    warning: bool = True


def news(snapshot: Snapshot, after: LLMServiceStatus) -> list[Event]:
    """Events for what `after` says that the status in the snapshot did not."""
    before = snapshot.status
    return [
        *_of_conditions(before, after),
        *_of_outcomes(snapshot, after),
        *_of_third_party_drains(before, after),
        *_of_rollout(before, after),
    ]


def _of_conditions(before: LLMServiceStatus, after: LLMServiceStatus) -> list[Event]:
    held = {c.type: (c.status, c.reason) for c in before.conditions}
    fresh = [
        Event(c.reason, c.message)
        for c in after.conditions
        if c.status is ConditionStatus.TRUE and c.type not in QUIET and held.get(c.type) != (c.status, c.reason)
    ]
    # Two conditions may be true for one reason: one Event tells it.
    return list(dict.fromkeys(fresh))


def _of_outcomes(snapshot: Snapshot, after: LLMServiceStatus) -> list[Event]:
    listed = {row.pod for row in snapshot.status.outcomes}
    releases = {p.name: p.release for p in snapshot.pods if p.release}
    # Of a pod that is gone, or goes, its end is an Event of its own.
    marked = {p.name for p in snapshot.pods if p.outcome is not None and p.outcome.outcome is Outcome.VANISHED}
    found = []
    for row in after.outcomes:
        if row.pod not in listed and (row.outcome is Outcome.RELEASED or row.pod in marked):
            given = releases.get(row.pod)
            by = f" ({names.RELEASE}: {given})" if given else " during its drain"
            text = f"Pod {row.pod}: {row.outcome}{by}; the number of cut requests is unknown."
            found.append(Event(row.outcome, text))
    return found


def ended(end: End) -> Event:
    """Of a pod that somebody else took away: how it ended, and what was cut or was last known of it."""
    outcome = end.outcome
    how = f" ({end.disruption})" if end.disruption else ""
    went = f"evicted{how}" if end.disruption or outcome.reason is DrainReason.NODE_DRAIN else "deleted"
    if outcome.outcome is Outcome.VANISHED:
        when = " during its drain" if end.drained_by_us else f", {went} while it served"
        known = "" if outcome.in_flight is None else f"; by its last answer{_ago(end)}, {outcome.in_flight} in flight"
        reason: str = outcome.outcome if end.drained_by_us else outcome.reason
        text = f"Pod {end.pod}: {outcome.outcome}{when}; the number of cut requests is unknown{known}"
        return Event(reason, sentence(text))
    cut = count(outcome.cut or 0, "request")
    text = f"Pod {end.pod}: {outcome.outcome} after {outcome.seconds:.0f} s, {cut} cut"
    if end.drained_by_us:
        why = ", because its grace period was over" if outcome.outcome is Outcome.EXPIRED else ""
        return Event("Drained", sentence(f"{text}{why}; it was {went} during its drain"), warning=outcome.cut != 0)
    why = " and its grace period was over" if outcome.outcome is Outcome.EXPIRED else ""
    return Event(outcome.reason, sentence(f"{text}; it was {went} while it served{why}"), warning=outcome.cut != 0)


def _ago(end: End) -> str:
    return "" if end.answered_before_seconds is None else f" {seconds(end.answered_before_seconds)} ago"


def _of_third_party_drains(before: LLMServiceStatus, after: LLMServiceStatus) -> list[Event]:
    listed = {row.name for row in before.pods}
    return [
        Event("DrainedByOthers", sentence(f"Pod {row.name}: {row.trouble}"))
        for row in after.pods
        if row.state is PodState.SERVING and row.name not in listed
    ]


def _of_rollout(before: LLMServiceStatus, after: LLMServiceStatus) -> list[Event]:
    rollout = after.rollout
    if rollout is None or rollout.finished_at is None or (before.rollout and before.rollout.finished_at):
        return []
    text = f"{count(after.serving, 'pod')} serving"
    if rollout.drained:
        text += f", {rollout.drained} drained, {_cut(rollout)}, in {rollout.seconds} s"
    return [Event("RolloutComplete", f"Rollout of {after.target_revision} is complete: {text}.", warning=False)]


def _cut(rollout: RolloutStatus) -> str:
    """What a rollout has cut: unknown is never 0."""
    if rollout.cut is not None:
        return f"{count(rollout.cut, 'request')} cut"
    known = rollout.cut_at_least
    cut = f"at least {count(known, 'request')}" if known else "an unknown number of requests"
    return f"{cut} cut ({count(rollout.uncounted, 'pod')} not counted)"


def created(deployment: str, replicas: int) -> Event:
    """Of the Deployment of a new revision."""
    return Event("NewRevision", f"Created Deployment {deployment} with {count(replicas, 'replica')}.", warning=False)


def withdrawn(snapshot: Snapshot, uid: str, pod: str, reason: DrainReason) -> Event:
    """Of a pod whose drain begins, with what it last said it holds."""
    reading, held = snapshot.readings.get(uid), ""
    if reading is not None and reading.in_flight is not None:
        held = f": {count(reading.in_flight, 'request')} in flight {seconds(snapshot.now - reading.at)} ago"
    return Event("Draining", f"Draining pod {pod}, reason {reason}{held}.", warning=False)


def restored(pod: str) -> Event:
    """Of a pod whose drain was undone."""
    return Event("Undrained", f"Pod {pod} is needed again and returns to serving.", warning=False)


def drained(snapshot: Snapshot, action: MarkDrained) -> Event:
    """Of a pod whose drain is over: how long it took, and what was cut."""
    outcome = action.outcome
    why = sentences.cause(outcome.outcome, action.cause)
    cut = "an unknown number of requests" if outcome.cut is None else count(outcome.cut, "request")
    release = next((p.release for p in snapshot.pods if p.uid == action.uid), "")
    by = f" ({names.RELEASE}: {release})" if release else ""
    text = f"Pod {action.pod}: {outcome.outcome}{by} after {outcome.seconds:.0f} s, {cut} cut{why and f', {why}'}"
    return Event("Drained", sentence(text), warning=outcome.cut != 0)

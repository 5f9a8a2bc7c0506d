"""Which Events tell what changed between two statuses, and in which words."""

from dataclasses import dataclass
from typing import Final

from tidegate.api import names
from tidegate.api.conditions import ConditionStatus, ConditionType, Outcome, PodState
from tidegate.api.status import LLMServiceStatus
from tidegate.core.state.snapshot import Snapshot

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
    return [
        Event(c.reason, c.message)
        for c in after.conditions
        if c.status is ConditionStatus.TRUE and c.type not in QUIET and held.get(c.type) != (c.status, c.reason)
    ]


def _of_outcomes(snapshot: Snapshot, after: LLMServiceStatus) -> list[Event]:
    listed = {row.pod for row in snapshot.status.outcomes}
    releases = {p.name: p.release for p in snapshot.pods if p.release}
    found = []
    for row in after.outcomes:
        if row.pod not in listed and row.outcome in (Outcome.VANISHED, Outcome.RELEASED):
            given = releases.get(row.pod)
            why = f" by {names.RELEASE}: {given}" if given else " in its drain"
            text = f"Pod {row.pod}: {row.outcome}{why}; nobody could count what was cut"
            found.append(Event(row.outcome, text))
    return found


def _of_third_party_drains(before: LLMServiceStatus, after: LLMServiceStatus) -> list[Event]:
    listed = {row.name for row in before.pods}
    return [
        Event("DrainedByOthers", f"Pod {row.name}: {row.trouble}")
        for row in after.pods
        if row.state is PodState.SERVING and row.name not in listed
    ]


def _of_rollout(before: LLMServiceStatus, after: LLMServiceStatus) -> list[Event]:
    rollout = after.rollout
    if rollout is None or rollout.finished_at is None or (before.rollout and before.rollout.finished_at):
        return []
    text = f"{after.target_revision} serves with {after.serving} pods"
    if rollout.drained:
        text += f"; {rollout.drained} pods drained, {rollout.cut} requests cut, {rollout.seconds} s"
    return [Event("RolloutComplete", text, warning=False)]

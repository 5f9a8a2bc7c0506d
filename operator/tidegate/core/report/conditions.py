"""The conditions of a service, as kstatus defines Ready, Reconciling and Stalled; further types only while true.

They map what the plan says, `blocked`, `remaining` and `notices`; none is derived here.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tidegate.api.conditions import BlockedReason, ConditionType, PodState, Reason
from tidegate.core.planner.plan import Plan
from tidegate.core.state.view import View

from . import blocked, notices
from .phrases import count, share

STALLING: Final[Mapping[BlockedReason, Reason]] = {
    BlockedReason.TEMPLATE_CONFLICT: Reason.TEMPLATE_CONFLICT,
    BlockedReason.INVALID_SPEC: Reason.INVALID_SPEC,
    BlockedReason.WRITE_REFUSED: Reason.WRITE_REFUSED,
    BlockedReason.NAME_CONFLICT: Reason.NAME_CONFLICT,
    BlockedReason.NO_ANSWER: Reason.NO_ANSWER,
    BlockedReason.BUDGET_HELD: Reason.BUDGET_HELD,
    BlockedReason.NEW_REVISION_FAILED: Reason.NEW_REVISION_FAILED,
    BlockedReason.PODS_REFUSED: Reason.NEW_REVISION_FAILED,
    BlockedReason.POD_STUCK_TERMINATING: Reason.POD_STUCK_TERMINATING,
    BlockedReason.NO_SPARE_CAPACITY: Reason.NO_SPARE_CAPACITY,
    BlockedReason.PROGRESS_DEADLINE_EXCEEDED: Reason.PROGRESS_DEADLINE_EXCEEDED,
}
"""Reasons of `Stalled`: somebody has to act."""
OVERDUE: Final[Mapping[BlockedReason, Reason]] = {
    BlockedReason.BUDGET_HELD: Reason.BUDGET_HELD,
    BlockedReason.BUDGET_SPENT: Reason.DRAINING,
}
"""Reasons of `DrainOverdue`."""
_NOT_MADE: Final = frozenset(
    (
        BlockedReason.TEMPLATE_CONFLICT,
        BlockedReason.INVALID_SPEC,
        BlockedReason.NAME_CONFLICT,
        BlockedReason.PREDECESSOR_TERMINATING,
    )
)
NO_HEADLINE: Final = frozenset(
    (
        ConditionType.GRACE_PERIOD_STALE,
        ConditionType.TEMPLATE_OUTDATED,
        ConditionType.BUDGET_TRUNCATING,
    )
)
"""True beside a healthy service: what the next revision mends by itself, and what a few drains have shown."""
_ALWAYS: Final = (ConditionType.READY, ConditionType.RECONCILING, ConditionType.STALLED)
Verdict = tuple[Reason, str]


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition, before it is dated."""

    type: ConditionType
    true: bool
    reason: Reason
    message: str


def conditions(plan: Plan) -> list[Condition]:
    """All conditions, the worst first among those that carry news."""
    view = plan.view
    stalled = _stalled(plan)
    going = _reconciling(plan)
    none_made = not view.snapshot.deployments and any(b.reason in _NOT_MADE for b in plan.blocked)
    short = len(view.serving) < view.limits.least_serving or none_made
    ready_reason, ready_message = (stalled or going) or (Reason.AS_DESIRED, _settled(view))
    found = [
        Condition(ConditionType.READY, not short, ready_reason, ready_message),
        _either(ConditionType.RECONCILING, going, _settled(view)),
        _either(ConditionType.STALLED, stalled, "Nothing is blocked."),
    ]
    return found + list(_further(plan))


def worst(found: Iterable[Condition]) -> str:
    """Message of the worst condition: Stalled, then what is true beside the three, then what goes on.

    A condition that is no headline leaves it to `Ready`.
    """
    by_type = {c.type: c for c in found}
    if by_type[ConditionType.STALLED].true:
        return by_type[ConditionType.STALLED].message
    extra = [c for c in by_type.values() if c.type not in _ALWAYS and c.type not in NO_HEADLINE]
    if extra and not by_type[ConditionType.RECONCILING].true:
        return extra[0].message
    return by_type[ConditionType.READY].message


def _either(kind: ConditionType, verdict: Verdict | None, otherwise: str) -> Condition:
    if verdict is None:
        return Condition(kind, False, Reason.AS_DESIRED, otherwise)
    return Condition(kind, True, verdict[0], verdict[1])


def _settled(view: View) -> str:
    if view.target is None:
        serving = share(len(view.serving), view.limits.replicas, "pod")
        return f"{serving} serving; nothing changes before a revision can be created."
    return f"{share(len(view.serving), view.limits.replicas, 'pod')} serving, all of revision {view.target.name}."


def _stalled(plan: Plan) -> Verdict | None:
    """What stops the service until somebody acts, most basic first."""
    first = next((b for b in plan.blocked if b.reason in STALLING), None)
    return None if first is None else (STALLING[first.reason], blocked.stalled(plan.view, first))


def _reconciling(plan: Plan) -> Verdict | None:
    view = plan.view
    predecessor = plan.blocked_by(BlockedReason.PREDECESSOR_TERMINATING)
    if predecessor is not None:
        return Reason.WAITING_FOR_REPLACEMENT, blocked.stalled(view, predecessor)
    if plan.remaining is None:
        return None
    wanted = view.limits.replicas
    updated = sum(p.state == PodState.SERVING and p.ready for p in view.target_pods)
    if plan.remaining is Reason.SCALING_IN:
        return plan.remaining, f"Scaling in to {count(wanted, 'pod')} ({len(view.serving)} serving). {_next(plan)}"
    if plan.remaining is not Reason.ROLLING_OUT:
        return plan.remaining, f"{share(updated, wanted, 'pod')} serving. {_next(plan)}"
    revision = view.target.name if view.target else "the new revision"
    done = f"{updated} of {count(wanted, 'pod')} updated"
    if plan.blocked_by(BlockedReason.PAUSED) is not None:
        drains = plan.blocked_by(BlockedReason.DRAINING)
        detail = "" if drains is None else f" {blocked.waiting(view, drains)}"
        return Reason.PAUSED, f"Rollout of {revision} is paused (spec.rollout.paused): {done}.{detail}"
    return Reason.ROLLING_OUT, f"Rolling out {revision}: {done}. {_next(plan)}"


def _next(plan: Plan) -> str:
    """What is waited for: the weightiest of what has a sentence."""
    found = (blocked.waiting(plan.view, b) for b in plan.blocked)
    return next((text for text in found if text != blocked.NEXT), blocked.NEXT)


def _further(plan: Plan) -> Iterator[Condition]:
    view = plan.view
    unreachable = plan.blocked_by(BlockedReason.NO_ANSWER)
    if unreachable is not None:
        text = blocked.stalled(view, unreachable)
        yield Condition(ConditionType.DRAIN_ENDPOINT_UNREACHABLE, True, Reason.NO_ANSWER, text)
    for found in plan.blocked:
        if found.reason in OVERDUE:
            message = blocked.overdue(view, found)
            yield Condition(ConditionType.DRAIN_OVERDUE, True, OVERDUE[found.reason], message)
    for notice in plan.notices:
        yield Condition(notice.type, True, notice.reason, notices.text(view, notice))

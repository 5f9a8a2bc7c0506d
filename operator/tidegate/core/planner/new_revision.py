"""What the wanted revision waits for that is not in the plan's own hands: pods that come up, fail, or make room."""

from collections.abc import Iterator

from tidegate.api.conditions import BlockedReason, PodState
from tidegate.core.state.pods import by_age, failure
from tidegate.core.state.view import View

from . import progress
from .blocked import Blocked, Cause, Causes, Conflicts, Findings, Message, NotReady
from .in_progress import third_party_drain


def obstacles(view: View) -> Iterator[Blocked]:
    """Why the wanted revision cannot be made, and what the API server refuses."""
    snapshot = view.snapshot
    if view.findings:
        yield Blocked(BlockedReason.TEMPLATE_CONFLICT, detail=Findings(view.findings))
    if snapshot.rejected:
        yield Blocked(BlockedReason.INVALID_SPEC, detail=Causes(snapshot.rejected))
    if snapshot.refused:
        yield Blocked(BlockedReason.WRITE_REFUSED, detail=Message(snapshot.refused))
    lasting = tuple(c for c in snapshot.conflicts if not c.temporary)
    if lasting:
        yield Blocked(BlockedReason.NAME_CONFLICT, detail=Conflicts(lasting))
    passing = tuple(c for c in snapshot.conflicts if c.temporary)
    if passing:
        yield Blocked(BlockedReason.PREDECESSOR_TERMINATING, detail=Conflicts(passing))
    if view.paused:
        yield Blocked(BlockedReason.PAUSED)


def awaited(view: View) -> Iterator[Blocked]:
    """Pods that are asked for and do not count yet, and those that hold the places of others."""
    yield from _failing(view)
    unready = by_age(p for p in view.target_pods if p.state == PodState.SERVING and not p.ready)
    if unready:
        detail = NotReady(failure(unready[0]), third_party_drain(view, unready[0]))
        yield Blocked(BlockedReason.POD_NOT_READY, tuple(unready), detail)
    if view.occupying and view.limits.surge == 0:
        yield Blocked(BlockedReason.POD_TERMINATING, tuple(by_age(view.occupying)))
    fresh = by_age(p for p in view.serving if p.uid not in view.available_uids)
    if fresh:
        yield Blocked(BlockedReason.MIN_READY_SECONDS, tuple(fresh))
    for d in sorted(view.snapshot.deployments, key=lambda d: d.name):
        if d.replicas != len(view.pods_of(d)):
            yield Blocked(BlockedReason.POD_NOT_CREATED, detail=Message(d.failure, d.name))


def _failing(view: View) -> Iterator[Blocked]:
    """What stops the wanted revision until somebody acts."""
    failing = by_age(view.failing)
    if failing and not progress.was_complete(view):
        yield Blocked(BlockedReason.NEW_REVISION_FAILED, tuple(failing), Cause(failure(failing[0])))
    if view.target is not None and view.target.failure:
        yield Blocked(BlockedReason.PODS_REFUSED, detail=Message(view.target.failure, view.target.name))
    starved = by_age(view.starved)
    if starved and view.stuck:
        yield Blocked(BlockedReason.POD_STUCK_TERMINATING, (starved[0], *by_age(view.stuck)))
    if starved and view.old_pods and view.limits.surge:
        yield Blocked(BlockedReason.NO_SPARE_CAPACITY, tuple(starved))
    overdue = progress.deadline_exceeded(view)
    if overdue is not None:
        yield Blocked(BlockedReason.PROGRESS_DEADLINE_EXCEEDED, (overdue,), Cause(failure(overdue)))

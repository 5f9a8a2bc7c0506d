"""Whether a pod of the wanted revision is overdue: `spec.rollout.progressDeadlineSeconds`, by the pod's own time.

What is measured is how long pods take to come up. Time spent draining does not count: a rollout of ten drains of ten
minutes each is not late while each of its new pods was Ready in one.
"""

from collections.abc import Iterator

from tidegate.api.conditions import PodState, Reason
from tidegate.core.state.pods import by_age
from tidegate.core.state.snapshot import Pod
from tidegate.core.state.view import View


def was_complete(view: View) -> bool:
    """Whether this revision has stood whole before: what happens then is a loss, not a rollout that fails."""
    status = view.snapshot.status
    same = view.target is not None and status.target_revision == view.target.name
    return same and status.rollout is not None and status.rollout.finished_at is not None


def remaining(view: View) -> Reason | None:
    """What is left to do until the service is as its spec wants it; None when nothing is, or nothing may be done."""
    if view.cannot_start:
        return None
    wanted = view.limits.replicas
    if view.rolling or (view.still_draining and not was_complete(view)):
        return Reason.ROLLING_OUT
    if (
        view.draining
        or view.still_draining
        or view.target_staying > wanted
        or any(p.state == PodState.DRAINED for p in view.alive)
    ):
        return Reason.SCALING_IN
    if len(view.target_available) >= wanted:
        return None
    known = sum(p.state == PodState.SERVING for p in view.target_pods)
    lost = known >= wanted and was_complete(view)
    return Reason.WAITING_FOR_REPLACEMENT if lost else Reason.SCALING_OUT


def deadline_exceeded(view: View) -> Pod | None:
    """The oldest overdue pod of a revision that has not stood whole yet."""
    if was_complete(view):
        return None
    return next(iter(by_age(p for p, at in _deadlines(view) if view.snapshot.now > at)), None)


def wakes(view: View) -> Iterator[float]:
    """Seconds until each pod that is not overdue yet will be."""
    yield from (at - view.snapshot.now for _, at in _deadlines(view) if at >= view.snapshot.now)


def _deadlines(view: View) -> Iterator[tuple[Pod, float]]:
    rollout, limit = view.snapshot.spec.rollout, view.snapshot.spec.progress_deadline_seconds
    unproven = _unproven(view)
    for pod in view.target_pods:
        if pod.state != PodState.SERVING or pod.uid in view.available_uids:
            continue
        if pod.unschedulable:
            # It may wait for the drain of a pod whose place it gets: its time begins when that is over.
            if not view.leaving:
                yield pod, max(pod.created, view.last_drain) + limit
            continue
        begun = pod.scheduled or pod.created
        if not pod.ready:
            yield pod, max(begun, pod.unready_since or 0.0) + limit
        if unproven:
            # Ready for a moment time and again: that it turned NotReady is never long ago.
            yield pod, begun + limit + rollout.min_ready_seconds


def _unproven(view: View) -> bool:
    """Whether the wanted revision has carried nothing yet: else more old pods would have gone than may be missing."""
    if view.target_available:
        return False
    old = sum(p.state == PodState.SERVING for p in view.old_pods)
    return len(view.snapshot.deployments) == 1 or old >= view.limits.least_serving

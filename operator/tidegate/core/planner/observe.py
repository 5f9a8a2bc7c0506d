"""snapshot -> view: which revision is wanted, which limits are in force, and what the template must not hold."""

from collections.abc import Iterator

from tidegate.api.conditions import ConditionStatus, ConditionType, PodState
from tidegate.api.resource import WhenNoCapacity
from tidegate.core.drain_time.grace import grace_period
from tidegate.core.render import validation
from tidegate.core.render.finding import Finding
from tidegate.core.state import limits
from tidegate.core.state.limits import Limits
from tidegate.core.state.snapshot import Deployment, Snapshot
from tidegate.core.state.view import View

from . import revision


def observe(snapshot: Snapshot) -> View:
    """The snapshot with its first conclusions."""
    rollout = snapshot.spec.rollout
    source = revision.source(snapshot.raw_spec)
    target = revision.find((d for d in snapshot.deployments if not d.deleting), source)
    if snapshot.spec.drain.grace.roll_on_drift:
        source, target = _with_grace(snapshot, source, target)
    resolved = limits.resolve(snapshot.spec.replicas, rollout.max_surge, rollout.max_unavailable)
    drain_first = rollout.when_no_capacity is WhenNoCapacity.DRAIN_FIRST and _any_unschedulable(snapshot, target)
    if drain_first:
        resolved = Limits(snapshot.spec.replicas, 0, 1)
    found = validation.findings(snapshot.spec) or tuple(_unroutable(snapshot, target))
    return View(snapshot, resolved, source, target, found, drain_first)


def _unroutable(snapshot: Snapshot, target: Deployment | None) -> Iterator[Finding]:
    standing = {p.revision for p in snapshot.pods if p.alive}
    for d in snapshot.deployments:
        if d.revision in standing and (target is None or d.uid != target.uid):
            older = revision.spec_of(d.source)
            finding = validation.unroutable(snapshot.spec, older) if older is not None else None
            if finding is not None:
                yield finding
                return


def _with_grace(snapshot: Snapshot, source: str, target: Deployment | None) -> tuple[str, Deployment | None]:
    """With rollOnDrift the grace period is part of the revision, and another one takes its place once it is stale.

    Only of a service that stands whole, and after the condition has said so: the drains of the very rollout that this
    begins move the terms again.
    """
    grace = grace_period(snapshot.spec, snapshot.drain_times)
    fresh = revision.with_grace(source, grace.seconds)
    if target is None:
        return fresh, None
    alive = [p for p in snapshot.pods if p.alive]
    if not target.replicas and all(p.revision != target.revision for p in alive):
        return fresh, target
    others = any(d.replicas for d in snapshot.deployments if d.uid != target.uid)
    whole = len(alive) == snapshot.spec.replicas and all(
        p.revision == target.revision and p.state == PodState.SERVING and p.ready for p in alive
    )
    stale = snapshot.status.condition(ConditionType.GRACE_PERIOD_STALE)
    said = stale is not None and stale.status is ConditionStatus.TRUE
    if whole and not others and said and not snapshot.spec.rollout.paused and grace.drifted_from(target.grace_seconds):
        return fresh, None
    return target.source, target


def _any_unschedulable(snapshot: Snapshot, target: Deployment | None) -> bool:
    return target is not None and any(
        p.alive and p.revision == target.revision and p.unschedulable for p in snapshot.pods
    )

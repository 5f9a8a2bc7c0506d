"""The status document: counts, drains, sums and conditions, computed from a plan and from the status before.

What has to survive the operator (when a rollout began, what was cut) lives in the status itself and on the pods, so a
successor goes on with the same numbers. An outcome is counted when it enters the list, once.
"""

import math
from typing import Final

from tidegate.api import names
from tidegate.api.conditions import BlockedReason, ConditionStatus, ConditionType, DrainReason, Outcome, Phase, PodState
from tidegate.api.status import (
    Condition,
    DrainTimesStatus,
    GracePeriod,
    GraceTerm,
    LLMServiceStatus,
    OutcomeStatus,
    PodStatus,
    RevisionStatus,
    RolloutStatus,
)
from tidegate.core.drain_time import bound
from tidegate.core.drain_time.eta import Eta
from tidegate.core.drain_time.grace import drains_estimate
from tidegate.core.planner import ends, eta
from tidegate.core.planner.blocked import Readings
from tidegate.core.planner.plan import Plan
from tidegate.core.state import times
from tidegate.core.state.snapshot import OutcomeRecord, Pod, Snapshot
from tidegate.core.state.view import View

from . import conditions, sentences, terms

KEPT_OUTCOMES: Final = 10


def status(plan: Plan) -> LLMServiceStatus:
    """The whole status; what is not known is absent."""
    view = plan.view
    snapshot = view.snapshot
    found = conditions.conditions(plan)
    fresh = new_outcomes(plan)
    rollout = _rollout(view, fresh) or snapshot.status.rollout
    target = view.target.name if view.target is not None else snapshot.status.target_revision
    return LLMServiceStatus(
        observed_generation=snapshot.generation,
        phase=_phase(plan, found, rollout),
        message=conditions.worst(found),
        replicas=sum(p.state == PodState.SERVING for p in view.alive),
        selector=f"{names.SERVICE}={snapshot.name},{names.STATE} notin ({PodState.DRAINING},{PodState.DRAINED})",
        serving=len(view.serving),
        updated=sum(p.state == PodState.SERVING and p.ready for p in view.target_pods),
        draining=len(view.draining) + len(_taken_away(view, PodState.DRAINING)),
        target_revision=target,
        revisions=_revisions(view),
        pods=(*_draining_pods(view), *_third_party_drains(plan), *_deleted_pods(view)),
        grace_period=_grace(view),
        drain_times=_drain_times(snapshot),
        rollout=rollout if target is not None else None,
        outcomes=(*snapshot.status.outcomes, *(_outcome(pod, ended) for pod, ended in fresh))[-KEPT_OUTCOMES:],
        conditions=tuple(_condition(c, snapshot) for c in found),
    )


def _condition(c: conditions.Condition, snapshot: Snapshot) -> Condition:
    value = ConditionStatus.TRUE if c.true else ConditionStatus.FALSE
    before = snapshot.status.condition(c.type)
    same = before is not None and before.status is value
    return Condition(
        type=c.type,
        status=value,
        observed_generation=snapshot.generation,
        last_transition_time=before.last_transition_time if before is not None and same else times.short(snapshot.now),
        reason=c.reason,
        message=c.message,
    )


def _phase(plan: Plan, found: list[conditions.Condition], rollout: RolloutStatus | None) -> Phase:
    view = plan.view
    by_type = {c.type: c for c in found}
    before = view.snapshot.status
    if by_type[ConditionType.STALLED].true:
        return Phase.STALLED
    if plan.blocked_by(BlockedReason.PAUSED) is not None:
        return Phase.PAUSED
    if (before.rollout is None or before.rollout.started_at is None) and not by_type[ConditionType.READY].true:
        return Phase.PENDING
    if by_type[ConditionType.RECONCILING].true:
        finished = rollout is not None and rollout.finished_at is not None
        same = view.target is not None and before.target_revision == view.target.name
        if not before.target_revision or (same and len(view.snapshot.deployments) <= 1 and not finished):
            return Phase.PENDING
        return Phase.ROLLING if view.rolling or not finished else Phase.SCALING
    return Phase.READY


def _revisions(view: View) -> tuple[RevisionStatus, ...]:
    rows = []
    for d in sorted(view.snapshot.deployments, key=lambda d: (-d.created, d.name)):
        pods = view.pods_of(d)
        if d.replicas or pods or d is view.target:
            serving = sum(p.state == PodState.SERVING and p.ready for p in pods)
            draining = sum(p.state == PodState.DRAINING for p in pods)
            draining += sum(p.revision == d.revision for p in _taken_away(view, PodState.DRAINING))
            rows.append(RevisionStatus(name=d.name, replicas=d.replicas, serving=serving, draining=draining))
    return tuple(rows)


def _draining_pods(view: View) -> list[PodStatus]:
    draining = [*view.draining, *_taken_away(view, PodState.DRAINING)]
    return [_draining_pod(view, pod) for pod in sorted(draining, key=lambda p: p.name)]


def _taken_away(view: View, state: PodState) -> list[Pod]:
    return [pod for pod in view.going if pod.state == state]


def _deleted_pods(view: View) -> list[PodStatus]:
    """Pods that others took away while they served: listed, so that a successor tells how they ended."""
    return [_deleted_pod(view, pod) for pod in sorted(_taken_away(view, PodState.SERVING), key=lambda p: p.name)]


def _deleted_pod(view: View, pod: Pod) -> PodStatus:
    reading, trouble = view.snapshot.readings.get(pod.uid), view.snapshot.troubles.get(pod.uid)
    oldest = reading.oldest_seconds if reading is not None else None
    return PodStatus(
        name=pod.name,
        state=PodState(pod.state),
        reason=ends.reason(pod),
        since=times.short(ends.since(view, pod)),
        deadline=None if pod.terminates_by is None else times.short(pod.terminates_by),
        observed_at=None if reading is None else times.short(reading.at),
        in_flight=None if reading is None else reading.in_flight,
        oldest_seconds=None if oldest is None else int(oldest),
        trouble=None if trouble is None else trouble.detail,
    )


def _draining_pod(view: View, pod: Pod) -> PodStatus:
    drain, reading = pod.drain, view.snapshot.readings.get(pod.uid)
    trouble = view.snapshot.troubles.get(pod.uid)
    if reading is not None and drain is not None and reading.at < drain.since:
        # Said before it was withdrawn: by now it may hold anything.
        reading = None
    oldest = reading.oldest_seconds if reading is not None else None
    likely, upper = _eta(eta.of_drain(view, pod))
    return PodStatus(
        name=pod.name,
        state=PodState(pod.state),
        reason=None if drain is None else drain.reason,
        since=None if drain is None else times.short(drain.since),
        deadline=_deadline(pod),
        observed_at=None if reading is None else times.short(reading.at),
        in_flight=None if reading is None else reading.in_flight,
        oldest_seconds=None if oldest is None else int(oldest),
        eta_seconds=likely,
        eta_upper_seconds=upper,
        trouble=None if trouble is None else trouble.detail,
    )


def _deadline(pod: Pod) -> str | None:
    """When its budget is spent, or its grace period if that ends before."""
    limits = [pod.terminates_by, None if pod.drain is None else pod.drain.deadline]
    known = [at for at in limits if at is not None]
    return times.short(min(known)) if known else None


def _third_party_drains(plan: Plan) -> list[PodStatus]:
    others = plan.blocked_by(BlockedReason.DRAINED_BY_OTHERS)
    if others is None or not isinstance(others.detail, Readings):
        return []
    found = sorted(zip(others.pods, others.detail.readings, strict=True), key=lambda pair: pair[0].name)
    return [
        PodStatus(name=pod.name, state=PodState(pod.state), trouble=sentences.drained_by_others(said))
        for pod, said in found
    ]


def _eta(found: Eta) -> tuple[int | None, int | None]:
    """Whole seconds, likely and at most."""
    likely = None if found.likely is None else math.ceil(found.likely)
    return likely, None if found.upper is None else math.ceil(found.upper)


def _grace(view: View) -> GracePeriod:
    rows = []
    for term in view.grace.terms:
        rows.append(
            GraceTerm(
                name=term.name,
                seconds=term.seconds,
                source=term.source,
                samples=term.samples,
                covers=term.covers,
                message=terms.message(term),
            )
        )
    return GracePeriod(seconds=view.grace.seconds, terms=tuple(rows))


def _drain_times(snapshot: Snapshot) -> DrainTimesStatus | None:
    """Whole seconds, rounded up: nobody shall plan with less than was measured."""
    if not snapshot.drain_times.samples.n:
        return None
    known = drains_estimate(snapshot.spec, snapshot.drain_times)

    def whole(seconds: float | None) -> int | None:
        return None if seconds is None else math.ceil(seconds)

    return DrainTimesStatus(
        p50_seconds=whole(known.p50),
        p90_seconds=whole(known.p90),
        p99_seconds=whole(known.p99),
        p99_upper_seconds=whole(known.p99_upper),
        samples=known.n,
        censored=known.censored,
    )


def _outcome(pod: str, o: OutcomeRecord) -> OutcomeStatus:
    oldest = o.oldest_cut_seconds
    return OutcomeStatus(
        pod=pod,
        outcome=o.outcome,
        reason=o.reason,
        seconds=round(o.seconds),
        cut=o.cut,
        in_flight=o.in_flight if o.cut is None else None,
        oldest_cut_seconds=None if oldest is None else round(oldest),
        at=times.text(o.at),
    )


def new_outcomes(plan: Plan) -> list[tuple[str, OutcomeRecord]]:
    """Outcomes that the status does not hold yet: of drained pods, and of those that others took away."""
    view = plan.view
    listed, known = view.snapshot.status.outcomes, view.told
    # A full list may have dropped a pod that still stands: whatever is older than all it keeps was counted.
    horizon = min((times.parse(row.at) or 0.0 for row in listed), default=0.0) if len(listed) >= KEPT_OUTCOMES else 0
    fresh = [
        (p.name, p.outcome)
        for p in view.snapshot.pods
        if p.outcome is not None and p.name not in known and p.outcome.at > horizon
    ]
    fresh += [
        (p.name, _released(view.snapshot.now, p))
        for p in view.snapshot.pods
        if p.release and p.terminating and p.outcome is None and p.name not in known
    ]
    fresh += [(end.pod, end.outcome) for end in plan.ends]
    return sorted(fresh, key=lambda item: (item[1].at, item[0]))


def _released(now: float, pod: Pod) -> OutcomeRecord:
    """A pod that was let go without a word: nobody can count what was cut."""
    since = pod.drain.since if pod.drain else now
    return OutcomeRecord(Outcome.RELEASED, max(now - since, 0.0), None, None, now, DrainReason.MANUAL)


def _rollout(view: View, fresh: list[tuple[str, OutcomeRecord]]) -> RolloutStatus | None:
    """The rollout to the target; what is over stays as it was told."""
    snapshot, target = view.snapshot, view.target
    if target is None:
        return None
    before = snapshot.status.rollout
    if before is None or snapshot.status.target_revision != target.name or before.started_at is None:
        begun = snapshot.now if snapshot.status.target_revision else target.created
        before = RolloutStatus(started_at=times.text(begun))
    if before.finished_at is not None:
        return before
    counted = [o for _, o in fresh if o.reason == DrainReason.ROLLOUT]
    waits = [max(o.seconds - snapshot.spec.drain.propagation_seconds, 0.0) for o in counted]
    past = snapshot.status.rollout.start_seconds if snapshot.status.rollout is not None else None
    start = round(_start_seconds(view) or before.start_seconds or 0.0, 1)
    drained = bound.Drained(
        before.drained + len(counted),
        round(before.drain_seconds + sum(waits), 1),
        round(max([before.longest_drain_seconds, *waits]), 1),
    )
    least, propagation = snapshot.spec.rollout.min_ready_seconds, snapshot.spec.drain.propagation_seconds
    finished = _complete(view)
    known = start or past
    # A sum with an unknown part is unknown; what is known of it is kept beside it.
    uncounted = before.uncounted + sum(o.cut is None for o in counted)
    known_cut = (before.cut or before.cut_at_least or 0) + sum(o.cut or 0 for o in counted)
    likely, upper = (None, None) if finished else _eta(eta.of_rollout(view, known + least if known else None))
    return RolloutStatus(
        started_at=before.started_at,
        finished_at=times.text(snapshot.now) if finished else None,
        seconds=round(snapshot.now - (times.parse(before.started_at) or snapshot.now)) if finished else None,
        bound_seconds=round(bound.rollout_bound(start + least, propagation, drained, view.limits.slots)),
        eta_seconds=likely,
        eta_upper_seconds=upper,
        drained=drained.count,
        cut=None if uncounted else known_cut,
        cut_at_least=known_cut or None if uncounted else None,
        uncounted=uncounted,
        start_seconds=start or None,
        drain_seconds=drained.total,
        longest_drain_seconds=drained.longest,
    )


def _complete(view: View) -> bool:
    steady = not view.draining and not view.still_draining and not view.rolling
    return steady and len(view.target_available) == view.limits.replicas == view.target_staying


def _start_seconds(view: View) -> float | None:
    """Mean time from creation to Ready of the new pods, in seconds."""
    took = [p.ready_since - p.created for p in view.target_pods if p.ready_since is not None]
    return sum(took) / len(took) if took else None

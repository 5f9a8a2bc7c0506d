"""The conditions of a service, as kstatus defines Ready, Reconciling and Stalled; further types only while true.

Each message says what is, why, and what happens next or what a person can do.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tidegate.api import names
from tidegate.api.conditions import ConditionType, DrainReason, Reason
from tidegate.api.drain import OnExpiry
from tidegate.core.drain_time.grace import drains_estimate
from tidegate.core.drain_time.survival import TARGET
from tidegate.core.planner import progress
from tidegate.core.planner.children import outdated
from tidegate.core.planner.plan import Plan
from tidegate.core.planner.running import astray, undoable, wanted_back
from tidegate.core.render import foreign, validation
from tidegate.core.state import times
from tidegate.core.state.snapshot import Pod
from tidegate.core.state.view import View, by_age, failure

from . import sentences, template_warnings


@dataclass(frozen=True, slots=True)
class Condition:
    type: ConditionType
    true: bool
    reason: Reason
    message: str


def conditions(plan: Plan) -> list[Condition]:
    """All conditions, the worst first among those that carry news."""
    view = plan.view
    stalled = _stalled(plan)
    going = _reconciling(view)
    none_made = view.blocked and not view.snapshot.deployments
    short = len(view.serving) < view.limits.least_serving or none_made
    ready_reason, ready_message = (stalled or going) or (Reason.AS_DESIRED, _settled(view))
    found = [
        Condition(ConditionType.READY, not short, ready_reason, ready_message),
        _either(ConditionType.RECONCILING, going, _settled(view)),
        _either(ConditionType.STALLED, stalled, "Nothing stands in the way"),
    ]
    return found + list(_further(plan))


def worst(found: Iterable[Condition]) -> str:
    """Message of the worst condition: Stalled, then what is true beside the three, then what goes on."""
    by_type = {c.type: c for c in found}
    if by_type[ConditionType.STALLED].true:
        return by_type[ConditionType.STALLED].message
    extra = [c for c in by_type.values() if c.type not in _ALWAYS]
    if extra and not by_type[ConditionType.RECONCILING].true:
        return extra[0].message
    return by_type[ConditionType.READY].message


_ALWAYS = (ConditionType.READY, ConditionType.RECONCILING, ConditionType.STALLED)
Verdict = tuple[Reason, str]


def _either(kind: ConditionType, verdict: Verdict | None, otherwise: str) -> Condition:
    if verdict is None:
        return Condition(kind, False, Reason.AS_DESIRED, otherwise)
    return Condition(kind, True, verdict[0], verdict[1])


def _settled(view: View) -> str:
    told = f"{len(view.serving)} of {view.limits.replicas} pods serve"
    return f"{told}, all of {view.target.name}" if view.target else f"{told}; nothing is changed until then"


def _stalled(plan: Plan) -> Verdict | None:
    """What stops the service until somebody acts, most basic first."""
    view = plan.view
    s = view.snapshot
    if view.findings:
        return Reason.TEMPLATE_CONFLICT, "; ".join(str(f) for f in view.findings)
    if s.rejected:
        text = "; ".join(f"{field}: {message}" if field else message for field, message in s.rejected)
        return Reason.INVALID_SPEC, f"the API server refuses the template: {text}"
    if s.refused:
        return Reason.WRITE_REFUSED, f"The API server refuses a write of the operator: {s.refused}"
    lasting = [c for c in s.conflicts if not c.temporary]
    if lasting:
        return Reason.NAME_CONFLICT, "; ".join(c.detail for c in lasting)
    if plan.unreachable:
        return Reason.NO_ANSWER, _unreachable(view)
    if view.held:
        return Reason.BUDGET_HELD, _overdue_text(view, view.held[0])
    return _not_coming_up(view)


def _not_coming_up(view: View) -> Verdict | None:
    tail = _nobody_else(view)
    if view.failing and not progress.was_complete(view):
        pod = by_age(view.failing)[0]
        return Reason.NEW_REVISION_FAILED, f"Pod {pod.name} does not come up: {failure(pod)}. {tail}"
    if view.target is not None and view.target.failure:
        return Reason.NEW_REVISION_FAILED, f"Pods of {view.target.name} are refused: {view.target.failure}. {tail}"
    starved = by_age(view.starved)
    if starved and view.old_pods and view.limits.surge:
        return Reason.NO_SPARE_CAPACITY, (
            f"Pod {starved[0].name} finds no node: {starved[0].unschedulable.rstrip('.')}. No old pod goes for it. "
            "Free capacity, or set spec.rollout.maxSurge: 0 and maxUnavailable: 1 to drain a pod first; if no node "
            "could ever take it, correct resources, nodeSelector, affinity or tolerations in spec.template.spec"
        )
    late = progress.late(view)
    if late is not None:
        return Reason.PROGRESS_DEADLINE_EXCEEDED, f"Pod {late.name} {progress.told(view, late)}. {tail}"
    return None


def _nobody_else(view: View) -> str:
    if not view.old_pods:
        return "Push a working revision to recover"
    return "No further old pod is drained; push a working revision, or the old one again, to recover"


def _reconciling(view: View) -> Verdict | None:
    waiting = [c for c in view.snapshot.conflicts if c.temporary]
    if waiting:
        return Reason.WAITING_FOR_REPLACEMENT, "; ".join(c.detail for c in waiting)
    if view.blocked:
        return None
    detail = _drain_detail(view)
    wanted = view.limits.replicas
    updated = sum(p.state == names.SERVING and p.ready for p in view.target_pods)
    if rolling(view):
        name = view.target.name if view.target else "the new revision"
        if view.paused:
            return Reason.PAUSED, f"{updated} of {wanted} pods are of {name}; paused by spec.rollout.paused. {detail}"
        return Reason.ROLLING_OUT, f"{updated} of {wanted} pods are of {name}. {detail or _next(view)}"
    if view.draining or view.target_staying > wanted or _leaving(view):
        return Reason.SCALING_IN, f"{len(view.serving)} pods serve, {wanted} are wanted. {detail or _next(view)}"
    if len(view.target_available) < wanted:
        known = len([p for p in view.target_pods if p.state == names.SERVING])
        reason = (
            Reason.SCALING_OUT if known < wanted or not progress.was_complete(view) else Reason.WAITING_FOR_REPLACEMENT
        )
        return reason, f"{updated} of {wanted} pods serve. {_next(view)}"
    return None


def rolling(view: View) -> bool:
    """Whether pods of another revision are still to go."""
    return any(d.replicas for d in view.old_deployments) or bool(view.old_pods) or view.target is None


def _leaving(view: View) -> bool:
    return any(p.state == names.DRAINED for p in view.alive)


def _drain_detail(view: View) -> str:
    """Who drains, since when, what it waits for, and when that ends at the latest."""
    parts = []
    back = wanted_back(view)
    for pod in by_age(view.draining)[:3]:
        record = pod.drain
        if record is None:
            continue
        if pod.uid in back:
            parts.append(f"Pod {pod.name} is wanted again and asked to serve")
            continue
        since = int(view.snapshot.now - record.since)
        work = sentences.work(view, pod, record)
        until = (
            f"at the latest at {times.clock(record.deadline)} it is let go"
            if record.deadline is not None
            else "it is held until they end (drain.onExpiry: Hold)"
        )
        parts.append(f"Pod {pod.name} drains since {since} s: {work}; {until}")
    more = len(view.draining) - len(parts)
    text = "; ".join(parts) + (f"; and {more} more" if more > 0 else "")
    return text if not text or all(p.uid in back for p in view.draining) else f"{text}. Then the next step follows"


def _next(view: View) -> str:
    revision = view.target.revision if view.target else None
    waiting = [p for p in view.target_pods if p.state == names.SERVING and not p.ready]
    if waiting:
        pod = by_age(waiting)[0]
        said = astray(view, pod)
        why = failure(pod) or pod.unschedulable or (sentences.stray(said) if said is not None else "")
        return f"Waiting for pod {pod.name} to be Ready{f' ({why})' if why else ''}"
    going = [p for p in view.snapshot.pods if p.terminating]
    if going and view.limits.surge == 0:
        return f"Waiting for pod {by_age(going)[0].name} to be gone, since maxSurge is 0"
    released = [p for p in view.alive if p.state == names.DRAINED]
    if released:
        return f"Pod {by_age(released)[0].name} is drained and about to be deleted"
    fresh = [p for p in view.serving if p.uid not in view.available_uids]
    if fresh:
        least = view.snapshot.spec.rollout.min_ready_seconds
        return f"Waiting for pod {by_age(fresh)[0].name} to stay Ready for minReadySeconds ({least} s)"
    if any(p.revision != revision for p in view.serving) and len(view.available) <= view.limits.least_serving:
        return f"{len(view.available)} pods serve and as many are needed, so no old pod goes before a new one serves"
    return "The next step follows"


def _further(plan: Plan) -> Iterable[Condition]:
    view = plan.view
    s = view.snapshot
    if plan.unreachable:
        yield Condition(ConditionType.DRAIN_ENDPOINT_UNREACHABLE, True, Reason.NO_ANSWER, _unreachable(view))
    overdue = [p for p in view.draining if view.overdue(p)]
    if overdue:
        reason = Reason.BUDGET_HELD if view.held else Reason.DRAINING
        yield Condition(ConditionType.DRAIN_OVERDUE, True, reason, _overdue_text(view, overdue[0]))
    if s.locks_missing:
        yield Condition(
            ConditionType.LOCKS_MISSING,
            True,
            Reason.POLICIES_MISSING,
            f"Not in force: {', '.join(s.locks_missing)}. One pod is drained at a time; apply manifests/cluster",
        )
    if view.target is not None and view.target_pods and outdated(view, view.target):
        yield Condition(
            ConditionType.TEMPLATE_OUTDATED,
            True,
            Reason.RENDERED_BEFORE,
            f"Pods of {view.target.name} were rendered by an older operator or with older numbers of spec.drain; they "
            "stay as they are until the next revision, or set spec.rollout.restartedAt",
        )
    computed = view.grace.seconds
    if view.target is not None and view.target_pods and view.grace.drifted_from(view.target.grace_seconds):
        yield Condition(
            ConditionType.GRACE_PERIOD_STALE,
            True,
            Reason.TERMS_CHANGED,
            f"Pods of {view.target.name} get {view.target.grace_seconds} s when somebody else deletes them, the terms "
            f"now sum to {computed} s; {_when_carried(view)}",
        )
    if s.drain_times_trouble:
        yield Condition(ConditionType.DRAIN_TIMES_UNREADABLE, True, Reason.CONTENT_SET_ASIDE, s.drain_times_trouble)
    truncating = _truncating(view)
    if truncating:
        yield Condition(ConditionType.BUDGET_TRUNCATING, True, Reason.DRAINS_CUT, truncating)
    endpoint = s.spec.drain.native.foreign
    if endpoint is not None and not endpoint.serves_as_hook:
        text = foreign.lock_is_partial(endpoint, view.grace)
        yield Condition(ConditionType.IN_POD_LOCK_PARTIAL, True, Reason.PRE_STOP_SLEEPS, text)
    altered = [p for p in view.alive if not p.hooked]
    if altered:
        yield Condition(ConditionType.IN_POD_LOCK_PARTIAL, True, Reason.PRE_STOP_ALTERED, sentences.altered(altered))
    container = validation.serving_container(s.spec)
    if container is not None and validation.readiness_ignores_drains(s.spec, container):
        verdict = _own_readiness(container["name"]) if endpoint is None else foreign.not_drain_aware(container["name"])
        yield Condition(ConditionType.READINESS_NOT_DRAIN_AWARE, True, *verdict)
    if s.foreign_services:
        yield Condition(
            ConditionType.SERVICE_NOT_WITHDRAWN,
            True,
            Reason.SELECTOR_WITHOUT_STATE,
            f"Service {', '.join(s.foreign_services)} selects these pods without {names.STATE}: a draining pod stays "
            f"in it until its readiness fails; add {names.STATE}: {names.SERVING} to its selector",
        )
    for kind, reason, text in template_warnings.told(s.spec):
        yield Condition(kind, True, reason, text)


def _when_carried(view: View) -> str:
    if view.snapshot.spec.drain.grace.roll_on_drift:
        return "a revision with that follows when the service stands whole (spec.drain.grace.rollOnDrift)"
    return "the next revision carries that, or set spec.rollout.restartedAt"


def _truncating(view: View) -> str:
    """Whether drains are cut by their budget so often that nobody can tell how long they would last."""
    learnt, drain = view.snapshot.drain_times, view.snapshot.spec.drain
    if learnt.expired_share <= 1 - TARGET or not drains_estimate(view.snapshot.spec, learnt).truncated:
        return ""
    return (
        f"Of the last drains {_share(learnt.expired_share)} had requests cut when the budget of {drain.budget_seconds} "
        "s was spent, so there is no P99. Raise spec.drain.budgetSeconds, or set spec.drain.onExpiry: Hold to decide "
        "each time"
    )


def _share(value: float) -> str:
    return f"{math.ceil(value * 100)} %"


def _own_readiness(container: str) -> Verdict:
    return Reason.OWN_READINESS_PROBE, (
        f"Container {container} has a readiness probe of its own: whoever routes by readiness alone keeps sending to a "
        f"draining pod; probe {names.READY_PATH} of the contract's port, or remove the probe"
    )


def _overdue_text(view: View, pod: Pod) -> str:
    record = pod.drain
    told = f"Pod {pod.name} drains beyond its budget of {view.snapshot.spec.drain.budget_seconds} s"
    if record is None or view.snapshot.spec.drain.on_expiry is not OnExpiry.HOLD:
        return f"{told}; it is let go now"
    scaled = record.reason == DrainReason.SCALE_IN
    stops = "it is held and " + ("stays until then" if scaled else "the rollout stops here")
    back = f"{'raise spec.replicas again' if scaled else 'push the old revision again'} to keep the pod, "
    return (
        f"{told}: {sentences.work(view, pod, record)}; {stops}. Raise spec.drain.budgetSeconds to wait on, "
        f"{back if undoable(view, pod) else ''}or let it go with what it holds: set spec.drain.onExpiry: Release, or "
        f"for this pod alone: kubectl annotate pod {pod.name} {names.RELEASE}='your reason'"
    )


def _unreachable(view: View) -> str:
    pods = [p for p in view.alive if p.uid in view.snapshot.troubles and p.ip]
    lost = [p for p in view.alive if p.ip and not p.askable]
    if lost and not pods:
        return sentences.no_port(lost)
    if not pods:
        call = next((foreign.asked_by(p) for p in by_age(view.alive)), "GET /drain")
        return f"No pod has answered {call}; no pod is drained"
    pod = by_age(pods)[0]
    trouble = view.snapshot.troubles[pod.uid]
    port = "spec.gateway.adminPort" if validation.has_gateway(view.snapshot.spec) else "spec.drain.native.port"
    return (
        f"No pod answers {foreign.asked_by(pod)}; {pod.name} at {pod.ip}:{pod.contract_port}: {trouble.detail}. No pod "
        "is drained. "
        f"Check {port}, NetworkPolicies and strict mTLS on that port; to roll all the same, annotate "
        f"the LLMService with {names.DRAIN_UNREACHABLE}: <reason>"
    )

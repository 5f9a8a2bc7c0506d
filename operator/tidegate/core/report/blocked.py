"""Why nothing more is done, in words: one sentence for each reason of a plan. Nothing is decided here."""

from typing import Final

from tidegate.api import names
from tidegate.api.conditions import BlockedReason, DrainReason
from tidegate.core.planner.blocked import (
    Blocked,
    Cause,
    Causes,
    Conflicts,
    Findings,
    Held,
    Message,
    NotReady,
    Returning,
    Unanswered,
)
from tidegate.core.render import validation
from tidegate.core.state import times
from tidegate.core.state.snapshot import Pod
from tidegate.core.state.view import View

from . import sentences

NEXT: Final = "The next step follows"
NAMED: Final = 3
"""So many draining pods are named, the rest is counted."""


def stalled(view: View, blocked: Blocked) -> str:
    """What stops the service until somebody acts, and what that person can do."""
    match blocked.detail:
        case Findings(found):
            return "; ".join(str(f) for f in found)
        case Causes(causes):
            text = "; ".join(f"{field}: {message}" if field else message for field, message in causes)
            return f"the API server refuses the template: {text}"
        case Conflicts(conflicts):
            return "; ".join(c.detail for c in conflicts)
        case Unanswered() as detail:
            return _no_answer(view, blocked, detail)
        case Held() as detail:
            return _held(view, blocked.pods[0], detail)
        case Message(text) if blocked.reason is BlockedReason.WRITE_REFUSED:
            return f"The API server refuses a write of the operator: {text}"
        case _:
            return _not_coming_up(view, blocked)


def waiting(view: View, blocked: Blocked) -> str:
    """What is waited for, and ends by itself."""
    pods = blocked.pods
    match blocked:
        case Blocked(BlockedReason.DRAINING, _, Returning(uids)):
            return drains(view, pods, uids)
        case Blocked(BlockedReason.POD_NOT_READY, _, NotReady() as detail):
            return _not_ready(pods[0], detail)
        case Blocked(BlockedReason.POD_TERMINATING):
            return f"Waiting for pod {pods[0].name} to be gone, since maxSurge is 0"
        case Blocked(BlockedReason.POD_DRAINED):
            return f"Pod {pods[0].name} is drained and about to be deleted"
        case Blocked(BlockedReason.MIN_READY_SECONDS):
            least = view.snapshot.spec.rollout.min_ready_seconds
            return f"Waiting for pod {pods[0].name} to stay Ready for minReadySeconds ({least} s)"
        case Blocked(BlockedReason.LEAST_SERVING) if pods:
            count = len(view.available)
            return f"{count} pods serve and as many are needed, so no old pod goes before a new one serves"
        case _:
            return NEXT


def overdue(view: View, blocked: Blocked) -> str:
    """Of drains beyond their budget."""
    match blocked.detail:
        case Held() as detail:
            return _held(view, blocked.pods[0], detail)
        case _:
            return f"{_beyond(view, blocked.pods[0])}; it is let go now"


def drains(view: View, draining: tuple[Pod, ...], returning: frozenset[str]) -> str:
    """Who drains, since when, what it waits for, and when that ends at the latest."""
    parts = [_drain(view, pod, pod.uid in returning) for pod in draining[:NAMED] if pod.drain is not None]
    more = len(draining) - len(parts)
    text = "; ".join(parts) + (f"; and {more} more" if more > 0 else "")
    return text if all(p.uid in returning for p in draining) else f"{text}. Then the next step follows"


def _drain(view: View, pod: Pod, returns: bool) -> str:
    record = pod.drain
    if returns or record is None:
        return f"Pod {pod.name} is wanted again and asked to serve"
    until = (
        f"at the latest at {times.clock(record.deadline)} it is let go"
        if record.deadline is not None
        else "it is held until they end (drain.onExpiry: Hold)"
    )
    since = int(view.snapshot.now - record.since)
    return f"Pod {pod.name} drains since {since} s: {sentences.work(view, pod, record)}; {until}"


def _not_ready(pod: Pod, detail: NotReady) -> str:
    why = pod.unschedulable
    if detail.failure is not None:
        why = sentences.failure(detail.failure)
    elif not why and detail.drained_by_others is not None:
        why = sentences.drained_by_others(detail.drained_by_others)
    return f"Waiting for pod {pod.name} to be Ready{f' ({why})' if why else ''}"


def _not_coming_up(view: View, blocked: Blocked) -> str:
    tail = "Push a working revision to recover"
    if view.old_pods:
        tail = "No further old pod is drained; push a working revision, or the old one again, to recover"
    match blocked:
        case Blocked(BlockedReason.NEW_REVISION_FAILED, (pod, *_), Cause(found)) if found is not None:
            return f"Pod {pod.name} does not come up: {sentences.failure(found)}. {tail}"
        case Blocked(BlockedReason.PODS_REFUSED, _, Message(text, name)):
            return f"Pods of {name} are refused: {text}. {tail}"
        case Blocked(BlockedReason.NO_SPARE_CAPACITY, (pod, *_)):
            return (
                f"Pod {pod.name} finds no node: {pod.unschedulable.rstrip('.')}. No old pod goes for it. "
                "Free capacity, or set spec.rollout.maxSurge: 0 and maxUnavailable: 1 to drain a pod first; if no node "
                "could ever take it, correct resources, nodeSelector, affinity or tolerations in spec.template.spec"
            )
        case Blocked(BlockedReason.PROGRESS_DEADLINE_EXCEEDED, (pod, *_), Cause() as detail):
            return f"Pod {pod.name} {_late(view, pod, detail)}. {tail}"
        case _:
            return NEXT


def _late(view: View, pod: Pod, detail: Cause) -> str:
    """What is wrong with an overdue pod, and where to look."""
    rollout = view.snapshot.spec.rollout
    limit = f"{rollout.progress_deadline_seconds} s (spec.rollout.progressDeadlineSeconds)"
    if pod.unschedulable:
        return f"finds no node after {limit}: {pod.unschedulable.rstrip('.')}"
    if detail.failure is not None:
        return f"is not Ready after {limit}: {sentences.failure(detail.failure)}"
    look = f"its log and kubectl describe pod {pod.name} say more"
    if rollout.min_ready_seconds:
        return f"has not stayed Ready for minReadySeconds ({rollout.min_ready_seconds} s) after {limit}; {look}"
    return f"is not Ready after {limit}; {look}"


def _beyond(view: View, pod: Pod) -> str:
    return f"Pod {pod.name} drains beyond its budget of {view.snapshot.spec.drain.budget_seconds} s"


def _held(view: View, pod: Pod, detail: Held) -> str:
    record = pod.drain
    if record is None:
        return f"{_beyond(view, pod)}; it is let go now"
    scaled = record.reason == DrainReason.SCALE_IN
    stops = "it is held and " + ("stays until then" if scaled else "the rollout stops here")
    back = f"{'raise spec.replicas again' if scaled else 'push the old revision again'} to keep the pod, "
    return (
        f"{_beyond(view, pod)}: {sentences.work(view, pod, record)}; {stops}. Raise spec.drain.budgetSeconds to wait "
        f"on, {back if detail.undoable else ''}or let it go with what it holds: set spec.drain.onExpiry: Release, or "
        f"for this pod alone: kubectl annotate pod {pod.name} {names.RELEASE}='your reason'"
    )


def _no_answer(view: View, blocked: Blocked, detail: Unanswered) -> str:
    pod = next(iter(blocked.pods), None)
    if pod is not None and detail.port_unknown:
        return (
            f"No pod is drained: at which port {pod.name} is to be asked is not known, since it lacks "
            f"Tidegate's preStop hook and the annotation {names.SOURCE} of its Deployment cannot be read. To roll all "
            f"the same, annotate the LLMService with {names.DRAIN_UNREACHABLE}: <reason>"
        )
    if pod is None or detail.trouble is None:
        call = "GET /drain" if pod is None else sentences.asked_by(pod)
        return f"No pod has answered {call}; no pod is drained"
    port = "spec.gateway.adminPort" if validation.has_gateway(view.snapshot.spec) else "spec.drain.native.port"
    return (
        f"No pod answers {sentences.asked_by(pod)}; {pod.name} at {pod.ip}:{pod.contract_port}: "
        f"{detail.trouble.detail}. No pod is drained. "
        f"Check {port}, NetworkPolicies and strict mTLS on that port; to roll all the same, annotate "
        f"the LLMService with {names.DRAIN_UNREACHABLE}: <reason>"
    )

"""Why nothing more is done, in words: what is, why, and what next or what to do, for each reason of a plan.

Nothing is decided here.
"""

from typing import Final

from tidegate.api import names
from tidegate.api.conditions import BlockedReason, DrainReason
from tidegate.core.planner import ends
from tidegate.core.planner.blocked import (
    Blocked,
    Cause,
    Causes,
    Conflicts,
    Findings,
    Held,
    Message,
    NotReady,
    Readings,
    Returning,
    Unanswered,
)
from tidegate.core.planner.candidates import UNREADY_SECONDS
from tidegate.core.render import validation
from tidegate.core.state import times
from tidegate.core.state.snapshot import Pod
from tidegate.core.state.view import View

from . import phrases, sentences
from .phrases import count, seconds, sentence

NEXT: Final = "Proceeding to the next step."
NAMED: Final = 3
"""So many draining pods are told of, the rest is counted."""


def stalled(view: View, blocked: Blocked) -> str:
    """What stops the service until somebody acts, and what that person can do."""
    match blocked.detail:
        case Findings(found):
            return sentence(f"Cannot create the revision: {'; '.join(str(f) for f in found)}")
        case Causes(causes):
            text = "; ".join(f"{field}: {message}" if field else message for field, message in causes)
            text = sentence(f"The API server rejected the new revision: {text}")
            return f"{text} Existing pods stay as they are until it is corrected."
        case Conflicts(conflicts):
            return " ".join(sentence(c.detail) for c in conflicts)
        case Unanswered() as detail:
            return _no_answer(view, blocked, detail)
        case Held() as detail:
            return _held(view, blocked.pods[0], detail)
        case Message(text) if blocked.reason is BlockedReason.WRITE_REFUSED:
            text = sentence(f"The API server refused a request of the operator: {text}")
            return f"{text} Check the operator's role and the admission policies; the operator retries."
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
            return _terminating(pods[0])
        case Blocked(BlockedReason.POD_DRAINED):
            return f"Pod {pods[0].name} is drained and is deleted next."
        case Blocked(BlockedReason.MIN_READY_SECONDS):
            least = view.snapshot.spec.rollout.min_ready_seconds
            return f"Waiting for pod {pods[0].name} to stay Ready for {least} s (spec.rollout.minReadySeconds)."
        case Blocked(BlockedReason.LEAST_SERVING) if pods:
            available, least = len(view.available), view.limits.least_serving
            return f"Waiting for a new pod before an old one is drained: {available} available, {least} required."
        case _:
            return _waiting_for_others(view, blocked)


def _waiting_for_others(view: View, blocked: Blocked) -> str:
    """Of pods that came or went by no decision of the plan, and of the slots that they hold."""
    found = phrases.pods([pod.name for pod in blocked.pods])
    match blocked:
        case Blocked(BlockedReason.RECOVERING_FROM_LOSS):
            return f"Waiting for a replacement of lost {found}; no serving pod is drained until then."
        case Blocked(BlockedReason.POD_NOT_CREATED, _, Message(why, name)):
            wanted = next((d.replicas for d in view.snapshot.deployments if d.name == name), 0)
            return sentence(f"Waiting for Deployment {name} to have {count(wanted, 'pod')}{f': {why}' if why else ''}")
        case Blocked(BlockedReason.FLAPPING):
            least = seconds(UNREADY_SECONDS)
            return f"Waiting for {found} to become Ready again; after {least} it is considered lost."
        case Blocked(BlockedReason.ROOM_FOR_UNSCHEDULABLE):
            room = f"the place of {found}" if blocked.pods else "the place of a drained pod"
            return f"Waiting for the scheduler to give {room} to the new pod (spec.rollout.whenNoCapacity: DrainFirst)."
        case Blocked(BlockedReason.ONE_AT_A_TIME):
            return f"Waiting for {found} to drain; without the admission policies, one pod is drained at a time."
        case Blocked(BlockedReason.BUDGET_SPENT):
            return overdue(view, blocked)
        case Blocked(BlockedReason.DRAINED_BY_OTHERS, (pod, *_), Readings((said, *_))):
            return sentence(f"Pod {pod.name} should be serving: {sentences.drained_by_others(said)}")
        case Blocked(BlockedReason.NO_FREE_SLOT):
            return f"Waiting for a free rollout slot to drain {found}, which cannot be counted on."
        case _:
            return NEXT


def overdue(view: View, blocked: Blocked) -> str:
    """Of drains beyond their budget."""
    match blocked.detail:
        case Held() as detail:
            return _held(view, blocked.pods[0], detail)
        case _:
            return f"{_beyond(view, blocked.pods[0])} and is being released."


def drains(view: View, draining: tuple[Pod, ...], returning: frozenset[str]) -> str:
    """Who drains, for how long, what it waits for, and when that ends at the latest."""
    parts = [_drain(view, pod, pod.uid in returning) for pod in draining[:NAMED]]
    more = len(draining) - len(parts)
    if more:
        parts.append(f"{count(more, 'more pod')} {'is' if more == 1 else 'are'} draining.")
    return " ".join(parts)


def _drain(view: View, pod: Pod, returns: bool) -> str:
    record = pod.drain
    if pod.terminating:
        return _taken_away(view, pod)
    if record is None:
        return f"Draining pod {pod.name}."
    if returns:
        return f"Undraining pod {pod.name}, which is needed again."
    until = "held until its requests end (spec.drain.onExpiry: Hold)"
    if record.deadline is not None:
        until = f"released by {times.clock(record.deadline)} at the latest"
    lasts = seconds(view.snapshot.now - record.since)
    return f"Draining pod {pod.name} for {lasts}: {sentences.work(view, pod, record.since)}, {until}."


def _taken_away(view: View, pod: Pod) -> str:
    went = f"evicted ({pod.disruption})" if pod.disruption else "deleted"
    until = "" if pod.terminates_by is None else f", ended by its grace period at {times.clock(pod.terminates_by)}"
    work = sentences.work(view, pod, ends.since(view, pod))
    return f"Pod {pod.name} was {went} and is ending its requests: {work}{until}."


def _terminating(pod: Pod) -> str:
    where = f" on node {pod.node}" if pod.node else ""
    until = "" if pod.terminates_by is None else f" by {times.clock(pod.terminates_by)}"
    return (
        f"Waiting for pod {pod.name}{where} to terminate{until}; without surge, its replacement is created after that."
    )


def _not_ready(pod: Pod, detail: NotReady) -> str:
    awaited, why = "become Ready", ""
    if detail.failure is not None:
        why = sentences.failure(detail.failure)
    elif pod.unschedulable:
        awaited, why = "be scheduled", pod.unschedulable
    elif detail.drained_by_others is not None:
        why = sentences.drained_by_others(detail.drained_by_others)
    return sentence(f"Waiting for pod {pod.name} to {awaited}{f': {why}' if why else ''}")


def _not_coming_up(view: View, blocked: Blocked) -> str:
    tail = "To recover, push a working revision."
    if view.old_pods:
        tail = "No more old pods are drained. To recover, push a working revision or the old one."
    match blocked:
        case Blocked(BlockedReason.NEW_REVISION_FAILED, (pod, *_), Cause(found)) if found is not None:
            text = f"Pod {pod.name} does not start: {sentences.failure(found)}"
        case Blocked(BlockedReason.PODS_REFUSED, _, Message(why, name)):
            text = f"Pods of Deployment {name} cannot be created: {why}"
            tail = "Raise the quota, or change what refuses them; or push the old revision."
        case Blocked(BlockedReason.POD_STUCK_TERMINATING, (pod, stuck, *_)):
            text = f"Pod {pod.name} cannot be scheduled: {pod.unschedulable}"
            at = "" if stuck.terminates_by is None else f" by {times.clock(stuck.terminates_by)}"
            tail = (
                f"Pod {stuck.name} on node {stuck.node} should have ended{at} and may still hold its device. If the "
                "node is gone, delete it, or taint it with node.kubernetes.io/out-of-service=nodeshutdown:NoExecute; "
                "if it runs, look at its kubelet."
            )
        case Blocked(BlockedReason.NO_SPARE_CAPACITY, (pod, *_)):
            text = f"Pod {pod.name} cannot be scheduled: {pod.unschedulable}"
            tail = (
                "No old pod is drained for it. Free capacity, or set spec.rollout.maxSurge: 0 and maxUnavailable: 1 to "
                "drain a pod first. If no node could ever take the pod, correct resources, nodeSelector, affinity or "
                "tolerations in spec.template.spec."
            )
        case Blocked(BlockedReason.PROGRESS_DEADLINE_EXCEEDED, (pod, *_), Cause() as detail):
            text = f"Pod {pod.name} {_late(view, pod, detail)}"
        case _:
            return NEXT
    return f"{sentence(text)} {tail}"


def _late(view: View, pod: Pod, detail: Cause) -> str:
    """What is wrong with an overdue pod, and where to look."""
    rollout = view.snapshot.spec.rollout
    limit = f"within {view.snapshot.spec.progress_deadline_seconds} s (spec.rollout.progressDeadlineSeconds)"
    if pod.unschedulable:
        return f"was not scheduled {limit}: {pod.unschedulable}"
    if detail.failure is not None:
        return f"was not Ready {limit}: {sentences.failure(detail.failure)}"
    look = f"see kubectl logs {pod.name} and kubectl describe pod {pod.name}"
    if rollout.min_ready_seconds:
        return f"was not Ready for {rollout.min_ready_seconds} s (spec.rollout.minReadySeconds) {limit}; {look}"
    return f"was not Ready {limit}; {look}"


def _beyond(view: View, pod: Pod) -> str:
    return f"Pod {pod.name} has exceeded its drain budget of {view.snapshot.spec.drain.budget_seconds} s"


def _held(view: View, pod: Pod, detail: Held) -> str:
    record = pod.drain
    if record is None:
        return f"{_beyond(view, pod)} and is being released."
    scaled = record.reason == DrainReason.SCALE_IN
    blocks = "" if scaled else ", which blocks the rollout"
    back = "raise spec.replicas" if scaled else "push the old revision"
    keep = f"to keep the pod, {back} again; " if detail.undoable else ""
    return (
        f"{_beyond(view, pod)} and is held{blocks}: {sentences.work(view, pod, record.since)}. To wait longer, raise "
        f"spec.drain.budgetSeconds; {keep}to release it, set spec.drain.onExpiry: Release, or run kubectl annotate "
        f"pod {pod.name} {names.RELEASE}='your reason'."
    )


def _no_answer(view: View, blocked: Blocked, detail: Unanswered) -> str:
    pod = next(iter(blocked.pods), None)
    anyway = f"To roll out anyway, annotate the LLMService with {names.DRAIN_UNREACHABLE}: <reason>."
    if pod is not None and detail.port_unknown:
        return (
            f"No pod is drained: the drain port of pod {pod.name} is not known, because the pod lacks Tidegate's "
            f"preStop hook and its Deployment has no readable annotation {names.SOURCE}. {anyway}"
        )
    if pod is None or detail.trouble is None:
        return f"No pod is drained until one {sentences.answers(pod)}."
    port = "spec.gateway.adminPort" if validation.has_gateway(view.snapshot.spec) else "spec.drain.native.port"
    return (
        f"No pod is drained, because none {sentences.answers(pod)}. Pod {pod.name} at {pod.ip}:{pod.contract_port}: "
        f"{detail.trouble.detail}. Check {port}, NetworkPolicies and strict mTLS on that port. {anyway}"
    )

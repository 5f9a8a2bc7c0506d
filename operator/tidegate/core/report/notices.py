"""What people should know although nothing waits for it, in words: one sentence for each notice of a plan."""

import math
from typing import Final

from tidegate.api import names
from tidegate.api.conditions import PodState, Reason
from tidegate.api.foreign import Foreign, Method
from tidegate.api.resource import LLMServiceSpec
from tidegate.core.drain_time.grace import GracePeriod
from tidegate.core.drain_time.survival import ENOUGH
from tidegate.core.planner.notices import Container, Names, Notice, PortsBeside, Share, Text
from tidegate.core.render.foreign import hook_seconds
from tidegate.core.state.snapshot import Pod
from tidegate.core.state.view import View

from . import phrases
from .phrases import count, listed, seconds


def text(view: View, notice: Notice) -> str:
    """What is, and what a person can do."""
    match notice.detail:
        case Container() | PortsBeside():
            return of_template(view.snapshot.spec, notice)
        case Text(found):
            return found
        case Share() as share:
            return _truncating(view, share)
        case Names(found) if notice.reason is Reason.CONTAINER_WITHOUT_PRE_STOP:
            return _unhooked(found, notice.pods)
        case Names(found):
            return _environment(view, notice.reason, found)
        case _:
            return _revision(view, notice)


def of_template(spec: LLMServiceSpec, notice: Notice) -> str:
    """Of a container or a port of the template."""
    match notice.detail:
        case Container(name, lacks) if lacks:
            return f"Container {name} (spec.engine: {spec.engine}) lacks {' and '.join(lacks)}; add it to args."
        case Container(name) if notice.reason is Reason.OWN_READINESS_PROBE:
            return (
                f"Container {name} has its own readiness probe, which does not fail while the pod drains, so clients "
                "that route by readiness alone keep sending requests to it. Probe "
                f"{names.READY_PATH} on the contract's port, or remove the probe."
            )
        case Container(name):
            return (
                f"Container {name} is Ready as long as its port accepts connections, so clients that route by "
                "readiness alone keep sending requests to a draining pod. Set spec.probes.readiness.path to a path "
                "that fails while the application drains."
            )
        case PortsBeside(counted, engine, beside):
            return (
                f"A drain waits only for requests to port {counted} ({spec.gateway.listen_port}), which the gateway "
                f"counts; it does not wait for requests to {', '.join(beside)} or directly to the engine's port "
                f"{engine}. Send all requests that a drain must wait for to port {counted}."
            )
        case _:
            return ""


def _environment(view: View, reason: Reason, found: tuple[str, ...]) -> str:
    if reason is Reason.POLICIES_MISSING:
        missing = ", ".join(found)
        return f"Admission policies not in force: {missing}. One pod is drained at a time; apply manifests/cluster."
    one = len(found) == 1
    if reason is Reason.SECOND_BUDGET:
        noun, verb = ("PodDisruptionBudget", "selects") if one else ("PodDisruptionBudgets", "select")
        return (
            f"{noun} {listed(found)} {verb} pods that Tidegate's own, {view.snapshot.name}, covers. The API server "
            "answers 500 to every eviction of a pod that has two, so kubectl drain and autoscalers fail. Delete "
            f"{'it' if one else 'them'}, or exclude pods with the label {names.SERVICE} from the selector."
        )
    return (
        f"{'Service' if one else 'Services'} {', '.join(found)} {'selects' if one else 'select'} these pods without "
        f"the label {names.STATE}, so a draining pod gets requests until its readiness fails. Add "
        f"{names.STATE}: {PodState.SERVING} to the selector."
    )


def _revision(view: View, notice: Notice) -> str:
    target, endpoint = view.target, view.snapshot.spec.drain.native.foreign
    if notice.reason is Reason.PRE_STOP_ALTERED:
        return _altered(notice.pods)
    if notice.reason is Reason.PRE_STOP_SLEEPS and endpoint is not None:
        return _sleeps(endpoint, view.grace)
    if target is None:
        return ""
    now = "to apply it now, set spec.rollout.restartedAt."
    if notice.reason is Reason.RENDERED_BEFORE:
        return (
            f"Pods of {target.name} were rendered by an older operator or with older spec.drain values. The next "
            f"revision gets the present rendering; {now}"
        )
    applied = f"The next revision gets the new value; {now}"
    if view.snapshot.spec.drain.grace.roll_on_drift:
        applied = "A revision with the new value follows once all pods serve (spec.drain.grace.rollOnDrift)."
    return (
        f"Pods of {target.name} have a grace period of {target.grace_seconds} s, but its terms now add up to "
        f"{view.grace.seconds} s. {applied}"
    )


def _truncating(view: View, share: Share) -> str:
    """Drains are cut by their budget so often that nobody can tell how long they would last."""
    part = f"{math.ceil(share.cut * 100)} % of the latest drains"
    if share.drains < ENOUGH:
        total = max(round(share.drains), 1)
        part = f"{max(round(share.cut * total), 1)} of the latest {count(total, 'drain')}"
    return (
        f"{part} had requests cut when the drain budget of "
        f"{view.snapshot.spec.drain.budget_seconds} s was spent, so the P99 is unknown. Raise "
        "spec.drain.budgetSeconds, or set spec.drain.onExpiry: Hold to decide each time."
    )


def _altered(pods: tuple[Pod, ...]) -> str:
    """Of pods without the hook that was rendered for them: the in-pod lock is not theirs."""
    one = len(pods) == 1
    return (
        f"{'Pod' if one else 'Pods'} {listed([pod.name for pod in pods])} {'lacks' if one else 'lack'} the preStop "
        "hook that Tidegate rendered, as when a mutating webhook removes it. Tidegate still drains such a pod, but "
        "when somebody else deletes it, its requests are cut. Exempt the pods from the webhook, then set "
        "spec.rollout.restartedAt."
    )


_OTHER_INJECTOR: Final = (
    "Let its injector add a hook that sleeps as long as a drain, or make it a native sidecar (an init container with "
    "restartPolicy: Always), or exempt the pods."
)
_MESHES: Final = {
    "istio-proxy": (
        f'Annotate the template with {names.ISTIO_NATIVE}: "true", or set EXIT_ON_ZERO_ACTIVE_CONNECTIONS: "true" in '
        f"proxyMetadata of {names.ISTIO_CONFIG}."
    ),
    "linkerd-proxy": f'Annotate the template with {names.LINKERD_NATIVE}: "true", or set {names.LINKERD_WAIT}.',
}
"""By the container's name, the setting with which its mesh lets it outlast the requests."""


def _unhooked(containers: tuple[str, ...], pods: tuple[Pod, ...]) -> str:
    """Of containers that somebody added to the pods; a mesh's proxy, through which the requests go, is named first."""
    first, *others = sorted(containers, key=lambda name: (name not in _MESHES, name))
    noun, verb, ends = ("Containers", "have", "they end") if others else ("Container", "has", "it ends")
    return (
        f"{noun} {listed([first, *others])} of {phrases.pods([pod.name for pod in pods])} {verb} no preStop hook, so "
        f"when somebody else deletes such a pod, {ends} while requests still run. {_MESHES.get(first, _OTHER_INJECTOR)}"
    )


def _sleeps(endpoint: Foreign, grace: GracePeriod) -> str:
    """What the in-pod lock cannot do where the kubelet cannot call the drain endpoint, and what would help."""
    why = ""
    if endpoint.method is Method.GET:
        why = " with a header from a Secret" if endpoint.header is not None else " and wait, as it answers at once"
    lasts = seconds(hook_seconds(grace))
    return (
        f"The kubelet cannot call {endpoint.method} {endpoint.path}{why}, so preStop sleeps for {lasts}: a drained pod "
        "takes that long to terminate, and a pod that somebody else deletes has its requests cut after that. Offer a "
        "GET without header that answers when the drain is over, or set spec.drain.grace.initialSeconds to a drain's "
        "length."
    )

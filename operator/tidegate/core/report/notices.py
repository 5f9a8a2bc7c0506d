"""What people should know although nothing waits for it, in words: one sentence for each notice of a plan."""

import math

from tidegate.api import names
from tidegate.api.conditions import Reason
from tidegate.api.foreign import Foreign, Method
from tidegate.api.resource import LLMServiceSpec
from tidegate.core.drain_time.grace import GracePeriod
from tidegate.core.planner.notices import Container, Names, Notice, PortsBeside, Share, Text
from tidegate.core.render.foreign import hook_seconds
from tidegate.core.state.snapshot import Pod
from tidegate.core.state.view import View


def text(view: View, notice: Notice) -> str:
    """What is, and what a person can do."""
    match notice.detail:
        case Container() | PortsBeside():
            return of_template(view.snapshot.spec, notice)
        case Text(found):
            return found
        case Share(cut):
            return _truncating(view, cut)
        case Names(found):
            return _environment(notice.reason, ", ".join(found))
        case _:
            return _revision(view, notice)


def of_template(spec: LLMServiceSpec, notice: Notice) -> str:
    """Of a container or a port of the template."""
    match notice.detail:
        case Container(name, lacks) if lacks:
            return f"Container {name} (spec.engine: {spec.engine}) lacks {'; '.join(lacks)}; add it to its args"
        case Container(name) if notice.reason is Reason.OWN_READINESS_PROBE:
            return (
                f"Container {name} has a readiness probe of its own: whoever routes by readiness alone keeps sending "
                f"to a draining pod; probe {names.READY_PATH} of the contract's port, or remove the probe"
            )
        case Container(name):
            return (
                f"Container {name} is Ready while its port accepts connections: whoever routes by readiness alone "
                "keeps sending to a draining pod; set spec.probes.readiness.path to one that fails while the "
                "application drains"
            )
        case PortsBeside(counted, engine, beside):
            return (
                f"Counted and waited for are requests to port {counted} ({spec.gateway.listen_port}), where the "
                f"gateway takes them. Nobody counts those to {', '.join(beside)}, nor those sent straight to the "
                f"engine's own port {engine} by a pod's address: a drain does not wait for them. Send what has to be "
                f"waited for to {counted}"
            )
        case _:
            return ""


def _environment(reason: Reason, listed: str) -> str:
    if reason is Reason.POLICIES_MISSING:
        return f"Not in force: {listed}. One pod is drained at a time; apply manifests/cluster"
    return (
        f"Service {listed} selects these pods without {names.STATE}: a draining pod stays "
        f"in it until its readiness fails; add {names.STATE}: {names.SERVING} to its selector"
    )


def _revision(view: View, notice: Notice) -> str:
    target, endpoint = view.target, view.snapshot.spec.drain.native.foreign
    if notice.reason is Reason.PRE_STOP_ALTERED:
        return _altered(notice.pods)
    if notice.reason is Reason.PRE_STOP_SLEEPS and endpoint is not None:
        return _sleeps(endpoint, view.grace)
    if target is None:
        return ""
    if notice.reason is Reason.RENDERED_BEFORE:
        return (
            f"Pods of {target.name} were rendered by an older operator or with older numbers of spec.drain; they "
            "stay as they are until the next revision, or set spec.rollout.restartedAt"
        )
    carried = "the next revision carries that, or set spec.rollout.restartedAt"
    if view.snapshot.spec.drain.grace.roll_on_drift:
        carried = "a revision with that follows when the service stands whole (spec.drain.grace.rollOnDrift)"
    return (
        f"Pods of {target.name} get {target.grace_seconds} s when somebody else deletes them, the terms "
        f"now sum to {view.grace.seconds} s; {carried}"
    )


def _truncating(view: View, cut: float) -> str:
    """Drains are cut by their budget so often that nobody can tell how long they would last."""
    return (
        f"Of the last drains {math.ceil(cut * 100)} % had requests cut when the budget of "
        f"{view.snapshot.spec.drain.budget_seconds} s was spent, so there is no P99. Raise spec.drain.budgetSeconds, "
        "or set spec.drain.onExpiry: Hold to decide each time"
    )


def _altered(pods: tuple[Pod, ...]) -> str:
    """Of pods without the hook that was rendered for them: the in-pod lock is not theirs."""
    return (
        f"Pod {pods[0].name} lacks the preStop hook that Tidegate rendered ({len(pods)} in all): something "
        "changed it on its way in, as a mutating webhook does. Tidegate drains it all the same, but when somebody "
        "else deletes it, its requests are cut. Exempt these pods from the webhook, then set spec.rollout.restartedAt"
    )


def _sleeps(endpoint: Foreign, grace: GracePeriod) -> str:
    """What the in-pod lock cannot do where the kubelet cannot call the drain endpoint, and what would help."""
    why = ""
    if endpoint.method is Method.GET:
        why = " with a header from a Secret" if endpoint.header is not None else " as a wait, since it answers at once"
    seconds = hook_seconds(grace)
    return (
        f"The kubelet cannot call {endpoint.method} {endpoint.path}{why}, so preStop sleeps {seconds} s: "
        "when somebody else deletes a pod, its requests get that long and are cut then, and a pod that is drained "
        "takes as long to go. A GET that answers when it is over and needs no header would serve as preStop; else set "
        "spec.drain.grace.initialSeconds to what a drain takes"
    )

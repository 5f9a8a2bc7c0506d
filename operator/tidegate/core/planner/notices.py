"""What people should know although nothing waits for it: findings about template, environment and drain times.

As `Blocked`, these are data; `core.report` words them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tidegate.api.conditions import ConditionType, Reason
from tidegate.api.resource import LLMServiceSpec
from tidegate.core.drain_time.drain_times import DrainTimes
from tidegate.core.drain_time.grace import drains_estimate
from tidegate.core.drain_time.survival import TARGET
from tidegate.core.render import engines, sidecar, validation
from tidegate.core.render.finding import port_number
from tidegate.core.state.pods import by_age
from tidegate.core.state.snapshot import Pod
from tidegate.core.state.view import View

from .children import outdated


@dataclass(frozen=True, slots=True)
class Names:
    """Objects that the notice is about."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Text:
    """What another part has found out, in its words."""

    text: str


@dataclass(frozen=True, slots=True)
class Share:
    """Of the last drains, the part that was cut: 0 to 1; and how many those are, older ones counting for less."""

    cut: float
    drains: float


@dataclass(frozen=True, slots=True)
class Container:
    """A container of the template; `lacks` are flags, with what each is for."""

    name: str
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PortsBeside:
    """Ports whose requests nobody counts: the engine's own, and those that other names lead to."""

    counted: int | str
    engine: int | None
    beside: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing to know, by the condition that tells it; the pods concerned, the first being the one to name."""

    type: ConditionType
    reason: Reason
    pods: tuple[Pod, ...] = ()
    detail: Names | Text | Share | Container | PortsBeside | None = None


def notices(view: View) -> Iterator[Notice]:
    """All of them, in the order in which they are told."""
    snapshot = view.snapshot
    if snapshot.locks_missing:
        yield Notice(ConditionType.LOCKS_MISSING, Reason.POLICIES_MISSING, detail=Names(snapshot.locks_missing))
    yield from _stale_revision(view)
    if snapshot.drain_times_trouble:
        trouble = Text(snapshot.drain_times_trouble)
        yield Notice(ConditionType.DRAIN_TIMES_UNREADABLE, Reason.CONTENT_SET_ASIDE, detail=trouble)
    learnt = snapshot.drain_times
    if learnt.expired_share > 1 - TARGET and drains_estimate(snapshot.spec, learnt).truncated:
        yield Notice(ConditionType.BUDGET_TRUNCATING, Reason.DRAINS_CUT, detail=_share(learnt))
    yield from _weak_hooks(view)
    if snapshot.services_without_state:
        found = Names(snapshot.services_without_state)
        yield Notice(ConditionType.SERVICE_NOT_WITHDRAWN, Reason.SELECTOR_WITHOUT_STATE, detail=found)
    if snapshot.budgets_beside:
        yield Notice(
            ConditionType.DISRUPTION_BUDGET_CONFLICT, Reason.SECOND_BUDGET, detail=Names(snapshot.budgets_beside)
        )
    yield from template_notices(snapshot.spec)


def _share(learnt: DrainTimes) -> Share:
    return Share(learnt.expired_share, learnt.drains.effective_n)


def _stale_revision(view: View) -> Iterator[Notice]:
    if view.target is None or not view.target_pods:
        return
    if outdated(view, view.target):
        yield Notice(ConditionType.TEMPLATE_OUTDATED, Reason.RENDERED_BEFORE)
    if view.grace.drifted_from(view.target.grace_seconds):
        yield Notice(ConditionType.GRACE_PERIOD_STALE, Reason.TERMS_CHANGED)


def _weak_hooks(view: View) -> Iterator[Notice]:
    spec = view.snapshot.spec
    endpoint = spec.drain.native.foreign
    altered = tuple(by_age(p for p in view.alive if not p.hooked))
    # A condition has one reason: what somebody else did to pods weighs more than what the endpoint cannot do.
    if altered:
        yield Notice(ConditionType.IN_POD_LOCK_PARTIAL, Reason.PRE_STOP_ALTERED, altered)
    elif injected := _unhooked(view):
        yield injected
    elif endpoint is not None and not endpoint.serves_as_hook:
        yield Notice(ConditionType.IN_POD_LOCK_PARTIAL, Reason.PRE_STOP_SLEEPS)
    container = validation.serving_container(spec)
    if container is not None and validation.readiness_ignores_drains(spec, container):
        reason = Reason.OWN_READINESS_PROBE if endpoint is None else Reason.READINESS_BY_PORT
        yield Notice(ConditionType.READINESS_NOT_DRAIN_AWARE, reason, detail=Container(container["name"]))


def _unhooked(view: View) -> Notice | None:
    """Containers that others added, and that end while requests still run when somebody else deletes the pod."""
    after = view.snapshot.spec.drain.grace
    graces = {
        d.revision: d.grace_seconds - after.teardown_seconds - after.safety_seconds for d in view.snapshot.deployments
    }
    found: dict[str, None] = {}
    pods = []
    for pod in by_age(view.alive):
        short = [c.name for c in pod.unhooked if c.lasts < graces.get(pod.revision, 0)]
        if short:
            pods.append(pod)
            found |= dict.fromkeys(short)
    if not found:
        return None
    return Notice(
        ConditionType.IN_POD_LOCK_PARTIAL, Reason.CONTAINER_WITHOUT_PRE_STOP, tuple(pods), Names(tuple(found))
    )


def template_notices(spec: LLMServiceSpec) -> Iterator[Notice]:
    """What a gateway cannot mend by itself: requests that pass it by, and an engine that lacks a flag."""
    container = validation.serving_container(spec)
    if container is None or not validation.has_gateway(spec):
        return
    port, name = port_number(container, spec.port), container["name"]
    flags = tuple(engines.missing_flags(spec.engine, container, port))
    if flags:
        yield Notice(ConditionType.ENGINE_FLAGS_MISSING, Reason.FLAGS_MISSING, detail=Container(name, flags))
    beside = tuple(sidecar.uncounted(spec, container))
    if beside:
        found = PortsBeside(validation.target_port(spec, container), port, beside)
        yield Notice(ConditionType.PORTS_UNCOUNTED, Reason.PORTS_BESIDE_GATEWAY, detail=found)

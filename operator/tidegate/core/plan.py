"""snapshot -> plan: everything that is decided about a service, in one pure function.

The formula of a step, with R replicas, S surge, U unavailable (all resolved):

    raise the wanted revision by   min(R - staying, R + S - total)
    withdraw at most               available - (R - U)  serving pods

where `total` counts every place taken or about to be taken and `available` the pods that serve now. One free place
becomes one new pod, one pod beyond the floor becomes one drain: slots pipeline, nothing goes in waves.
"""

from dataclasses import dataclass, field
from typing import Final

from tidegate.api import names
from tidegate.api.conditions import DrainReason

from . import drains, render, revision, victims
from .actions import (
    Action,
    Adopt,
    ApplyChild,
    CreateRevision,
    DeleteChild,
    DeleteDeployment,
    DeletePod,
    DrainOrder,
    EnsureSecret,
    MarkDrained,
    Question,
    Scale,
    Withdraw,
)
from .grace import grace_period
from .model import Deployment, Snapshot
from .view import View, by_age

POLL_SECONDS: Final = 5.0
"""How soon to look again while something is awaited that sends no event."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now, whom to talk to, and when to look again at the latest (seconds, None: at the next event)."""

    view: View
    actions: tuple[Action, ...] = ()
    orders: tuple[DrainOrder, ...] = ()
    questions: tuple[Question, ...] = ()
    unreachable: bool = False
    requeue_after: float | None = None


@dataclass(slots=True)
class _Draft:
    view: View
    returning: int = 0
    """Draining pods that are asked to serve again: they count as staying."""
    actions: list[Action] = field(default_factory=list)
    orders: list[DrainOrder] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    unreachable: bool = False
    wake: list[float] = field(default_factory=list)


def plan(s: Snapshot) -> Plan:
    """Decide. The same snapshot gives the same plan."""
    view = View.of(s)
    draft = _Draft(view)
    _children(draft)
    _pay(draft)
    _running_drains(draft)
    _strays(draft)
    if not view.blocked and not draft.actions:
        # Counts are only trusted when nothing is about to change them in this same pass.
        if view.paused:
            _hold_count(draft)
        else:
            _grow(draft)
            _shrink(draft)
        _prune(draft)
    _wake(draft)
    return Plan(
        view,
        tuple(draft.actions),
        tuple(draft.orders),
        tuple(draft.questions),
        draft.unreachable,
        min(draft.wake, default=None),
    )


def _children(draft: _Draft) -> None:
    view = draft.view
    s = view.s
    for d in s.deployments:
        if not d.adopted and not d.deleting:
            draft.actions.append(Adopt(d.name, d.uid))
    if view.blocked:
        return
    owner = render.Owner(s.namespace, s.name, s.uid)
    if not s.has_secret:
        draft.actions.append(EnsureSecret(render.secret_name(s.name)))
    wanted = render.service(owner, s.spec)
    if s.spec.service.create:
        if not render.includes(s.live_service or {}, wanted):
            draft.actions.append(ApplyChild("Service", wanted["metadata"]["name"], wanted))
    elif s.live_service is not None:
        meta = s.live_service["metadata"]
        draft.actions.append(DeleteChild("Service", meta["name"], meta["uid"]))
    wanted = render.disruption_budget(owner, s.spec)
    if not render.includes(s.live_budget or {}, wanted):
        draft.actions.append(ApplyChild("PodDisruptionBudget", s.name, wanted))
    if view.target is None:
        first = revision.name_hash(view.source, (d.revision for d in s.deployments))
        count = 0 if view.paused else _room(view, 0)
        draft.actions.append(CreateRevision(first, view.source, count))


def _room(view: View, returning: int) -> int:
    missing = view.amounts.replicas - view.target_staying - returning
    return max(min(missing, view.amounts.most_pods - view.total), 0)


def _pay(draft: _Draft) -> None:
    """Lower each Deployment by its drained pods, each once; delete those that stand though they are paid for."""
    for d in draft.view.s.deployments:
        drained = [p for p in draft.view.pods_of(d) if p.state == names.DRAINED]
        unpaid = [p for p in drained if p.uid not in d.released]
        if unpaid:
            released = _kept(draft.view, d) | {p.uid for p in unpaid}
            why = ", ".join(p.name for p in by_age(unpaid))
            draft.actions.append(Scale(d.name, max(d.replicas - len(unpaid), 0), released, f"drained: {why}"))
        elif drained and _settled(draft.view, d):
            draft.actions.extend(DeletePod(p.name, p.uid) for p in by_age(drained))


def _settled(view: View, d: Deployment) -> bool:
    """Whether the ReplicaSet has seen the Deployment's present count, so that a DELETE makes no replacement."""
    own = [r for r in view.s.replica_sets if r.deployment_uid == d.uid]
    return bool(own) and all(r.observed for r in own) and sum(r.replicas for r in own) == d.replicas


def _running_drains(draft: _Draft) -> None:
    view = draft.view
    back = _wanted_back(view)
    draft.returning = len(back)
    for pod in by_age(view.draining):
        actions, order = drains.advance(view, pod, undo=pod.uid in back)
        draft.actions.extend(actions)
        if order is not None:
            draft.orders.append(order)
        if pod.drain is not None and pod.drain.deadline is not None:
            draft.wake.append(pod.drain.deadline + drains.EXPIRY_SLACK - view.s.now)


def _strays(draft: _Draft) -> None:
    """Pods labelled serving that somebody else drains: NotReady, so asked once; undrained, or replaced when sealed."""
    view = draft.view
    for pod in by_age(view.alive):
        if pod.state != names.SERVING or pod.unready_since is None or view.holds_no_work(pod):
            continue
        heard = [x.at for x in (view.s.readings.get(pod.uid), view.s.troubles.get(pod.uid)) if x is not None]
        if not heard or max(heard) < pod.unready_since:
            draft.questions.extend(victims.questions(view, [pod]))
            continue
        reading = view.s.readings.get(pod.uid)
        if reading is None or reading.state not in ("draining", "sealed"):
            continue
        if reading.state == "draining" and reading.drain_id:
            order = drains.order(view, pod, drains.foreign(pod, reading), undo=True)
            draft.orders.extend([order] if order else [])
        else:
            draft.actions.append(Withdraw(pod.name, pod.uid, drains.begin(view, pod, DrainReason.MANUAL)))


def _wanted_back(view: View) -> set[str]:
    """Draining pods of the wanted revision that are missed: the latest first, since it has lost the least.

    What a person drained by hand stays drained.
    """
    missing = view.amounts.replicas - view.target_staying
    if missing <= 0 or view.blocked or view.target is None:
        return set()
    own = (DrainReason.ROLLOUT, DrainReason.SCALE_IN)
    mine = [(p.drain.since, p) for p in view.target_pods if p.state == names.DRAINING and p.drain is not None]
    mine = [(since, p) for since, p in mine if p.drain is not None and p.drain.reason in own]
    mine.sort(key=lambda item: (-item[0], item[1].name))
    return {p.uid for _, p in mine[:missing]}


def _grow(draft: _Draft) -> None:
    view = draft.view
    target = view.target
    if target is None:
        return
    if target.replicas == 0 and not view.target_pods and _to_refresh(view, target):
        draft.actions.append(CreateRevision(target.revision, view.source, 0, refresh=True))
        return
    room = _room(view, draft.returning)
    if room:
        draft.actions.append(Scale(target.name, target.replicas + room, _kept(view, target), "pods wanted"))


def _hold_count(draft: _Draft) -> None:
    """Paused in the middle of a rollout: no pod changes its revision, but there are as many as are wanted."""
    view = draft.view
    staying = sum(view.staying(d) for d in view.s.deployments)
    if staying < view.amounts.replicas:
        room = min(view.amounts.replicas - staying - draft.returning, view.amounts.most_pods - view.total)
        standing = [d for d in view.s.deployments if view.staying(d) and not d.deleting]
        if room > 0 and standing:
            newest = max(standing, key=lambda d: (d is view.target, d.created, d.name))
            draft.actions.append(Scale(newest.name, newest.replicas + room, _kept(view, newest), "pods wanted"))
    elif staying > view.amounts.most_pods:
        spare = len(view.available) - view.amounts.least_serving
        group = victims.surplus_while_paused(view)
        limit = staying - view.amounts.replicas
        limit -= _release_empty(draft, group, limit)
        if limit > 0 and not draft.actions:
            _withdraw(draft, group, limit, spare)


def _kept(view: View, d: Deployment) -> frozenset[str]:
    present = {p.uid for p in view.s.pods}
    return frozenset(uid for uid in d.released if uid in present)


def _to_refresh(view: View, target: Deployment) -> bool:
    return outdated(view, target) or target.grace_seconds != grace_period(view.s.spec).seconds


def outdated(view: View, target: Deployment) -> bool:
    """Whether today's operator and drain numbers would render this revision in another way."""
    owner = render.Owner(view.s.namespace, view.s.name, view.s.uid)
    return target.rendered != render.digest(owner, view.s.spec, target.revision)


def _shrink(draft: _Draft) -> None:
    view = draft.view
    floor = view.amounts.least_serving
    spare = len(view.available) - floor
    surplus = view.target_staying - view.amounts.replicas
    for group in victims.outgoing(view):
        rollout = group.reason is DrainReason.ROLLOUT
        limit = len(group.asked) + len(group.empty) if rollout else surplus
        limit -= _release_empty(draft, group, limit)
        if draft.actions or limit <= 0:
            # What holds no work goes first and alone, so that the counts below stay true.
            return
        spare -= _withdraw(draft, group, limit, spare)


def _release_empty(draft: _Draft, group: victims.Candidates, limit: int) -> int:
    """Pods that hold no work go at once, in one PATCH; none goes while the new revision fails to come up."""
    view = draft.view
    if group.reason is DrainReason.ROLLOUT and view.failing:
        return 0
    chosen = by_age(group.empty)[-limit:] if limit < len(group.empty) else by_age(group.empty)
    for pod in chosen:
        record = drains.begin(view, pod, group.reason)
        ended = drains.no_work(view, record)
        draft.actions.append(MarkDrained(pod.name, pod.uid, pod.state, None, ended))
    return len(chosen)


def _withdraw(draft: _Draft, group: victims.Candidates, limit: int, spare: int) -> int:
    """Begin drains; returns how many serving pods that takes."""
    view = draft.view
    unready = min(_unready_allowed(view, group), limit)
    serving = min(max(spare, 0), limit - min(unready, len(group.unready)), len(group.serving))
    if view.s.locks_missing:
        busy = len(view.draining)
        unready, serving = (min(unready, 1 - busy), 0) if group.unready else (0, min(serving, 1 - busy))
    if unready <= 0 and serving <= 0:
        return 0
    asked = group.unready * (unready > 0) + group.serving * (serving > 0)
    open_questions = victims.questions(view, asked)
    if open_questions:
        draft.questions.extend(open_questions)
        return 0
    if not victims.reachable(view):
        draft.unreachable = True
        draft.wake.append(POLL_SECONDS)
        return 0
    chosen = victims.choose(view, group.unready, max(unready, 0)) + victims.choose(view, group.serving, max(serving, 0))
    for pod in chosen:
        draft.actions.append(Withdraw(pod.name, pod.uid, drains.begin(view, pod, group.reason)))
    return sum(p.ready for p in chosen)


def _unready_allowed(view: View, group: victims.Candidates) -> int:
    """NotReady pods that may still work may also recover: all of them go only once the new revision stands."""
    if not group.unready:
        return 0
    if group.reason is not DrainReason.ROLLOUT:
        return len(group.unready)
    if any(p in view.available for p in view.target_pods) and not view.failing:
        return len(group.unready)
    lost = sum(not p.ready for p in view.draining)
    return max(min(view.amounts.unavailable - lost, len(group.unready)), 0)


def _prune(draft: _Draft) -> None:
    """Old revisions without pods stay for undo, up to revisionHistoryLimit; the newest are kept."""
    view = draft.view
    standing = {p.revision for p in view.s.pods}
    idle = [d for d in view.old_deployments if d.replicas == 0 and d.revision not in standing and not d.deleting]
    idle.sort(key=lambda d: (d.created, d.name))
    for d in idle[: max(len(idle) - view.s.spec.rollout.revision_history_limit, 0)]:
        draft.actions.append(DeleteDeployment(d.name, d.uid))


def _wake(draft: _Draft) -> None:
    view = draft.view
    least = view.s.spec.rollout.min_ready_seconds
    for pod in view.target_pods:
        if pod.ready_since is not None and view.s.now - pod.ready_since < least:
            draft.wake.append(pod.ready_since + least - view.s.now + 0.05)
    limit = view.s.spec.rollout.progress_deadline_seconds
    for pod in view.target_pods:
        if not pod.ready and view.s.now - pod.created <= limit:
            draft.wake.append(pod.created + limit - view.s.now + 0.05)
    if draft.orders or draft.questions or draft.unreachable:
        draft.wake.append(POLL_SECONDS)

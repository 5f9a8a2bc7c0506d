"""The counts of the Deployments: lowered by what is drained, raised by what is missing.

One free place becomes one new pod: min(R - staying, R + S - total).
"""

from tidegate.api.conditions import BlockedReason, PodState
from tidegate.core.state.pods import by_age
from tidegate.core.state.snapshot import Deployment, Pod, ReplicaSet
from tidegate.core.state.view import View

from . import candidates
from .actions import Action, DeletePod, Scale
from .blocked import Blocked
from .disruption import release_empty, spare_serving, withdraw
from .step import Step


def room_for(view: View, returning: int) -> int:
    """How many pods of the wanted revision may be asked for now: those that are missed, as far as there are places."""
    missing = view.limits.replicas - view.target_staying - returning
    return max(min(missing, view.limits.most_pods - view.total), 0)


def lower_drained(view: View) -> Step:
    """Lower each Deployment by its drained pods, each once; delete those that stand though they are counted."""
    found: list[Action] = []
    for d in view.snapshot.deployments:
        alive = view.pods_of(d)
        standing = by_age(p for p in alive if p.state == PodState.DRAINED)
        counted = sum(p.uid in d.released for p in standing)
        uncounted = [p for p in standing if p.uid not in d.released] + _counted_by_mistake(view, d, counted)
        if uncounted:
            released = _kept(view, d) | {p.uid for p in uncounted}
            why = ", ".join(p.name for p in by_age(uncounted))
            undrained = len(alive) - len(standing)
            # Where more pods stand than are asked for, the drained ones are the surplus: lowered, others would be.
            count = max(d.replicas - len(uncounted), min(d.replicas, undrained))
            found.append(_scale(d, count, released, f"drained: {why}"))
        elif standing and (settled := _settled(view, d)) is not None:
            first = standing[0]
            found.append(DeletePod(first.name, first.uid, settled.name, d.replicas, len(alive)))
    drained = tuple(by_age(p for p in view.alive if p.state == PodState.DRAINED))
    return Step(tuple(found), blocked=(Blocked(BlockedReason.POD_DRAINED, drained),) if drained else ())


def _counted_by_mistake(view: View, d: Deployment, counted: int) -> list[Pod]:
    """Drained pods that go before they were counted, while as many that were counted stand in their place.

    Of two pods that were drained at the same moment the ReplicaSet may take either for the lowering that counted one.
    Deleting the other as well would start a pod that nobody wants. They are counted together with those that stand:
    a moment later they may be gone, and nobody could tell any more.
    """
    if not counted or len(view.pods_of(d)) > d.replicas or _settled(view, d) is None:
        return []
    going = [
        p for p in view.snapshot.pods if p.revision == d.revision and p.state == PodState.DRAINED and p.terminating
    ]
    return by_age(p for p in going if p.uid not in d.released)[:counted]


def reclaim(view: View, scaled: frozenset[str]) -> Step:
    """Take back what was asked for and is refused: pods that quota or admission forbids hold places for ever.

    `scaled` names the Deployments that this pass writes already.
    """
    found: list[Action] = []
    for d in view.snapshot.deployments:
        unfilled = d.replicas - len(view.pods_of(d))
        if unfilled <= 0 or not d.failure or d.name in scaled:
            continue
        if view.target is None or d.uid != view.target.uid:
            surplus = unfilled if view.target is not None else 0
        else:
            surplus = min(unfilled, view.target_staying - view.limits.replicas)
        if surplus > 0:
            found.append(_scale(d, d.replicas - surplus, _kept(view, d), "refused pods not needed"))
    return Step(tuple(found))


def _scale(d: Deployment, replicas: int, released: frozenset[str], why: str) -> Scale:
    return Scale(d.name, replicas, released, why, d.uid, d.version)


def _settled(view: View, d: Deployment) -> ReplicaSet | None:
    """The ReplicaSet, once it has seen the Deployment's present count: then a DELETE makes no replacement."""
    own = [r for r in view.snapshot.replica_sets if r.deployment_uid == d.uid and r.replicas]
    own = own or [r for r in view.snapshot.replica_sets if r.deployment_uid == d.uid]
    good = d.observed and len(own) == 1 and own[0].observed and own[0].replicas == d.replicas
    return own[0] if good else None


def _kept(view: View, d: Deployment) -> frozenset[str]:
    present = {p.uid for p in view.snapshot.pods}
    return frozenset(uid for uid in d.released if uid in present)


def grow(view: View, returning: int) -> Step:
    """Raise the wanted revision by the free places; `returning` pods that drain will serve again."""
    room = room_for(view, returning)
    if view.target is None or not room:
        return Step()
    count = view.target.replicas + room
    return Step((_scale(view.target, count, _kept(view, view.target), "pods wanted"),))


def hold_count(view: View, returning: int) -> Step:
    """Paused in the middle of a rollout: no pod changes its revision, but there are as many as are wanted."""
    step = Step()
    staying = sum(view.staying(d) for d in view.snapshot.deployments)
    if staying < view.limits.replicas:
        room = min(view.limits.replicas - staying - returning, view.limits.most_pods - view.total)
        standing = [d for d in view.snapshot.deployments if view.staying(d) and not d.deleting]
        if room > 0 and standing:
            newest = max(standing, key=lambda d: (d is view.target, d.created, d.name))
            step += Step((_scale(newest, newest.replicas + room, _kept(view, newest), "pods wanted"),))
    # What the surge brought stays; without both revisions there is none, and more than is wanted is a scale-in.
    surged = view.target_staying and staying > view.target_staying
    if staying > (view.limits.most_pods if surged else view.limits.replicas):
        group = candidates.surplus_while_paused(view)
        limit = staying - view.limits.replicas
        released = release_empty(view, group, limit)
        step += released
        limit -= len(released.actions)
        if limit > 0 and not step.changes_counts:
            step += withdraw(view, group, limit, spare_serving(view))
    return step

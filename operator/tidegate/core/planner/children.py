"""The objects around the pods: Secret, Service, PodDisruptionBudget, and the Deployments' birth and end."""

from tidegate.api.conditions import PodState
from tidegate.api.resource import DisruptionMode
from tidegate.core.render import objects
from tidegate.core.state.pods import no_work
from tidegate.core.state.snapshot import Deployment, Pod
from tidegate.core.state.view import View

from . import replicas, revision
from .actions import Action, Adopt, ApplyChild, CreateRevision, DeleteChild, DeleteDeployment, EnsureSecret
from .step import Step


def ensure_children(view: View) -> Step:
    """Adopt what is ours without a controller, then keep the objects around the pods; create a new revision."""
    snapshot = view.snapshot
    adopted = Step(tuple(Adopt(d.name, d.uid) for d in snapshot.deployments if not d.adopted and not d.deleting))
    if view.cannot_start:
        return adopted
    found: list[Action] = []
    owner = objects.Owner(snapshot.namespace, snapshot.name, snapshot.uid)
    if not snapshot.has_secret:
        found.append(EnsureSecret(objects.secret_name(snapshot.name)))
    wanted = objects.service(owner, snapshot.spec)
    if snapshot.spec.service.create:
        if not objects.includes(snapshot.live_service or {}, wanted):
            found.append(ApplyChild("Service", wanted["metadata"]["name"], wanted))
    elif snapshot.live_service is not None:
        meta = snapshot.live_service["metadata"]
        found.append(DeleteChild("Service", meta["name"], meta["uid"]))
    wanted = objects.disruption_budget(owner, snapshot.spec, unready_are_idle=_unready_are_idle(view))
    if not objects.includes(snapshot.live_budget or {}, wanted):
        found.append(ApplyChild("PodDisruptionBudget", snapshot.name, wanted))
    if view.target is None:
        first = revision.name_hash(view.source, (d.revision for d in snapshot.deployments))
        count = 0 if view.paused else replicas.room_for(view, 0)
        found.append(CreateRevision(first, view.source, count))
    return adopted + Step(tuple(found))


def _unready_are_idle(view: View) -> bool:
    """Whether pods may be evicted for not being Ready: they crash or start, and hold up the drain of their node.

    Only where the budget would refuse, as it does while too few others are healthy. Ready pods are protected by the
    budget either way. Under Hold no pod that can be working may be evicted, nor one that stops being Ready before the
    budget is written again: so none of the service's may be able to.
    """
    undrained = [p for p in view.alive if p.state in (PodState.SERVING, PodState.DRAINING)]
    unready = [p for p in undrained if not p.ready]
    if view.snapshot.spec.disruption.mode is DisruptionMode.HOLD:
        unready = undrained
    elif len(undrained) - len(unready) >= view.snapshot.spec.replicas - 1:
        return False
    return bool(unready) and all(_cannot_work(pod) for pod in unready)


def _cannot_work(pod: Pod) -> bool:
    """By what the kubelet says alone: what a pod says itself holds for a moment only."""
    return no_work(pod, None, 0.0) is not None


def refresh(view: View) -> Step:
    """Write the template of the wanted revision anew while it stands at 0: an undo gets today's rendering."""
    target = view.target
    if target is None or target.replicas or view.target_pods:
        return Step()
    if outdated(view, target) or target.grace_seconds != view.grace.seconds:
        return Step((CreateRevision(target.revision, view.source, 0, True, target.uid, target.version),))
    return Step()


def outdated(view: View, target: Deployment) -> bool:
    """Whether today's operator and drain numbers would render this revision in another way."""
    owner = objects.Owner(view.snapshot.namespace, view.snapshot.name, view.snapshot.uid)
    return target.rendered != objects.digest(owner, view.snapshot.spec, target.revision, view.snapshot.gateway_image)


def prune(view: View) -> Step:
    """Old revisions without pods stay for undo, up to revisionHistoryLimit; the newest are kept."""
    standing = {p.revision for p in view.snapshot.pods if p.alive or p.terminating}
    idle = [d for d in view.old_deployments if d.replicas == 0 and d.revision not in standing and not d.deleting]
    idle.sort(key=lambda d: (d.created, d.name))
    beyond = idle[: max(len(idle) - view.snapshot.spec.rollout.revision_history_limit, 0)]
    return Step(tuple(DeleteDeployment(d.name, d.uid) for d in beyond))

"""The objects around the pods: Secret, Service, PodDisruptionBudget, and the Deployments' birth and end."""

from tidegate.core.render import objects
from tidegate.core.state.snapshot import Deployment
from tidegate.core.state.view import View

from . import replicas, revision
from .actions import Adopt, ApplyChild, CreateRevision, DeleteChild, DeleteDeployment, EnsureSecret
from .draft import Draft


def ensure_children(draft: Draft) -> None:
    view = draft.view
    s = view.snapshot
    for d in s.deployments:
        if not d.adopted and not d.deleting:
            draft.actions.append(Adopt(d.name, d.uid))
    if view.blocked:
        return
    owner = objects.Owner(s.namespace, s.name, s.uid)
    if not s.has_secret:
        draft.actions.append(EnsureSecret(objects.secret_name(s.name)))
    wanted = objects.service(owner, s.spec)
    if s.spec.service.create:
        if not objects.includes(s.live_service or {}, wanted):
            draft.actions.append(ApplyChild("Service", wanted["metadata"]["name"], wanted))
    elif s.live_service is not None:
        meta = s.live_service["metadata"]
        draft.actions.append(DeleteChild("Service", meta["name"], meta["uid"]))
    wanted = objects.disruption_budget(owner, s.spec)
    if not objects.includes(s.live_budget or {}, wanted):
        draft.actions.append(ApplyChild("PodDisruptionBudget", s.name, wanted))
    if view.target is None:
        first = revision.name_hash(view.source, (d.revision for d in s.deployments))
        count = 0 if view.paused else replicas.room_for(view, 0)
        draft.actions.append(CreateRevision(first, view.source, count))


def refresh(draft: Draft) -> None:
    """Write the template of the wanted revision anew while it stands at 0: an undo gets today's rendering."""
    view = draft.view
    target = view.target
    if target is None or target.replicas or view.target_pods:
        return
    if outdated(view, target) or target.grace_seconds != view.grace.seconds:
        draft.actions.append(CreateRevision(target.revision, view.source, 0, True, target.uid, target.version))


def outdated(view: View, target: Deployment) -> bool:
    """Whether today's operator and drain numbers would render this revision in another way."""
    owner = objects.Owner(view.snapshot.namespace, view.snapshot.name, view.snapshot.uid)
    return target.rendered != objects.digest(owner, view.snapshot.spec, target.revision, view.snapshot.gateway_image)


def prune(draft: Draft) -> None:
    """Old revisions without pods stay for undo, up to revisionHistoryLimit; the newest are kept."""
    view = draft.view
    standing = {p.revision for p in view.snapshot.pods if p.alive or p.terminating}
    idle = [d for d in view.old_deployments if d.replicas == 0 and d.revision not in standing and not d.deleting]
    idle.sort(key=lambda d: (d.created, d.name))
    for d in idle[: max(len(idle) - view.snapshot.spec.rollout.revision_history_limit, 0)]:
        draft.actions.append(DeleteDeployment(d.name, d.uid))

"""How things end: the garbage collector, orphans, and a namespace that goes."""

from conformance.children import LINGERING, gone, look, make_budget, make_revision, make_routes, make_service, pretend
from conformance.kubernetes import Kubernetes, eventually, refused
from conformance.rows import Rows
from tidegate.api import names
from tidegate.api.errors import Denied, NotFound
from tidegate.cluster import gather, project
from tidegate.cluster.drain_times import DrainTimesKeeper
from tidegate.cluster.port import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    EVENTS,
    LLM_SERVICES,
    NAMESPACES,
    PDBS,
    PODS,
    REPLICASETS,
    SECRETS,
    SERVICES,
    Object,
)
from tidegate.core.drain_time.drain_times import DrainTimes
from tidegate.core.render import objects

ROWS = Rows()
OWNER = "core.render.objects:Owner.reference"
CHILDREN = (DEPLOYMENTS, REPLICASETS, PODS, SERVICES, PDBS, SECRETS, CONFIG_MAPS)


async def _secret(k8s: Kubernetes, owner: objects.Owner) -> Object:
    metadata = owner.metadata(objects.secret_name(owner.name))
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": {"current": "eA=="}}
    return await k8s.cluster.create(SECRETS, k8s.namespace, body)


async def _ended(k8s: Kubernetes) -> None:
    async def missing() -> bool:
        return k8s.name not in {item["metadata"]["name"] for item in await k8s.find(LLM_SERVICES)}

    await eventually("the LLMService is gone", missing)


async def _all_gone(k8s: Kubernetes) -> None:
    async def none() -> bool:
        left = [raw for kind in CHILDREN for raw in await k8s.find(kind, f"{names.SERVICE}={k8s.name}")]
        return not left

    await eventually("every child is gone", none)


@ROWS.row("with an LLMService go all its children, serving pods too, though the lock holds them", OWNER)
async def _(k8s: Kubernetes) -> None:
    made = await make_revision(k8s, 2)
    await make_routes(made)
    await make_budget(made)
    await _secret(k8s, made.owner)
    await DrainTimesKeeper(k8s.cluster).write(made.owner, DrainTimes(), 0.0)
    (pod, _) = await made.pods()
    await pretend(k8s, pod)
    await refused(k8s.delete(PODS, pod["metadata"]["name"], propagationPolicy="Background"), Denied)
    await k8s.delete(LLM_SERVICES, k8s.name, propagationPolicy="Background")
    await _all_gone(k8s)


@ROWS.row("an LLMService deleted in the foreground takes its children with it too", OWNER)
async def _(k8s: Kubernetes) -> None:
    made = await make_revision(k8s, 1)
    (pod,) = await made.pods()
    await pretend(k8s, pod)
    await k8s.delete(LLM_SERVICES, k8s.name, propagationPolicy="Foreground")
    await _all_gone(k8s)

    await _ended(k8s)


@ROWS.row(
    "an LLMService deleted as an orphan's parent leaves its children, without an owner", "cluster.gather:orphaned"
)
async def _(k8s: Kubernetes) -> None:
    made = await make_service(k8s)
    # Before the others: a child that the garbage collector has not heard of yet it collects instead.
    await _secret(k8s, made.owner)
    await made.apply(made.body(1))
    (pod,) = await made.have(1)
    await k8s.delete(LLM_SERVICES, k8s.name, propagationPolicy="Orphan")

    await _ended(k8s)
    live = await made.deployment()
    assert gather.orphaned(live)
    assert gather.orphaned(await k8s.read(SECRETS, objects.secret_name(k8s.name)))
    assert gather.conflict_over(live, made.owner, "Deployment") is None
    assert (await look(k8s, pod)).alive


@ROWS.row(
    "an orphaned Deployment is adopted by the next LLMService of its name, and no pod moves",
    "cluster.execute:Executor._adopt",
)
async def _(k8s: Kubernetes) -> None:
    made = await make_revision(k8s, 1)
    (pod,) = await made.pods()
    await k8s.delete(LLM_SERVICES, k8s.name, propagationPolicy="Orphan")

    await _ended(k8s)
    fresh = await make_service(k8s)

    async def adopted() -> Object:
        live = await made.deployment()
        return await k8s.cluster.patch(DEPLOYMENTS, k8s.namespace, made.name, gather.adoption(live, fresh.owner))

    answer = await eventually("nothing comes in between", adopted)
    assert project.deployment(answer, fresh.owner.uid).adopted
    assert (await look(k8s, pod)).alive
    await k8s.delete(LLM_SERVICES, k8s.name)
    await _all_gone(k8s)


@ROWS.row("a child made for an LLMService that is gone is collected", "cluster.execute:Executor._may_create")
async def _(k8s: Kubernetes) -> None:
    made = await make_service(k8s)
    await k8s.delete(LLM_SERVICES, k8s.name)

    await _ended(k8s)
    await made.apply(made.body(0))
    await _secret(k8s, made.owner)
    await _all_gone(k8s)


@ROWS.row("an LLMService that is deleted is gone or says that it goes", "controller.reconciler:Reconciler.reconcile")
async def _(k8s: Kubernetes) -> None:
    await make_service(k8s)
    await k8s.delete(LLM_SERVICES, k8s.name)
    try:
        assert (await k8s.read(LLM_SERVICES, k8s.name))["metadata"]["deletionTimestamp"]
    except NotFound:
        return


@ROWS.row(
    "a namespace that goes says so, takes serving pods with it, and lets nothing be made in it",
    "cluster.execute:Executor._may_create",
)
async def _(k8s: Kubernetes) -> None:
    there = await k8s.elsewhere()
    made = await make_revision(there, 1, "prompt", **LINGERING)
    (pod,) = await made.running(1)
    await there.delete(NAMESPACES, there.namespace)
    live = await there.cluster.get(NAMESPACES, None, there.namespace)
    assert live["metadata"]["deletionTimestamp"]
    for call in (
        _secret(there, made.owner),
        there.cluster.create(EVENTS, there.namespace, _event(there)),
        make_routes(made),
        _another(there, made.body(1)),
    ):
        error = await refused(call, Denied)
        assert "because it is being terminated" in str(error)
    await gone(there, pod)

    async def ended() -> bool:
        try:
            await there.cluster.get(NAMESPACES, None, there.namespace)
        except NotFound:
            return True
        return False

    await eventually("the namespace is gone", ended)


async def _another(k8s: Kubernetes, body: Object) -> Object:
    """Another Deployment in the same namespace."""
    name = f"{body['metadata']['name']}-2"
    body = {**body, "metadata": {**body["metadata"], "name": name}}
    return await k8s.cluster.apply(DEPLOYMENTS, k8s.namespace, name, body, manager=names.FIELD_MANAGER)


def _event(k8s: Kubernetes) -> Object:
    about = {"apiVersion": names.API_VERSION, "kind": names.KIND, "namespace": k8s.namespace, "name": k8s.name}
    metadata = {"name": f"{k8s.name}.1", "namespace": k8s.namespace}
    return {"metadata": metadata, "involvedObject": about, "reason": "X", "message": "x", "type": "Normal"}

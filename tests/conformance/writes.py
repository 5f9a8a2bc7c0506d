"""What becomes of the operator's writes: preconditions, patches, deletes, and what an answer says."""

from conformance.children import (
    drain_record,
    look,
    make_revision,
    make_routes,
    make_service,
    pretend,
    relabel,
    sealing,
    withdrawal,
)
from conformance.kubernetes import Kubernetes, eventually, refused
from conformance.rows import Rows
from tidegate.api import names
from tidegate.api.conditions import PodState
from tidegate.api.errors import Conflict, NotFound
from tidegate.cluster import gather, project
from tidegate.cluster.drain_times import DrainTimesKeeper, name_of
from tidegate.cluster.events import EventRecorder
from tidegate.cluster.port import CONFIG_MAPS, DEPLOYMENTS, EVENTS, LLM_SERVICES, PODS, SECRETS, Object
from tidegate.core.drain_time.drain_times import DrainTimes
from tidegate.core.planner import actions as a
from tidegate.core.render import objects
from tidegate.core.state import snapshot

ROWS = Rows()
OPERATIONS = "cluster.execute:operations"


async def _pod(k8s: Kubernetes) -> Object:
    made = await make_revision(k8s, 1)
    return (await made.pods())[0]


@ROWS.row("a state is not changed on a pod that has changed since it was looked at", OPERATIONS)
async def _(k8s: Kubernetes) -> None:
    pod = await _pod(k8s)
    await pretend(k8s, pod)
    await refused(relabel(k8s, withdrawal(pod)), Conflict)
    assert (await look(k8s, pod)).state == PodState.SERVING


@ROWS.row("a state is changed, with the drain's record, on a pod that is as it was looked at", OPERATIONS)
async def _(k8s: Kubernetes) -> None:
    pod = await _pod(k8s)
    answer = await relabel(k8s, withdrawal(pod))
    assert project.pod(answer) == await look(k8s, pod)
    assert project.pod(answer).state == PodState.DRAINING
    assert project.pod(answer).drain == drain_record()


@ROWS.row("a state is not changed on another pod of the same name", OPERATIONS)
async def _(k8s: Kubernetes) -> None:
    pod = await _pod(k8s)
    meta = pod["metadata"]
    other = a.Withdraw(meta["name"], "another-uid", drain_record(), meta["resourceVersion"])
    await refused(relabel(k8s, other), Conflict)
    assert (await look(k8s, pod)).state == PodState.SERVING


@ROWS.row("a state is not changed on a pod that is in another state by now", OPERATIONS)
async def _(k8s: Kubernetes) -> None:
    pod = await _pod(k8s)
    await relabel(k8s, withdrawal(pod))
    await refused(relabel(k8s, withdrawal(pod, version="")), Conflict)


@ROWS.row("a drain is not ended on a pod whose record is of another drain, or gone", OPERATIONS)
async def _(k8s: Kubernetes) -> None:
    pod = await _pod(k8s)
    drained = await relabel(k8s, withdrawal(pod))
    for other in ('{"id":"d2"}', None):
        await k8s.merge(PODS, pod["metadata"]["name"], {"metadata": {"annotations": {names.DRAIN: other}}})
        await refused(relabel(k8s, sealing(drained)), Conflict)
        assert (await look(k8s, pod)).state == PodState.DRAINING


@ROWS.row("a drain is undone: the state goes back, the record goes", OPERATIONS)
async def _(k8s: Kubernetes) -> None:
    pod = await _pod(k8s)
    held = project.pod(await relabel(k8s, withdrawal(pod)))
    assert held.drain is not None
    read = project.pod(await relabel(k8s, a.Restore(held.name, held.uid, held.drain)))
    assert (read.state, read.drain) == (PodState.SERVING, None)


@ROWS.row("a drain whose record is gone is not undone", OPERATIONS)
async def _(k8s: Kubernetes) -> None:
    pod = await _pod(k8s)
    await relabel(k8s, withdrawal(pod))
    await k8s.merge(PODS, pod["metadata"]["name"], {"metadata": {"annotations": {names.DRAIN: None}}})
    unread = snapshot.DrainRecord("d1", "i1", "Rollout", 0.0, None)
    await refused(relabel(k8s, a.Restore(pod["metadata"]["name"], pod["metadata"]["uid"], unread)), Conflict)
    assert (await look(k8s, pod)).state == PodState.DRAINING


@ROWS.row("a drain ends in one PATCH with its outcome and the lowest deletion cost", OPERATIONS)
async def _(k8s: Kubernetes) -> None:
    pod = await _pod(k8s)
    ended = await relabel(k8s, sealing(await relabel(k8s, withdrawal(pod))))
    read = project.pod(ended)
    assert read.state == PodState.DRAINED
    assert read.outcome is not None
    assert read.outcome.outcome == "Drained"
    assert ended["metadata"]["annotations"][names.DELETION_COST] == names.LOWEST_COST


@ROWS.row("a patch of what is not there says so", "cluster.execute:Executor.execute")
async def _(k8s: Kubernetes) -> None:
    pod = await _pod(k8s)
    missing = a.Withdraw(f"{k8s.name}-none", pod["metadata"]["uid"], drain_record())
    await refused(relabel(k8s, missing), NotFound)


@ROWS.row(
    "a delete with the uid of another object is a conflict, and the object stays", "cluster.client:ApiCluster.delete"
)
async def _(k8s: Kubernetes) -> None:
    pod = await _pod(k8s)
    await relabel(k8s, sealing(pod))
    name = pod["metadata"]["name"]
    await refused(k8s.cluster.delete(PODS, k8s.namespace, name, uid="another-uid"), Conflict)
    assert not (await look(k8s, pod)).terminating


@ROWS.row("a delete of what is not there says so", "cluster.execute:Executor.execute")
async def _(k8s: Kubernetes) -> None:
    await refused(k8s.cluster.delete(PODS, k8s.namespace, f"{k8s.name}-none", uid="u"), NotFound)


@ROWS.row(
    "a read of what is not there says so", "cluster.execute:Executor._must_be_free", "cluster.keys:DrainKeys._read"
)
async def _(k8s: Kubernetes) -> None:
    for kind in (DEPLOYMENTS, SECRETS, PODS):
        await refused(k8s.cluster.get(kind, k8s.namespace, f"{k8s.name}-none"), NotFound)


@ROWS.row("a Secret that is there is not created again", "cluster.keys:DrainKeys.ensure")
async def _(k8s: Kubernetes) -> None:
    made = await make_service(k8s)
    metadata = made.owner.metadata(objects.secret_name(k8s.name))
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "type": "Opaque",
        "data": {"current": "Zmlyc3Q="},
    }
    await k8s.cluster.create(SECRETS, k8s.namespace, body)
    await refused(k8s.cluster.create(SECRETS, k8s.namespace, {**body, "data": {"current": "c2Vjb25k"}}), Conflict)
    held = await k8s.cluster.get(SECRETS, k8s.namespace, metadata["name"])
    assert held["data"] == {"current": "Zmlyc3Q="}
    assert project.controller(held)["uid"] == made.owner.uid


@ROWS.row("an object is adopted beside the owners that it has", "cluster.gather:adoption")
async def _(k8s: Kubernetes) -> None:
    made = await make_service(k8s)
    routes = await make_routes(made)
    other = {
        "apiVersion": "v1",
        "kind": "Service",
        "name": routes["metadata"]["name"],
        "uid": routes["metadata"]["uid"],
    }
    metadata = made.owner.metadata(objects.secret_name(k8s.name)) | {"ownerReferences": [other]}
    held = await k8s.create(SECRETS, {"metadata": metadata, "type": "Opaque", "data": {"current": "Zmlyc3Q="}})
    assert gather.orphaned(held)
    patch = gather.adoption(held, made.owner)
    held = await k8s.cluster.patch(SECRETS, k8s.namespace, metadata["name"], patch)
    assert project.controller(held)["uid"] == made.owner.uid
    assert [o["uid"] for o in held["metadata"]["ownerReferences"]] == [other["uid"], made.owner.uid]


@ROWS.row("an object without any owner is adopted, and not on an older view of it", "cluster.gather:adoption")
async def _(k8s: Kubernetes) -> None:
    made = await make_service(k8s)
    metadata = made.owner.metadata(objects.secret_name(k8s.name))
    del metadata["ownerReferences"]
    held = await k8s.create(SECRETS, {"metadata": metadata, "type": "Opaque", "data": {"current": "Zmlyc3Q="}})
    newer = await k8s.merge(SECRETS, metadata["name"], {"metadata": {"labels": {"note": "x"}}})
    name = metadata["name"]
    await refused(k8s.cluster.patch(SECRETS, k8s.namespace, name, gather.adoption(held, made.owner)), Conflict)
    held = await k8s.cluster.patch(SECRETS, k8s.namespace, name, gather.adoption(newer, made.owner))
    assert project.controller(held)["uid"] == made.owner.uid


@ROWS.row("of two that keep drain times each hears of the other's write", "cluster.drain_times:DrainTimesKeeper.write")
async def _(k8s: Kubernetes) -> None:
    owner = (await make_service(k8s)).owner
    one, other = DrainTimesKeeper(k8s.cluster), DrainTimesKeeper(k8s.cluster)
    assert (await one.read(owner, 0.0)) == (await other.read(owner, 0.0))
    await one.write(owner, DrainTimes(), 1.0)
    await refused(other.write(owner, DrainTimes(), 1.0), Conflict)
    first, second = await one.read(owner, 2.0), await other.read(owner, 2.0)
    assert (first.uid, first.version, first.trouble) == (second.uid, second.version, "")
    await k8s.merge(CONFIG_MAPS, name_of(owner.name), {"metadata": {"labels": {"note": "x"}}})
    await refused(one.write(owner, DrainTimes(), 3.0), Conflict)
    await one.read(owner, 4.0)
    await one.write(owner, DrainTimes(), 4.0)
    await refused(other.write(owner, DrainTimes(), 4.0), Conflict)


@ROWS.row("an Event is taken as it is written, and its name is taken then", "cluster.events:EventRecorder.__call__")
async def _(k8s: Kubernetes) -> None:
    made = await make_service(k8s)
    tell = EventRecorder(k8s.cluster, "tidegate", "here", lambda: 1_800_000_000.0)
    known = snapshot.Snapshot(0.0, k8s.namespace, k8s.name, made.owner.uid, 1, made.raw, made.spec)
    await tell(known, "Drained", "a pod", warning=True)

    async def written() -> list[Object]:
        found = await k8s.find(EVENTS)
        return [e for e in found if e["involvedObject"]["uid"] == made.owner.uid]

    (event,) = await eventually("the Event is there", written)
    assert (event["reason"], event["type"], event["count"]) == ("Drained", "Warning", 1)
    again = {key: event[key] for key in ("metadata", "involvedObject", "reason", "message", "type")}
    again["metadata"] = {key: event["metadata"][key] for key in ("name", "namespace")}
    await refused(k8s.cluster.create(EVENTS, k8s.namespace, again), Conflict)


@ROWS.row("each change of an object has a larger number as its resourceVersion", "cluster.store:Store.put")
async def _(k8s: Kubernetes) -> None:
    pod = await _pod(k8s)
    seen = [int(pod["metadata"]["resourceVersion"])]
    for step in range(3):
        change = {"metadata": {"annotations": {"note": str(step)}}}
        answer = await k8s.merge(PODS, pod["metadata"]["name"], change)
        seen.append(int(answer["metadata"]["resourceVersion"]))
    assert seen == sorted(set(seen))


@ROWS.row("a list is at least as new as all that it shows, and one in pieces is whole", "cluster.store:Store.replace")
async def _(k8s: Kubernetes) -> None:
    made = await make_revision(k8s, 3)
    selector = f"{names.SERVICE}={k8s.name}"
    found, version = await k8s.cluster.list(PODS, labels=selector, chunk=1)
    whole, later = await k8s.cluster.list(PODS, k8s.namespace, labels=selector)
    assert {p["metadata"]["uid"] for p in found} == {p["metadata"]["uid"] for p in whole}
    assert len(found) == len(await made.pods()) == 3
    assert max(int(p["metadata"]["resourceVersion"]) for p in found) <= int(version) <= int(later)
    assert {(p["apiVersion"], p["kind"]) for p in found} == {("v1", "Pod")}


@ROWS.row("a selector of two labels wants both, one of a key wants the key", "cluster.execute:Executor._delete_pod")
async def _(k8s: Kubernetes) -> None:
    made = await make_revision(k8s, 1)
    name, space = k8s.name, k8s.namespace
    for selector, count in (
        (made.labels, 1),
        (f"{names.SERVICE}={name},{names.REVISION}=other", 0),
        (f"{names.SERVICE}=other,{names.REVISION}={made.hash}", 0),
    ):
        found, _ = await k8s.cluster.list(PODS, space, labels=selector)
        assert len(found) == count, selector
    found, _ = await k8s.cluster.list(DEPLOYMENTS, space, labels=names.SERVICE)
    assert made.name in {d["metadata"]["name"] for d in found}
    await k8s.create(SECRETS, {"metadata": {"name": f"{name}-plain"}, "type": "Opaque"})
    services, _ = await k8s.cluster.list(LLM_SERVICES)
    assert name in {item["metadata"]["name"] for item in services if item["metadata"]["namespace"] == space}

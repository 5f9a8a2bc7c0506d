"""Deployments and ReplicaSets: who is made, who is counted, who is deleted, and when that is known."""

from conformance.children import (
    delete,
    gone,
    look,
    make_revision,
    make_service,
    pretend,
    relabel,
    seal,
    sealing,
    withdrawal,
)
from conformance.kubernetes import Kubernetes, eventually, for_a_while, refused
from conformance.rows import Rows
from tidegate.api import names
from tidegate.api.conditions import PodState
from tidegate.api.errors import Denied
from tidegate.cluster import project
from tidegate.cluster.port import DEPLOYMENTS, PODS, REPLICASETS, Object

ROWS = Rows()
LOWER = "core.planner.replicas:lower_drained"
SETTLED = "core.planner.replicas:_settled"
GATHER = "cluster.gather:_children"


@ROWS.row("a ReplicaSet and its pods carry the labels by which they are watched, and name their controllers", GATHER)
async def _(k8s: Kubernetes) -> None:
    made = await make_revision(k8s, 1)
    deployment, replica_set = await made.deployment(), await made.replica_set()
    (pod,) = await made.pods()
    assert project.controller(replica_set)["uid"] == deployment["metadata"]["uid"]
    assert project.controller(pod)["uid"] == replica_set["metadata"]["uid"]
    for raw in (replica_set, pod):
        assert {names.SERVICE: k8s.name, names.REVISION: made.hash}.items() <= raw["metadata"]["labels"].items()


@ROWS.row("a new pod serves by its template, with nobody's help", "core.state.view:View.serving")
async def _(k8s: Kubernetes) -> None:
    (pod,) = await (await make_revision(k8s, 1)).pods()
    read = project.pod(pod)
    assert (read.state, read.drain, read.outcome) == (PodState.SERVING, None, None)
    assert pod["metadata"]["annotations"][names.CONTAINER] == "server"
    assert read.contract_port == 9901
    assert read.created > 0


@ROWS.row("the answer to a changed count is not yet observed; its controllers say when they have seen it", SETTLED)
async def _(k8s: Kubernetes) -> None:
    made = await make_revision(k8s, 1)
    await made.observed()
    answer = await made.scale(2)
    assert not project.deployment(answer, "").observed
    await made.observed()
    replica_set = await made.replica_set()
    assert project.replica_set(replica_set).replicas == 2
    assert replica_set["metadata"]["annotations"]["deployment.kubernetes.io/desired-replicas"] == "2"


@ROWS.row("a Deployment's generation rises with its spec and with its annotations, not with labels", SETTLED)
async def _(k8s: Kubernetes) -> None:
    made = await make_revision(k8s, 1)
    first = (await made.deployment())["metadata"]["generation"]
    for change, risen in (
        ({"metadata": {"labels": {"note": "x"}}}, 0),
        ({"metadata": {"annotations": {"note": "x"}}}, 1),
        ({"metadata": {"annotations": {"note": "x"}}}, 1),
    ):
        assert (await k8s.merge(DEPLOYMENTS, made.name, change))["metadata"]["generation"] == first + risen
    assert (await made.scale(2))["metadata"]["generation"] == first + 2
    await made.observed()


@ROWS.row("a ReplicaSet's generation rises with its spec alone", SETTLED)
async def _(k8s: Kubernetes) -> None:
    made = await make_revision(k8s, 1)
    before = await made.replica_set()
    note = {"metadata": {"annotations": {"note": "x"}, "labels": {"note": "x"}}}
    noted = await k8s.merge(REPLICASETS, before["metadata"]["name"], note)
    assert noted["metadata"]["generation"] == before["metadata"]["generation"]
    await made.scale(2)
    await made.have(2)
    assert (await made.replica_set())["metadata"]["generation"] == before["metadata"]["generation"] + 1


@ROWS.row("a change of state moves no pod and starts none", "cluster.execute:operations")
async def _(k8s: Kubernetes) -> None:
    made = await make_revision(k8s, 2)
    before = await made.pods()
    await relabel(k8s, sealing(before[0]))
    await relabel(k8s, withdrawal(before[1]))
    home = project.controller(before[0])["uid"]

    async def same() -> bool:
        return [(p["metadata"]["uid"], project.controller(p)["uid"]) for p in await made.pods()] == [
            (p["metadata"]["uid"], home) for p in before
        ]

    await for_a_while("the same pods of the same ReplicaSet", same)
    assert (await made.replica_set())["status"]["replicas"] == 2


@ROWS.row("a lowered ReplicaSet deletes the drained pod", LOWER)
async def _(k8s: Kubernetes) -> None:
    made = await make_revision(k8s, 3)
    pods = await made.pods()
    for pod in pods:
        await pretend(k8s, pod)
    drained = pods[1]
    await seal(k8s, drained)
    await made.scale(2, drained)
    await gone(k8s, drained)
    assert {p["metadata"]["uid"] for p in await made.have(2)} == {pods[n]["metadata"]["uid"] for n in (0, 2)}


@ROWS.row("a lowered ReplicaSet picks a NotReady pod before the drained one, and is refused", LOWER, SETTLED)
async def _(k8s: Kubernetes) -> None:
    made = await make_revision(k8s, 2)
    busy, drained = await made.pods()
    await pretend(k8s, busy, ready=False)
    await pretend(k8s, drained)
    await seal(k8s, drained)
    await made.scale(1, drained)
    await made.observed()

    async def said() -> bool:
        conditions = ((await made.deployment()).get("status") or {}).get("conditions") or []
        failed = [c for c in conditions if c["type"] == "ReplicaFailure" and c["status"] == "True"]
        return [c["reason"] for c in failed] == ["FailedDelete"] and names.RELEASE in failed[0]["message"]

    await eventually("the refusal shows in the Deployment", said)
    assert len(await made.pods()) == 2
    # What only waits for a drain is no failure to tell the user about.
    assert project.deployment(await made.deployment(), "").failure == ""


@ROWS.row("a drained pod that stands though paid for, deleted by us, is not replaced", LOWER)
async def _(k8s: Kubernetes) -> None:
    made = await make_revision(k8s, 2)
    busy, drained = await made.pods()
    await pretend(k8s, busy, ready=False)
    await pretend(k8s, drained)
    await seal(k8s, drained)
    await made.scale(1, drained)
    await made.observed()
    await delete(k8s, drained)
    await gone(k8s, drained)

    async def alone() -> bool:
        return [p["metadata"]["uid"] for p in await made.pods()] == [busy["metadata"]["uid"]]

    await for_a_while("the busy pod stands alone", alone)


@ROWS.row("a drained pod deleted before its count was lowered is replaced at once", LOWER)
async def _(k8s: Kubernetes) -> None:
    made = await make_revision(k8s, 1)
    (pod,) = await made.pods()
    await relabel(k8s, sealing(pod))
    await delete(k8s, pod)
    await gone(k8s, pod)
    (fresh,) = await made.have(1)
    assert fresh["metadata"]["uid"] != pod["metadata"]["uid"]
    assert project.pod(fresh).state == PodState.SERVING


@ROWS.row(
    "a lowered ReplicaSet picks a pod without a node before a drained, NotReady one", "core.state.view:View.occupied"
)
async def _(k8s: Kubernetes) -> None:
    made = await make_revision(k8s, 1, "alone")
    (drained,) = await made.running(1)
    await k8s.behave(drained["metadata"]["name"], "not-ready")

    async def unready() -> bool:
        return not (await look(k8s, drained)).ready

    await eventually("it is NotReady", unready)
    await seal(k8s, drained)
    await made.scale(2)
    (waiting,) = [p for p in await made.have(2) if p["metadata"]["uid"] != drained["metadata"]["uid"]]
    await made.scale(1, drained)
    await gone(k8s, waiting)
    assert (await look(k8s, drained)).state == PodState.DRAINED


@ROWS.row("a failed pod is no replica: it is replaced, and stays", "core.state.snapshot:Pod.alive")
async def _(k8s: Kubernetes) -> None:
    made = await make_revision(k8s, 1)
    (pod,) = await made.pods()
    await pretend(k8s, pod, phase="Failed")

    async def replaced() -> bool:
        return pod["metadata"]["uid"] not in {p["metadata"]["uid"] for p in await made.have(1)}

    await eventually("another pod in its place", replaced)
    assert (await look(k8s, pod)).phase == "Failed"


@ROWS.row("pods that a quota forbids are told as FailedCreate in the Deployment", "core.planner.replicas:reclaim")
async def _(k8s: Kubernetes) -> None:
    there = await k8s.elsewhere()
    made = await make_service(there)
    await there.forbid_pods()
    await made.apply(made.body(1))

    async def told() -> bool:
        # A fresh namespace may refuse for want of its service account at first.
        return "exceeded quota" in project.deployment(await made.deployment(), "").failure

    await eventually("the refusal shows in the Deployment", told)
    assert await made.pods() == []


@ROWS.row("a template written anew at 0 makes another ReplicaSet, and the first stays at 0", SETTLED)
async def _(k8s: Kubernetes) -> None:
    made = await make_revision(k8s, 1)
    first = await made.replica_set()
    (pod,) = await made.pods()
    await relabel(k8s, sealing(pod))
    await made.scale(0, pod)
    await gone(k8s, pod)
    fresh = made.body(0)
    fresh["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] += 1
    await made.apply(fresh)
    await made.scale(1)
    (again,) = await made.have(1)
    second = await made.replica_set()
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    assert project.controller(again)["uid"] == second["metadata"]["uid"]
    assert (await k8s.read(REPLICASETS, first["metadata"]["name"]))["spec"]["replicas"] == 0
    assert project.replica_set(second).deployment_uid == project.replica_set(first).deployment_uid


@ROWS.row("the same template written anew at 0 keeps its ReplicaSet", SETTLED)
async def _(k8s: Kubernetes) -> None:
    made = await make_revision(k8s, 0)

    async def made_one() -> Object:
        return await made.replica_set()

    first = await eventually("its ReplicaSet", made_one)
    await made.apply(made.body(0))
    await made.scale(1)
    await made.have(1)
    assert (await made.replica_set())["metadata"]["uid"] == first["metadata"]["uid"]


@ROWS.row("a Deployment at 0 is deleted by its uid, and its ReplicaSet goes with it", "core.planner.children:prune")
async def _(k8s: Kubernetes) -> None:
    made = await make_revision(k8s, 0)

    async def made_one() -> Object:
        return await made.replica_set()

    await eventually("its ReplicaSet", made_one)
    live = await made.deployment()
    await k8s.cluster.delete(DEPLOYMENTS, k8s.namespace, made.name, uid=live["metadata"]["uid"])

    async def none() -> bool:
        return not await k8s.find(REPLICASETS, made.labels)

    await eventually("its ReplicaSet is gone", none)


@ROWS.row(
    "the policies refuse our writes as they do anybody's, in words for the user",
    "controller.reconciler:Reconciler._act",
)
async def _(k8s: Kubernetes) -> None:
    made = await make_revision(k8s, 1)
    (pod,) = await made.pods()
    await pretend(k8s, pod)
    meta = pod["metadata"]
    error = await refused(delete(k8s, pod), Denied)
    assert f"kubectl annotate pod {meta['name']} tidegate.dev/release=" in str(error)
    await seal(k8s, pod)
    undone = [
        {"op": "test", "path": "/metadata/uid", "value": meta["uid"]},
        {"op": "replace", "path": "/metadata/labels/tidegate.dev~1state", "value": PodState.SERVING.value},
    ]
    error = await refused(k8s.cluster.patch(PODS, k8s.namespace, meta["name"], undone), Denied)
    assert "cannot be changed from drained" in str(error)

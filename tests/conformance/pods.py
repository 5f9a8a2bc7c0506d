"""Pods on their nodes, as the operator's projection of them sees it: started, Ready, crashed, terminating."""

import asyncio

from conformance.children import LINGERING, delete, gone, look, make_revision, make_service, seal
from conformance.kubernetes import Kubernetes, eventually, for_a_while
from conformance.rows import Rows
from tidegate.api import names
from tidegate.cluster import project
from tidegate.cluster.lookups import Lookups
from tidegate.cluster.port import PODS, Object
from tidegate.core.state import snapshot
from tidegate.core.state.pods import FAILED_WAITING

ROWS = Rows()
NO_WORK = "core.state.view:View.holds_no_work"
FAILURE = "core.state.pods:failure"


async def _first(k8s: Kubernetes, conduct: str) -> Object:
    made = await make_service(k8s, conduct)  # type: ignore[arg-type]
    await made.apply(made.body(1))
    (pod,) = await made.have(1)
    return pod


@ROWS.row("a pod gets an address, starts, and is Ready, in this order", NO_WORK, "core.planner.drains:order")
async def _(k8s: Kubernetes) -> None:
    pod = await _first(k8s, "prompt")
    seen: list[snapshot.Pod] = []

    async def ready() -> bool:
        seen.append(await look(k8s, pod))
        return seen[-1].ready

    await eventually("the pod is Ready", ready)
    last = seen[-1]
    assert last.any_running
    assert last.container.running
    assert last.container.started
    assert last.container.run
    assert last.ip
    assert last.ready_since is not None
    assert last.scheduled is not None
    assert last.created <= last.scheduled <= last.ready_since
    # Never Ready before it has started, never started before it runs: each look proves it for its moment.
    assert all(p.container.started or not p.ready for p in seen)
    assert all(p.container.running or not p.container.started for p in seen)
    assert all(p.ip or not p.container.running for p in seen)


@ROWS.row("a container whose startup probe has not passed runs and has not started", NO_WORK)
async def _(k8s: Kubernetes) -> None:
    pod = await _first(k8s, "unstarted")

    async def running() -> bool:
        return (await look(k8s, pod)).container.running

    await eventually("its container runs", running)

    async def unstarted() -> bool:
        read = await look(k8s, pod)
        return read.phase == "Running" and not read.container.started and not read.ready

    await for_a_while("running, not started, not Ready", unstarted)


@ROWS.row("a container that has started and is not Ready says since when", "core.planner.candidates:_sort")
async def _(k8s: Kubernetes) -> None:
    pod = await _first(k8s, "never-ready")

    async def started() -> bool:
        return (await look(k8s, pod)).container.started

    await eventually("it has started", started)
    read = await look(k8s, pod)
    assert (read.ready, read.ready_since) == (False, None)
    assert read.unready_since is not None
    assert read.container.running


@ROWS.row(
    "a pod that turns NotReady keeps running, and its next Ready has a later time", "core.state.view:View.available"
)
async def _(k8s: Kubernetes) -> None:
    made = await make_revision(k8s, 1, "prompt")
    (pod,) = await made.running(1)
    name = pod["metadata"]["name"]
    first = (await look(k8s, pod)).ready_since
    # Times of conditions are whole seconds.
    await asyncio.sleep(1.1)
    await k8s.behave(name, "not-ready")

    async def unready() -> bool:
        return not (await look(k8s, pod)).ready

    await eventually("NotReady", unready)
    read = await look(k8s, pod)
    assert read.unready_since is not None
    assert first is not None
    assert read.unready_since > first
    assert (read.container.running, read.container.started, read.phase) == (True, True, "Running")
    await asyncio.sleep(1.1)
    await k8s.behave(name, "well")

    async def ready() -> float | None:
        return (await look(k8s, pod)).ready_since

    assert await eventually("Ready again", ready) > read.unready_since


@ROWS.row(
    "a crashed container says so, starts again under another run, and is Ready again",
    "drain.sessions:Sessions",
    FAILURE,
)
async def _(k8s: Kubernetes) -> None:
    made = await make_revision(k8s, 1, "prompt")
    (pod,) = await made.running(1)
    meta, lookups = pod["metadata"], Lookups(k8s.cluster)
    before = await look(k8s, pod)
    assert await lookups.container_run(k8s.namespace, meta["name"], meta["uid"]) == before.container.run
    await k8s.behave(meta["name"], "crash")

    async def restarted() -> bool:
        read = await look(k8s, pod)
        return read.container.restarts == 1 and read.ready

    await eventually("Ready after its crash", restarted)
    read = await look(k8s, pod)
    assert read.container.run not in ("", before.container.run)
    assert (read.container.exit_code, read.container.exit_reason) == (1, "Error")
    assert read.ip == before.ip
    assert await lookups.container_run(k8s.namespace, meta["name"], meta["uid"]) == read.container.run
    assert await lookups.container_run(k8s.namespace, meta["name"], "another-uid") == ""


@ROWS.row("a container that crashes again and again waits in CrashLoopBackOff with its exit code", FAILURE)
async def _(k8s: Kubernetes) -> None:
    pod = await _first(k8s, "crashing")

    async def backing_off() -> snapshot.Pod | None:
        read = await look(k8s, pod)
        return read if read.container.waiting_reason == "CrashLoopBackOff" else None

    read = await eventually("CrashLoopBackOff", backing_off)
    assert read.container.restarts >= 1
    assert read.container.exit_code == 1
    assert (read.phase, read.any_running, read.ready) == ("Running", False, False)


@ROWS.row("an image that is not to be had is told as a reason to wait, in a pod that is Pending", FAILURE)
async def _(k8s: Kubernetes) -> None:
    pod = await _first(k8s, "no-image")

    async def failing() -> snapshot.Pod | None:
        read = await look(k8s, pod)
        return read if read.container.waiting_reason in FAILED_WAITING else None

    read = await eventually("a reason that does not heal by waiting", failing)
    assert (read.phase, read.any_running, read.unschedulable) == ("Pending", False, "")
    assert read.container.waiting_message


@ROWS.row("a pod that fits no node says so, and has no address", "core.planner.observe:_any_unschedulable")
async def _(k8s: Kubernetes) -> None:
    pod = await _first(k8s, "homeless")

    async def told() -> str:
        return (await look(k8s, pod)).unschedulable

    assert "nodes are available" in await eventually("Unschedulable", told)
    read = await look(k8s, pod)
    assert (read.phase, read.ip, read.any_running, read.scheduled) == ("Pending", "", False, None)


@ROWS.row(
    "a pod that is deleted gets its own grace, still runs, and is gone in the end", "core.state.snapshot:Pod.alive"
)
async def _(k8s: Kubernetes) -> None:
    made = await make_revision(k8s, 1, "prompt", **LINGERING)
    (pod,) = await made.running(1)
    await seal(k8s, pod)
    await delete(k8s, pod)
    live = await k8s.read(PODS, pod["metadata"]["name"])
    assert live["metadata"]["deletionGracePeriodSeconds"] == pod["spec"]["terminationGracePeriodSeconds"]
    read = project.pod(live)
    assert (read.terminating, read.alive, read.phase) == (True, False, "Running")
    await gone(k8s, pod)


@ROWS.row("a second delete of a terminating pod changes nothing", "cluster.execute:Executor._delete_pod")
async def _(k8s: Kubernetes) -> None:
    made = await make_revision(k8s, 1, "prompt", **LINGERING)
    (pod,) = await made.running(1)
    await seal(k8s, pod)
    await delete(k8s, pod)
    first = await k8s.read(PODS, pod["metadata"]["name"])
    await delete(k8s, pod)
    again = await k8s.read(PODS, pod["metadata"]["name"])
    assert again["metadata"]["deletionTimestamp"] == first["metadata"]["deletionTimestamp"]


@ROWS.row("a pod without a node is gone at once when it is deleted", "cluster.execute:Executor._forget_pod")
async def _(k8s: Kubernetes) -> None:
    made = await make_revision(k8s, 1)
    (pod,) = await made.pods()
    await delete(k8s, pod)
    assert pod["metadata"]["uid"] not in {p["metadata"]["uid"] for p in await k8s.find(PODS)}


@ROWS.row(
    "a serving pod that is let go by its release is replaced while it still terminates", "core.state.view:View.lost"
)
async def _(k8s: Kubernetes) -> None:
    heard = await k8s.watch(PODS)
    made = await make_revision(k8s, 1, "prompt", **LINGERING)
    (pod,) = await made.running(1)
    name = pod["metadata"]["name"]
    await k8s.merge(PODS, name, {"metadata": {"annotations": {names.RELEASE: "its node burns"}}})
    assert (await look(k8s, pod)).release == "its node burns"
    await k8s.delete(PODS, name, propagationPolicy="Background")
    assert (await look(k8s, pod)).terminating
    (fresh,) = await made.have(1)
    await gone(k8s, pod)

    async def told() -> bool:
        return [event for event, _ in heard.of(name)][-1:] == ["DELETED"]

    await eventually("its end is told", told)
    order = [(event, raw["metadata"]["name"]) for event, raw in heard.events]
    assert order.index(("SEEN", fresh["metadata"]["name"])) < order.index(("DELETED", name))

    async def counted() -> bool:
        # At first the count of the pass in which the new one was not made yet.
        return bool((await made.replica_set())["status"]["replicas"] == 1)

    await eventually("the ReplicaSet counts one", counted)

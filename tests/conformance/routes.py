"""EndpointSlices: when a pod is in one, and when it has left."""

from typing import Any

from conformance.children import (
    LINGERING,
    Revision,
    gone,
    look,
    make_revision,
    make_routes,
    make_service,
    relabel,
    seal,
    withdrawal,
)
from conformance.kubernetes import Kubernetes, eventually, for_a_while
from conformance.rows import Rows
from tidegate.api import names
from tidegate.cluster import project
from tidegate.cluster.port import ENDPOINT_SLICES, PODS, SERVICES, Object
from tidegate.core.planner import actions as a

ROWS = Rows()
ABSENT = "controller.endpoints:Endpoints.absent"


async def _endpoints(k8s: Kubernetes, service: str) -> dict[str, Object]:
    """Of the slices of one Service, read as the operator reads them, by the uid of the pod."""
    slices, _ = await k8s.cluster.list(ENDPOINT_SLICES, k8s.namespace, labels=f"kubernetes.io/service-name={service}")
    found = [e for item in slices for e in item.get("endpoints") or []]
    return {e["targetRef"]["uid"]: e["conditions"] for e in found}


async def _become(k8s: Kubernetes, service: str, wanted: dict[str, Object]) -> None:
    async def so() -> bool:
        return await _endpoints(k8s, service) == wanted

    await eventually(f"the endpoints of {service} are {wanted}", so)


GOOD = {"ready": True, "serving": True, "terminating": False}
BAD = {"ready": False, "serving": False, "terminating": False}
GOING = {"ready": False, "serving": True, "terminating": True}


async def _routed(k8s: Kubernetes, count: int, **changes: Any) -> tuple[Revision, list[Object]]:
    made = await make_revision(k8s, count, "prompt", **changes)
    await make_routes(made)
    return made, await made.running(count)


@ROWS.row("a withdrawn pod leaves the slices by its label alone, Ready as it is; undone, it comes back", ABSENT)
async def _(k8s: Kubernetes) -> None:
    _, (stays, goes) = await _routed(k8s, 2)
    one, other = stays["metadata"]["uid"], goes["metadata"]["uid"]
    await _become(k8s, k8s.name, {one: GOOD, other: GOOD})
    held = project.pod(await relabel(k8s, withdrawal(goes, version="")))
    await _become(k8s, k8s.name, {one: GOOD})
    assert (await look(k8s, goes)).ready
    assert held.drain is not None
    await relabel(k8s, a.Restore(held.name, held.uid, held.drain))
    await _become(k8s, k8s.name, {one: GOOD, other: GOOD})


@ROWS.row("a NotReady pod is in the slices too, as not ready", ABSENT)
async def _(k8s: Kubernetes) -> None:
    _, (pod,) = await _routed(k8s, 1)
    uid = pod["metadata"]["uid"]
    await _become(k8s, k8s.name, {uid: GOOD})
    await k8s.behave(pod["metadata"]["name"], "not-ready")
    await _become(k8s, k8s.name, {uid: BAD})


@ROWS.row("a drained pod that is deleted is in no slice, not even while it terminates", ABSENT)
async def _(k8s: Kubernetes) -> None:
    made, (pod,) = await _routed(k8s, 1)
    await seal(k8s, pod)
    await _become(k8s, k8s.name, {})
    await made.scale(0, pod)

    async def out() -> bool:
        return await _endpoints(k8s, k8s.name) == {}

    await for_a_while("in no slice", out)
    await gone(k8s, pod)


@ROWS.row("a serving pod that terminates stays in the slices, as terminating", ABSENT)
async def _(k8s: Kubernetes) -> None:
    made, (pod,) = await _routed(k8s, 1, **LINGERING)
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    await _become(k8s, k8s.name, {uid: GOOD})
    await k8s.merge(PODS, name, {"metadata": {"annotations": {names.RELEASE: "its node burns"}}})
    await k8s.delete(PODS, name)
    found: list[Object] = []

    async def terminates() -> bool:
        found.append((await _endpoints(k8s, k8s.name)).get(uid, {}))
        return bool(found[-1].get("terminating"))

    await eventually("told as terminating", terminates)
    assert found[-1]["ready"] is False
    await gone(k8s, pod)

    async def left() -> bool:
        return uid not in await _endpoints(k8s, k8s.name)

    await eventually("gone from the slices", left)
    await made.have(1)


@ROWS.row("a Service that selects nobody has no endpoint", ABSENT)
async def _(k8s: Kubernetes) -> None:
    made = await make_service(k8s)
    await make_routes(made)

    async def sliced() -> bool:
        slices, _ = await k8s.cluster.list(
            ENDPOINT_SLICES, k8s.namespace, labels=f"kubernetes.io/service-name={k8s.name}"
        )
        return bool(slices)

    await eventually("it has a slice all the same", sliced)
    assert await _endpoints(k8s, k8s.name) == {}


@ROWS.row("a user's Service without the state label keeps a withdrawn pod", "cluster.gather:services_without_state")
async def _(k8s: Kubernetes) -> None:
    _, (pod,) = await _routed(k8s, 1)
    uid, theirs = pod["metadata"]["uid"], f"{k8s.name}-theirs"
    ports = [{"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"}]
    spec = {"selector": {names.SERVICE: k8s.name}, "ports": ports}
    await k8s.create(SERVICES, {"metadata": {"name": theirs}, "spec": spec})
    await _become(k8s, theirs, {uid: GOOD})
    await relabel(k8s, withdrawal(pod, version=""))
    await _become(k8s, k8s.name, {})
    assert await _endpoints(k8s, theirs) == {uid: GOOD}

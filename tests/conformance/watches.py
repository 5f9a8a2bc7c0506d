"""What the operator's watches tell, and whether its store ends as the API server is."""

from conformance.children import delete, gone, make_revision, pretend, relabel, sealing, withdrawal
from conformance.kubernetes import Heard, Kubernetes, eventually
from conformance.rows import Rows
from tidegate.cluster import locks
from tidegate.cluster.port import DEPLOYMENTS, PODS, Object
from tidegate.cluster.store import Store

ROWS = Rows()


def _version(raw: Object) -> int:
    return int(raw["metadata"]["resourceVersion"])


@ROWS.row(
    "a watch tells the changes of one object in their order, each with its new resourceVersion",
    "cluster.store:Store.put",
)
async def _(k8s: Kubernetes) -> None:
    heard = await k8s.watch(PODS)
    made = await make_revision(k8s, 1)
    (pod,) = await made.pods()
    name = pod["metadata"]["name"]
    for step in range(5):
        last = await k8s.merge(PODS, name, {"metadata": {"annotations": {"step": str(step)}}})

    async def told() -> bool:
        return any(_version(raw) == _version(last) for _, raw in heard.of(name))

    await eventually("the last change is told", told)
    versions = [_version(raw) for _, raw in heard.of(name)]
    assert versions == sorted(set(versions))
    steps = [raw["metadata"]["annotations"].get("step") for _, raw in heard.of(name)]
    assert [step for step in steps if step] == ["0", "1", "2", "3", "4"]


@ROWS.row("a deletion is told with a resourceVersion above every one before it", "cluster.store:Store.remove")
async def _(k8s: Kubernetes) -> None:
    heard = await k8s.watch(PODS)
    made = await make_revision(k8s, 1)
    (pod,) = await made.pods()
    name = pod["metadata"]["name"]
    await delete(k8s, pod)

    async def told() -> bool:
        return [event for event, _ in heard.of(name)][-1:] == ["DELETED"]

    await eventually("the deletion is told", told)
    *before, last = [raw for _, raw in heard.of(name)]
    assert last["metadata"]["uid"] == pod["metadata"]["uid"]
    assert _version(last) > max(map(_version, before))


@ROWS.row("a store that hears a watch ends as a list shows it", "cluster.store:Store.replace")
async def _(k8s: Kubernetes) -> None:
    heard: dict[str, Heard] = {"pods": await k8s.watch(PODS), "deployments": await k8s.watch(DEPLOYMENTS)}
    made = await make_revision(k8s, 3)
    first, second, _ = await made.pods()
    await pretend(k8s, second)
    await relabel(k8s, withdrawal(second, version=""))
    await relabel(k8s, sealing(first))
    await made.scale(2, first)
    await gone(k8s, first)
    await made.have(2)

    async def same() -> bool:
        for kind, ear in ((PODS, heard["pods"]), (DEPLOYMENTS, heard["deployments"])):
            store = Store()
            for event, raw in ear.events:
                (store.remove if event == "DELETED" else store.put)(kind, {**raw, "metadata": dict(raw["metadata"])})
            listed, version = await k8s.cluster.list(kind, k8s.namespace, labels=made.labels)
            space = store.select(kind, k8s.namespace, dict(part.split("=") for part in made.labels.split(",")))
            held = {raw["metadata"]["uid"]: _version(raw) for raw in space}
            assert held == {raw["metadata"]["uid"]: _version(raw) for raw in listed}, (kind.plural, version)
        return True

    await eventually("the store is as the list", same)


@ROWS.row("the policies and their bindings can be read, and are in force", "cluster.locks:missing")
async def _(k8s: Kubernetes) -> None:
    assert await locks.missing(k8s.cluster) == ()

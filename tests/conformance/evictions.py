"""The eviction lock: what the budget over undrained pods lets through."""

import asyncio

from conformance.children import Revision, make_budget, make_revision, pretend, relabel, seal, withdrawal
from conformance.kubernetes import Kubernetes, eventually, for_a_while, refused
from conformance.rows import Rows
from tidegate.api import names
from tidegate.api.errors import Unavailable
from tidegate.cluster.port import PDBS, PODS, Object

ROWS = Rows()
BUDGET = "core.render.objects:disruption_budget"
HOLD = {"disruption": {"mode": "Hold"}}


async def _counted(made: Revision, healthy: int, allowed: int) -> Object:
    async def so() -> Object | None:
        live = await made.k8s.read(PDBS, made.owner.name)
        status = live.get("status") or {}
        seen = status.get("observedGeneration") == live["metadata"]["generation"]
        told = (status.get("currentHealthy"), status.get("disruptionsAllowed"))
        return status if seen and told == (healthy, allowed) else None

    return await eventually(f"{healthy} healthy, {allowed} may be disrupted", so)


async def _pods(made: Revision) -> list[Object]:
    """Its pods, Ready by their status."""
    return [await pretend(made.k8s, pod) for pod in await made.pods()]


async def _gone_or_going(k8s: Kubernetes, pod: Object) -> bool:
    found = [p for p in await k8s.find(PODS) if p["metadata"]["uid"] == pod["metadata"]["uid"]]
    return not found or "deletionTimestamp" in found[0]["metadata"]


@ROWS.row("the budget counts serving and draining pods that are Ready, and no drained one", BUDGET)
async def _(k8s: Kubernetes) -> None:
    made = await make_revision(k8s, 3, replicas=3)
    await make_budget(made)
    pods = await _pods(made)
    status = await _counted(made, 3, 1)
    assert (status["desiredHealthy"], status["expectedPods"]) == (2, 3)
    await relabel(k8s, withdrawal(pods[0]))
    await _counted(made, 3, 1)
    await seal(k8s, pods[0])
    await pretend(k8s, pods[1], ready=False)
    await _counted(made, 1, 0)


@ROWS.row("the budget counts a pod that was just drained until another one of its pods changes", BUDGET)
async def _(k8s: Kubernetes) -> None:
    made = await make_revision(k8s, 3, replicas=3)
    await make_budget(made)
    drained, other, _ = await _pods(made)
    await _counted(made, 3, 1)
    # Its own write of that makes the controller count once more.
    await asyncio.sleep(2)
    await seal(k8s, drained)

    async def stale() -> bool:
        return bool(await _counted(made, 3, 1))

    await for_a_while("nobody tells the budget", stale)
    await k8s.merge(PODS, other["metadata"]["name"], {"metadata": {"annotations": {"note": "x"}}})
    await _counted(made, 2, 0)


@ROWS.row("an eviction that the budget allows is admitted, past the lock on deletes; the next one is not", BUDGET)
async def _(k8s: Kubernetes) -> None:
    made = await make_revision(k8s, 2)
    await make_budget(made)
    first, second = await _pods(made)
    await _counted(made, 2, 1)
    await k8s.evict(first["metadata"]["name"])
    assert await _gone_or_going(k8s, first)
    error = await refused(k8s.evict(second["metadata"]["name"]), Unavailable)
    assert "disruption budget" in str(error)
    assert not await _gone_or_going(k8s, second)


@ROWS.row("under Hold no eviction of a serving or draining pod is admitted, Ready or not", BUDGET)
async def _(k8s: Kubernetes) -> None:
    made = await make_revision(k8s, 3, **HOLD)
    await make_budget(made)
    ready, draining, sick = await _pods(made)
    await relabel(k8s, withdrawal(draining))
    await pretend(k8s, sick, ready=False)
    await _counted(made, 2, 0)
    for pod in (ready, draining, sick):
        error = await refused(k8s.evict(pod["metadata"]["name"]), Unavailable)
        assert "disruption budget" in str(error)
        assert not await _gone_or_going(k8s, pod)


@ROWS.row("under Hold a drained pod may be evicted at once", BUDGET)
async def _(k8s: Kubernetes) -> None:
    made = await make_revision(k8s, 1, **HOLD)
    await make_budget(made)
    (pod,) = await _pods(made)
    await _counted(made, 1, 0)
    await refused(k8s.evict(pod["metadata"]["name"]), Unavailable)
    await seal(k8s, pod)
    await k8s.evict(pod["metadata"]["name"])
    assert await _gone_or_going(k8s, pod)


@ROWS.row("under Hold a pod that does not run yet may be evicted", BUDGET)
async def _(k8s: Kubernetes) -> None:
    made = await make_revision(k8s, 1, **HOLD)
    await make_budget(made)
    (pod,) = await made.pods()
    await _counted(made, 0, 0)
    await k8s.evict(pod["metadata"]["name"])
    assert await _gone_or_going(k8s, pod)


@ROWS.row("with AlwaysAllow what is not Ready may be evicted although too few are healthy, and nothing else", BUDGET)
async def _(k8s: Kubernetes) -> None:
    made = await make_revision(k8s, 3, replicas=3)
    await make_budget(made)
    ready, sick, _ = await _pods(made)
    for pod in await made.pods():
        if pod["metadata"]["name"] != ready["metadata"]["name"]:
            await pretend(k8s, pod, ready=False)
    await _counted(made, 1, 0)
    await refused(k8s.evict(sick["metadata"]["name"]), Unavailable)
    await k8s.merge(PDBS, made.owner.name, {"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}})
    await _counted(made, 1, 0)
    await k8s.evict(sick["metadata"]["name"])
    assert await _gone_or_going(k8s, sick)
    await refused(k8s.evict(ready["metadata"]["name"]), Unavailable)


@ROWS.row("a pod that two budgets cover cannot be evicted, whatever they allow", "cluster.gather:budgets_beside")
async def _(k8s: Kubernetes) -> None:
    made = await make_revision(k8s, 2)
    await make_budget(made)
    first, _ = await _pods(made)
    await _counted(made, 2, 1)
    other = f"{k8s.name}-other"
    expressions = [
        {"key": names.SERVICE, "operator": "NotIn", "values": ["x"]},
        {"key": names.REVISION, "operator": "Exists"},
        {"key": "nowhere", "operator": "DoesNotExist"},
    ]
    spec = {"minAvailable": 0, "selector": {"matchLabels": {names.SERVICE: k8s.name}, "matchExpressions": expressions}}
    await k8s.create(PDBS, {"metadata": {"name": other}, "spec": spec})

    async def refused_for_two() -> bool:
        return "more than one PodDisruptionBudget" in str(
            await refused(k8s.evict(first["metadata"]["name"]), Unavailable)
        )

    await eventually("both are known", refused_for_two)
    assert not await _gone_or_going(k8s, first)
    await k8s.delete(PDBS, other)

    async def admitted() -> bool:
        try:
            await k8s.evict(first["metadata"]["name"])
        except Unavailable:
            return False
        return True

    await eventually("the second one is forgotten", admitted)


@ROWS.row("a budget that was never counted admits no eviction of a running pod", BUDGET)
async def _(k8s: Kubernetes) -> None:
    made = await make_revision(k8s, 1)
    (pod,) = await _pods(made)
    body = await make_budget(made)
    assert "observedGeneration" not in (body.get("status") or {})
    await refused(k8s.evict(pod["metadata"]["name"]), Unavailable)


@ROWS.row("a changed minAvailable is a new generation, and counts once its controller has seen it", BUDGET)
async def _(k8s: Kubernetes) -> None:
    made = await make_revision(k8s, 2)
    await make_budget(made)
    await _pods(made)
    await _counted(made, 2, 1)
    made.raw = {**made.raw, **HOLD}
    answer = await make_budget(made)
    assert answer["metadata"]["generation"] == 2
    await _counted(made, 2, 0)

"""Engines behind the gateway: the operator's whole code, and the shipped gateway's own state of a drain in each pod."""

from typing import Any

import pytest

from simulation.world import World
from tidegate.api import names
from tidegate.cluster.port import DEPLOYMENTS, LLM_SERVICES, SERVICES, Object

ENGINE = {"mode": "Gateway", "engine": "VLLM"}
GATEWAY_PORT, ENGINE_PORT = 9900, 8000


def standing(world: World, **spec: Any) -> None:
    world.create(**(ENGINE | spec))
    world.settle()
    world.traffic.start(every=1.0, seconds=(5, 40))
    world.run(30)


def reached(pod: Object, name: str) -> int:
    """The port to which a Service's named target port leads: regular containers come before all others."""
    containers = [*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or [])]
    found = [p["containerPort"] for c in containers for p in c.get("ports") or [] if p.get("name") == name]
    return int(found[0])


def gateways(pods: list[Object]) -> list[Object]:
    return [c for p in pods for c in p["spec"].get("initContainers") or [] if c["name"] == names.GATEWAY]


def uncut(world: World) -> bool:
    return world.ledger.served > 20 and world.ledger.tokens == 0 and world.ledger.unserved == 0


def generations(world: World) -> dict[str, int]:
    return {d["metadata"]["name"]: d["metadata"]["generation"] for d in world.server.all(DEPLOYMENTS)}


@pytest.mark.parametrize(("surge", "unavailable"), [(1, 0), (3, 0), (0, 1)])
def test_a_rollout_drains_every_old_pod_and_cuts_nothing(surge: int, unavailable: int) -> None:
    with World(seed=1, paranoid=True) as world:
        standing(world, maxSurge=surge, maxUnavailable=unavailable)
        world.edit(image="app:v2")
        world.settle()
        assert world.outcomes() == [("app:v1", "Drained", 0)] * 3
        assert uncut(world)
        assert set(world.checks.deletes.values()) == {"replicaset-controller"}


def test_what_outlasts_the_budget_gets_a_token_and_is_counted() -> None:
    with World(seed=2, paranoid=True) as world:
        world.create(replicas=1, budgetSeconds=20, flushSeconds=2, **ENGINE)
        world.settle()
        world.load(world.pods()[0], 1000.0, 1000.0, 3.0)
        world.edit(image="app:v2")
        world.settle()
        assert world.outcomes() == [("app:v1", "Expired", 2)]
        assert (world.ledger.tokens, world.ledger.served) == (2, 1)


def test_a_service_moves_behind_the_gateway_and_back_and_one_service_reaches_both_kinds_of_pods() -> None:
    with World(seed=3, paranoid=True) as world:
        world.create()
        world.settle()
        world.traffic.start(every=1.0, seconds=(5, 40))
        world.run(30)
        (service,) = world.server.all(SERVICES)
        world.edit(image="app:v2", **ENGINE)
        world.until(lambda: world.ready_pods(image="app:v1") and world.ready_pods(image="app:v2"))
        target = service["spec"]["ports"][0]["targetPort"]
        ports = {p["spec"]["containers"][0]["image"]: reached(p, target) for p in world.ready_pods()}
        assert ports == {"app:v1": ENGINE_PORT, "app:v2": GATEWAY_PORT}
        assert len(gateways(world.ready_pods())) == len(world.ready_pods(image="app:v2"))
        world.settle()
        world.edit(image="app:v3", mode="Native", engine=None)
        world.settle()
        assert world.outcomes() == [("app:v1", "Drained", 0)] * 3 + [("app:v2", "Drained", 0)] * 3
        assert uncut(world)
        assert [s["spec"] for s in world.server.all(SERVICES)] == [service["spec"]]


def test_an_undo_in_the_middle_of_the_move_gives_the_draining_pod_back() -> None:
    with World(seed=4, paranoid=True) as world:
        standing(world, mode="Native", engine=None)
        world.edit(image="app:v2", **ENGINE)
        world.until(lambda: world.pods(image="app:v1", state="draining"))
        world.edit(image="app:v1", mode="Native", engine=None)
        world.settle()
        world.run(60)
        assert {image for image, _, _ in world.outcomes()} <= {"app:v1", "app:v2"}
        assert all((outcome, cut) == ("Drained", 0) for _, outcome, cut in world.outcomes())
        assert uncut(world)


def test_an_operator_with_another_image_rolls_no_pod_and_says_so() -> None:
    with World(seed=5, paranoid=True) as world:
        standing(world)
        before, pods = generations(world), {p["metadata"]["uid"] for p in world.pods()}
        assert {c["image"] for c in gateways(world.pods())} == {names.GATEWAY_IMAGE}
        world.gateway_image = "registry.example.com/gateway:2"
        world.kill_operator()
        world.run(300)
        assert generations(world) == before
        assert {p["metadata"]["uid"] for p in world.pods()} == pods
        assert world.condition("TemplateOutdated")["status"] == "True"
        world.edit(restartedAt="2026-11-29T20:00:00Z")
        world.settle()
        assert {c["image"] for c in gateways(world.pods())} == {"registry.example.com/gateway:2"}
        assert world.condition("TemplateOutdated") == {}
        assert world.outcomes() == [("app:v1", "Drained", 0)] * 3


@pytest.mark.parametrize("write", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_an_operator_killed_in_the_middle_carries_on(write: int, after: bool) -> None:
    with World(seed=6, paranoid=True) as world:
        standing(world)
        assert world.operator is not None
        world.kill_at(len(world.sent) + write, after=after)
        world.edit(image="app:v2")
        world.settle()
        assert world.deaths == 1
        assert world.outcomes() == [("app:v1", "Drained", 0)] * 3
        assert uncut(world)


def test_an_engine_killed_by_its_liveness_probe_serves_again_in_the_same_pod() -> None:
    with World(seed=7, paranoid=True) as world:
        standing(world)
        uids = {p["metadata"]["uid"] for p in world.pods()}
        pod = world.ready_pods()[0]
        process = world.process(pod)
        # The kubelet calls preStop, waits for as long as the probe grants, and kills the engine alone.
        process.contract.prestop(world.loop.time())
        process.touch()
        world.run(10)
        assert process.state == "draining" and process.contract.drain_id is None
        world.kubelet.crash(pod["metadata"]["uid"])
        world.run(0.1)
        assert process.alive and not process.ready
        world.settle()
        assert process.state == "serving" and process.alive
        assert {p["metadata"]["uid"] for p in world.pods()} == uids
        assert world.outcomes() == []
        world.edit(image="app:v2")
        world.settle()
        assert world.outcomes() == [("app:v1", "Drained", 0)] * 3


def half_drained(world: World) -> str:
    """The uid of a pod that is told to drain and holds requests."""
    standing(world)
    world.edit(image="app:v2")
    world.until(lambda: world.checks.drains)
    (uid,) = world.checks.drains
    world.run(7)
    process = world.kubelet.process(uid)
    assert process is not None and process.in_flight and process.state == "draining"
    return uid


def test_a_pod_that_loses_its_gateway_in_a_drain_has_vanished() -> None:
    with World(seed=8, paranoid=True) as world:
        world.kubelet.crash_gateway(half_drained(world))
        world.settle()
        assert sorted(outcome for _, outcome, _ in world.outcomes()) == ["Drained", "Drained", "Vanished"]


def test_a_pod_that_loses_its_engine_in_a_drain_is_told_of_by_its_gateway() -> None:
    with World(seed=8, paranoid=True) as world:
        uid = half_drained(world)
        world.kubelet.crash(uid)
        assert world.ledger.tokens > 0
        world.settle()
        assert sorted(cut for _, _, cut in world.outcomes()) == [0, 0, world.ledger.tokens]
        assert world.ledger.resets == []


def test_a_revision_whose_engine_never_starts_costs_no_old_pod_and_is_rolled_back_at_once() -> None:
    with World(seed=9, paranoid=True) as world:
        standing(world)
        world.image("app:v2", crash_after=0.4)
        world.edit(image="app:v2")
        world.run(200)
        assert len(world.ready_pods(image="app:v1")) == 3
        assert world.condition("Stalled")["reason"] == "NewRevisionFailed"
        world.edit(image="app:v1")
        world.settle()
        assert {outcome for image, outcome, _ in world.outcomes() if image == "app:v2"} <= {"NoWork"}
        assert uncut(world)


def test_a_deleted_service_ends_its_streams_first() -> None:
    with World(seed=10, paranoid=True) as world:
        standing(world)
        world.traffic.stop()
        world.delete(LLM_SERVICES, "chat")
        world.settle()
        assert world.ledger.resets == [] and world.ledger.tokens == 0

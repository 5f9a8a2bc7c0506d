"""What others do to the pods: deletes, evictions, lost nodes, slow controllers, labels set by hand."""

import pytest

from simulation.stories import by_outcome, nothing_cut, standing
from simulation.world import NAMESPACE, World
from tidegate.api import names
from tidegate.api.conditions import PodState
from tidegate.api.errors import Denied, Unavailable
from tidegate.cluster.keys import TRUSTED_SECONDS
from tidegate.cluster.port import DEPLOYMENTS, LLM_SERVICES, PODS, SECRETS, SERVICES, Object


def test_a_delete_by_hand_is_refused_and_an_eviction_drains_in_place(world: World) -> None:
    standing(world)
    pod = world.pods()[0]
    with pytest.raises(Denied, match="may hold requests"):
        world.delete(PODS, pod["metadata"]["name"])
    world.evict(pod)
    with pytest.raises(Unavailable):
        world.evict(world.pods()[0])
    world.settle()
    assert world.ledger.tokens == 0


def test_of_one_replica_the_only_pod_may_be_evicted_unless_it_is_held(world: World) -> None:
    """As documented: maxUnavailable is about rollouts, and the budget asks for replicas - 1 others."""
    world.create(replicas=1, maxUnavailable=0)
    world.settle()
    world.edit(disruption={"mode": "Hold"})
    world.run(5)
    with pytest.raises(Unavailable, match="429"):
        world.evict(world.pods()[0])
    world.edit(disruption={"mode": "Budget"})
    world.run(5)
    evicted = world.pods()[0]
    world.evict(evicted)
    world.settle()
    assert evicted["metadata"]["uid"] not in {pod["metadata"]["uid"] for pod in world.pods()}


def test_under_hold_an_eviction_waits_until_the_pod_is_drained(world: World) -> None:
    world.create(disruption={"mode": "Hold"})
    world.settle()
    for pod in world.pods():
        with pytest.raises(Unavailable):
            world.evict(pod)
    world.edit(image="app:v2")
    world.settle()
    with pytest.raises(Unavailable):
        world.evict(world.pods()[0])


def test_no_pod_is_told_to_drain_before_slow_controllers_have_taken_it_out_of_the_slices(world: World) -> None:
    standing(world, replicas=2)
    world.controller_lag = (9.0, 12.0)
    world.edit(image="app:v2")
    world.settle()
    assert by_outcome(world) == {("app:v1", "Drained"): 2}
    assert nothing_cut(world)


def test_a_pod_that_was_given_back_leaves_the_slices_again_before_it_is_told_again(world: World) -> None:
    world.create(replicas=1, budgetSeconds=60)
    world.settle()
    world.process(world.pods()[0]).conduct = "ignores"
    world.edit(image="app:v2")
    world.until(lambda: world.pods(state=PodState.DRAINING))
    world.run(10)
    world.edit(image="app:v1")
    world.until(lambda: world.pods(image="app:v1", state=PodState.SERVING))
    world.settle()
    world.controller_lag = (0.5, 0.6)
    world.edit(restartedAt="2026-01-01T00:10:00Z")
    world.settle()
    assert by_outcome(world)["app:v1", "Expired"] == 1


def test_a_lost_pod_is_replaced_before_another_one_is_drained(world: World) -> None:
    standing(world, replicas=4)
    world.edit(image="app:v2")
    world.until(lambda: world.pods(state=PodState.DRAINING))
    for pod in world.ready_pods(image="app:v1", state=PodState.SERVING)[:2]:
        world.kubelet.vanish(pod["metadata"]["uid"])
    world.settle()
    assert nothing_cut(world)


def test_deleting_the_service_drains_every_pod_in_place(world: World) -> None:
    standing(world)
    world.delete(LLM_SERVICES, "chat")
    world.settle(limit=200)
    assert world.ledger.tokens == 0
    assert set(world.checks.deletes.values()) == {"garbage-collector"}


def test_with_the_operator_down_lost_pods_are_replaced_and_serve(world: World) -> None:
    standing(world)
    world.stop_operator()
    world.kubelet.vanish(world.pods()[0]["metadata"]["uid"])
    world.run(60)
    assert len(world.ready_pods()) == 3
    assert len(world.traffic.endpoints("chat")) == 3
    world.start_operator()
    world.settle()
    assert world.outcomes() == []


def test_without_policies_one_pod_drains_at_a_time(world: World) -> None:
    world.remove_policies()
    standing(world, replicas=4, maxSurge=3)
    world.edit(image="app:v2")
    most = 0
    while world.missing() is not None:
        world.run(0.5)
        most = max(most, len(world.pods(state=PodState.DRAINING)))
    assert most == 1
    assert world.condition("LocksMissing")
    assert nothing_cut(world)


def test_a_draining_label_set_by_hand_is_a_wish(world: World) -> None:
    standing(world)
    pod = world.pods()[0]
    change = {"metadata": {"labels": {names.STATE: PodState.DRAINING.value}}}
    world.server.writer = "user"
    world.server.merge(PODS, "prod", pod["metadata"]["name"], change)
    world.run(100)
    world.settle()
    assert by_outcome(world) == {("app:v1", "Drained"): 1}
    assert nothing_cut(world)


def test_a_service_that_is_deleted_and_made_again_waits_for_the_old_children(world: World) -> None:
    standing(world)
    world.delete(LLM_SERVICES, "chat")
    world.create(image="app:v2")
    world.settle()
    assert world.ledger.tokens == 0


def _own_service(name: str) -> Object:
    ports = [{"port": 80, "targetPort": "http"}]
    return {
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"selector": {names.SERVICE: "chat"}, "ports": ports},
    }


def test_a_users_own_service_is_named_before_a_rollout_and_its_clients_see_no_reset(world: World) -> None:
    standing(world)
    assert not world.condition("ServiceNotWithdrawn")
    world.server.writer = "user"
    world.server.create(SERVICES, _own_service("mine"))
    world.run(5)
    said = world.condition("ServiceNotWithdrawn")["message"]
    assert "Service mine" in said
    assert f"Add {names.STATE}: {PodState.SERVING} to the selector" in said
    world.traffic.start(every=1.0, seconds=(5, 20), service="mine")
    world.run(10)
    world.edit(image="app:v2")
    world.settle()
    assert by_outcome(world) == {("app:v1", "Drained"): 3}
    assert nothing_cut(world)
    world.traffic.stop()


def test_a_readiness_probe_of_ones_own_is_named_before_a_rollout(world: World) -> None:
    standing(world, probes={"readiness": {"path": "/health", "port": "http"}})
    assert "its own readiness probe" in world.condition("ReadinessNotDrainAware")["message"]
    world.edit(probes={"readiness": {"path": "/readyz", "port": "admin"}})
    world.settle()
    assert not world.condition("ReadinessNotDrainAware")
    assert by_outcome(world) == {("app:v1", "Drained"): 3}


def test_a_node_that_is_lost_in_the_middle_of_a_rollout(world: World) -> None:
    standing(world, replicas=6)
    world.edit(image="app:v2")
    world.until(lambda: world.pods(state=PodState.DRAINING))
    node = world.pods(state=PodState.DRAINING)[0]["spec"]["nodeName"]
    for pod in world.pods():
        if pod["spec"].get("nodeName") == node:
            world.kubelet.vanish(pod["metadata"]["uid"])
    world.settle()
    assert nothing_cut(world)
    assert not world.pods(image="app:v1")


def test_a_refused_read_of_the_key_stalls_only_while_it_is_refused() -> None:
    with World(11) as world:
        world.create(replicas=2)
        world.settle()
        world.faults.refused.add(SECRETS)
        world.run(TRUSTED_SECONDS)
        world.annotate(LLM_SERVICES, "chat", note="look")
        world.until(lambda: world.condition("Stalled")["status"] == "True")
        assert world.condition("Stalled")["reason"] == "WriteRefused"
        world.faults.refused.clear()
        world.until(lambda: world.condition("Stalled")["status"] == "False")
        world.settle()


def test_a_refused_write_that_is_not_wanted_any_more_stalls_nothing() -> None:
    with World(12) as world:
        world.create(replicas=2)
        world.settle()
        world.faults.refused.add(DEPLOYMENTS)
        world.edit(image="app:v2")
        world.until(lambda: world.condition("Stalled")["status"] == "True")
        world.edit(image="app:v1")
        world.until(lambda: world.condition("Stalled")["status"] == "False")
        world.settle()


def test_a_status_that_says_nothing_new_is_not_written_again(world: World) -> None:
    standing(world)
    world.edit(maxSurge="many")
    world.until(lambda: world.condition("Stalled")["reason"] == "InvalidSpec")
    written = len(world.sent)
    for number in range(5):
        world.annotate(LLM_SERVICES, "chat", note=str(number))
        world.run(40)
    assert world.sent[written:] == []

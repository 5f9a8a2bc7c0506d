"""Pods that others evict or delete: they drain in place, and their end is told once, with what they could say of it."""

import pytest

from simulation.world import World
from tidegate.api.conditions import PodState
from tidegate.cluster.port import PODS, Object


@pytest.fixture
def world():
    with World(seed=1) as made:
        yield made


def rows(world: World) -> list[tuple[str, str | None, int | None, int | None]]:
    """(outcome, reason, cut, last known count) of each outcome in the status."""
    said = world.status().get("outcomes") or []
    # The ReplicaSet replaces an evicted pod of the old revision, and that one is drained too.
    worked = [row for row in said if row["outcome"] != "NoWork"]
    return [(row["outcome"], row.get("reason"), row.get("cut"), row.get("inFlight")) for row in worked]


def uid(pod: Object) -> str:
    return str(pod["metadata"]["uid"])


def name(pod: Object) -> str:
    return str(pod["metadata"]["name"])


def standing(world: World, replicas: int, **spec: object) -> None:
    """A service without load, whose pods anybody may delete."""
    world.remove_policies()
    world.create(replicas=replicas, **spec)
    world.settle()


def force(world: World, pod: Object) -> None:
    """kubectl delete --force."""
    world.server.writer = "user"
    world.server.delete(PODS, "prod", name(pod), {"gracePeriodSeconds": 0})
    world.kubelet.doomed[uid(pod)] = "deleted with force"


def told(world: World, reason: str, pod: Object | None = None) -> list[str]:
    """Events of this reason, and about this pod."""
    named = "" if pod is None else name(pod)
    return [event.message for event in world.events() if event.reason == reason and named in event.message]


def rolled_to_the_last_pod(world: World, *seconds: float) -> Object:
    """A rollout whose last old pod drains with these streams."""
    standing(world, replicas=1)
    (pod,) = world.pods()
    world.load(pod, *seconds)
    world.edit(image="app:v2")
    world.until(lambda: world.pods(state=PodState.DRAINING))
    world.run(8)
    return pod


def test_a_draining_pod_that_is_evicted_goes_on_draining_and_is_told_when_it_has_ended(world: World) -> None:
    pod = rolled_to_the_last_pod(world, 40.0, 60.0)
    world.evict(pod)
    world.until(lambda: not world.pods(image="app:v1"))
    world.run(20)
    status = world.status()
    assert rows(world) == []
    (row,) = status["pods"]
    assert (row["name"], row["state"], row["reason"]) == (name(pod), "draining", "Rollout")
    assert row["inFlight"] >= 1 and status["draining"] == 1
    assert "finishedAt" not in status["rollout"]
    assert len(told(world, "RolloutComplete")) == 1  # of the first revision
    world.settle()
    assert rows(world) == [("Drained", "Rollout", 0, None)]
    assert world.status()["rollout"]["drained"] == 2
    assert world.ledger.served == 2 and world.ledger.tokens == 0
    (message,) = told(world, "Drained", pod)
    assert "0 requests cut; it was evicted" in message
    assert told(world, "Vanished") == []


def test_the_rollout_is_complete_when_no_old_pod_streams_any_more(world: World) -> None:
    pod = rolled_to_the_last_pod(world, 90.0)
    world.evict(pod)
    world.until(lambda: world.pods(image="app:v2") and world.pods(state=PodState.SERVING))
    process = world.process(pod)
    while process.in_flight:
        assert "finishedAt" not in world.status()["rollout"]
        assert world.condition("Reconciling")["status"] == "True"
        world.run(1)
    world.settle()
    assert "finishedAt" in world.status()["rollout"]


def test_what_the_end_of_its_grace_period_cuts_of_an_evicted_drain_is_counted(world: World) -> None:
    pod = rolled_to_the_last_pod(world, 5000.0, 5000.0, 20.0)
    world.evict(pod)
    world.settle()
    assert rows(world) == [("Expired", "Rollout", 2, None)]
    assert world.ledger.tokens == 2
    assert world.status()["rollout"]["cut"] == 2
    (message,) = told(world, "Drained", pod)
    assert "2 requests cut, because its grace period was over" in message


@pytest.mark.parametrize("way", ["evict", "delete"])
def test_a_serving_pod_with_streams_longer_than_its_grace_period_is_told_with_its_cuts(world: World, way: str) -> None:
    standing(world, replicas=2)
    pod = world.pods()[0]
    world.load(pod, 5000.0, 5000.0, 5000.0, 10.0)
    if way == "evict":
        world.evict(pod)
    else:
        world.delete(PODS, name(pod))
    world.run(5)
    (row,) = world.status()["pods"]
    reason = "NodeDrain" if way == "evict" else "Deleted"
    assert (row["name"], row["state"], row["reason"], row["inFlight"]) == (name(pod), "serving", reason, 4)
    world.settle()
    assert rows(world) == [("Expired", reason, 3, None)]
    assert world.ledger.tokens == 3
    (message,) = told(world, reason)
    assert "3 requests cut" in message
    assert world.status().get("pods", []) == []


def test_a_serving_pod_whose_streams_fit_into_its_grace_period_is_told_with_none_cut(world: World) -> None:
    standing(world, replicas=2)
    pod = world.pods()[0]
    world.load(pod, 10.0, 30.0)
    world.evict(pod)
    world.settle()
    assert rows(world) == [("Drained", "NodeDrain", 0, None)]
    assert world.ledger.served == 2


def test_a_pod_that_cannot_say_what_it_cut_is_told_with_what_was_last_known(world: World) -> None:
    standing(world, replicas=2)
    pod = world.pods()[0]
    world.load(pod, 5000.0, 5000.0)
    world.evict(pod)
    world.run(10)
    world.process(pod).conduct = "refused"
    world.kubelet.doomed[uid(pod)] = "cannot be asked"
    world.settle()
    assert rows(world) == [("Vanished", "NodeDrain", None, 2)]
    (message,) = told(world, "NodeDrain")
    assert "the number of cut requests is unknown; by its last answer" in message and "2 in flight" in message


def test_a_pod_deleted_with_force_while_it_served_is_told_as_unknown(world: World) -> None:
    standing(world, replicas=2)
    pod = world.pods()[0]
    world.load(pod, 5000.0)
    force(world, pod)
    world.settle()
    assert rows(world) == [("Vanished", "Deleted", None, None)]


def test_a_pod_that_never_served_is_not_told(world: World) -> None:
    world.image("app:v2", load=5000.0)
    standing(world, replicas=2)
    world.edit(image="app:v2")
    world.until(lambda: world.pods(image="app:v2"))
    world.run(1)
    force(world, world.pods(image="app:v2")[0])
    world.run(30)
    assert rows(world) == []


@pytest.mark.parametrize("seconds", [0.0, 30.0], ids=["at once", "later"])
def test_a_successor_tells_of_a_pod_that_goes_while_nobody_looks(world: World, seconds: float) -> None:
    standing(world, replicas=2)
    pod = world.pods()[0]
    world.load(pod, 5000.0, 5000.0)
    world.evict(pod)
    world.run(10)
    world.kill_operator(back_after=seconds)
    world.settle()
    assert rows(world) == [("Expired", "NodeDrain", 2, None)]
    assert len(told(world, "NodeDrain")) == 1


def test_one_that_ended_while_no_operator_ran_is_told_as_unknown(world: World) -> None:
    standing(world, replicas=2)
    pod = world.pods()[0]
    world.load(pod, 300.0, 300.0)
    world.evict(pod)
    world.run(10)
    world.kill_operator(back_after=400.0)
    world.run(500)
    world.settle()
    assert rows(world) == [("Vanished", "NodeDrain", None, 2)]


def test_twelve_pods_of_a_node_are_each_told_once(world: World) -> None:
    standing(world, replicas=14)
    for pod in world.pods()[:12]:
        world.load(pod, 30.0)
        world.delete(PODS, name(pod))
    world.settle()
    world.run(400)
    assert len(told(world, "Deleted")) == 12 == len(set(told(world, "Deleted")))
    assert rows(world) == [("Drained", "Deleted", 0, None)] * 10


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("write", range(1, 6))
@pytest.mark.parametrize("drains", [False, True], ids=["serving", "draining"])
def test_killed_at_any_write_of_its_end_each_pod_is_told_once_and_never_with_too_few_cuts(
    drains: bool, write: int, after: bool
) -> None:
    with World(seed=3, traced=False) as world:
        world.steady = False
        if drains:
            pod = rolled_to_the_last_pod(world, 5000.0, 5000.0)
        else:
            standing(world, replicas=2)
            pod = world.pods()[0]
            world.load(pod, 5000.0, 5000.0)
        world.evict(pod)
        world.until(lambda: world.kubelet.process(uid(pod)) is None or not world.process(pod).in_flight)
        world.kill_at(len(world.sent) + write, after=after)
        world.settle()
        world.run(200)
        mine = [row for row in world.status()["outcomes"] if row["pod"] == name(pod)]
        assert len(mine) == 1, mine
        # The one who dies between the last word and the report takes it along: then it is unknown, and not 0.
        assert mine[0].get("cut", 2) == 2
        assert len(told(world, "Drained", pod) + told(world, "NodeDrain", pod) + told(world, "Vanished", pod)) <= 1
        if drains:
            assert world.status()["rollout"]["drained"] == 2
            assert world.learnt().drains.n >= 1

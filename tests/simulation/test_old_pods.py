"""Old pods that are not well, and pods that restart or vanish in the middle of their drains."""

from simulation.stories import by_outcome, loaded, nothing_cut, standing
from simulation.world import World
from tidegate.api.conditions import PodState


def test_an_old_revision_that_is_not_ready_but_generating_is_asked_and_waited_for(world: World) -> None:
    world.create()
    world.settle()
    for pod in world.pods():
        world.load(pod, 90.0)
        world.kubelet.sicken(pod["metadata"]["uid"], healthy=False)
    world.run(10)
    assert not world.ready_pods()
    world.edit(image="app:v2")
    world.settle()
    assert by_outcome(world) == {("app:v1", "Drained"): 3}
    assert nothing_cut(world)
    assert world.ledger.served == 3


def test_an_old_revision_that_crash_loops_is_replaced_at_once(world: World) -> None:
    world.image("app:v1", crash_after=1.0)
    world.create()
    world.run(100)
    assert world.condition("Stalled")["reason"] == "NewRevisionFailed"
    world.edit(image="app:v2")
    world.settle(limit=300)
    assert set(by_outcome(world)) <= {("app:v1", "NoWork"), ("app:v1", "Drained")}


def test_old_pods_that_are_still_starting_hold_nothing(world: World) -> None:
    world.image("app:v1", load=600.0)
    world.create()
    world.run(20)
    world.edit(image="app:v2")
    world.settle(limit=200)
    assert set(by_outcome(world)) == {("app:v1", "NoWork")}


def test_a_pod_that_vanishes_in_the_middle_of_its_drain(world: World) -> None:
    standing(world)
    world.edit(image="app:v2")
    world.until(lambda: world.pods(state=PodState.DRAINING))
    lost = world.pods(state=PodState.DRAINING)[0]
    world.kubelet.vanish(lost["metadata"]["uid"])
    world.settle()
    rows = {row["pod"]: row["outcome"] for row in world.status()["outcomes"]}
    assert rows[lost["metadata"]["name"]] == "Vanished"


def test_a_container_that_restarts_in_the_middle_of_its_drain_is_told_again(world: World) -> None:
    world.create()
    world.settle()
    for pod in world.pods():
        world.load(pod, 100.0)
    world.edit(image="app:v2")
    world.until(lambda: world.pods(state=PodState.DRAINING))
    world.run(8)
    victim = world.pods(state=PodState.DRAINING)[0]
    world.kubelet.crash(victim["metadata"]["uid"])
    world.settle()
    said = {row["pod"]: row["outcome"] for row in world.status()["outcomes"]}
    assert said[victim["metadata"]["name"]] == "Vanished"
    assert by_outcome(world)["app:v1", "Drained"] == 2


def test_a_pod_that_restarts_before_it_is_told_to_drain(world: World) -> None:
    loaded(world, 100.0)
    world.edit(image="app:v2")
    world.until(lambda: world.pods(state=PodState.DRAINING), every=0.005)
    victim = world.pods(state=PodState.DRAINING)[0]
    world.kubelet.crash(victim["metadata"]["uid"])
    world.settle()
    rows = {row["pod"]: row["outcome"] for row in world.status()["outcomes"]}
    assert rows[victim["metadata"]["name"]] == "Vanished"
    assert by_outcome(world)["app:v1", "Drained"] == 2


def test_one_crash_looping_pod_among_good_ones_goes_first_and_costs_nobody_else(world: World) -> None:
    loaded(world, 60.0)
    ill = world.pods()[1]["metadata"]["uid"]
    world.image("app:v1", crash_after=0.2)
    world.kubelet.crash(ill)
    world.run(60)
    world.edit(image="app:v2")
    world.settle()
    assert next(iter(world.checks.outcomes)) == ill
    assert by_outcome(world) == {("app:v1", "NoWork"): 1, ("app:v1", "Drained"): 2}
    assert nothing_cut(world)


def test_an_old_pod_that_is_not_ready_recovers_in_the_middle_of_its_drain(world: World) -> None:
    loaded(world, 60.0)
    ill = world.pods()[0]["metadata"]["uid"]
    world.kubelet.sicken(ill, healthy=False)
    world.run(15)
    world.edit(image="app:v2")
    world.until(lambda: world.pods(state=PodState.DRAINING))
    world.kubelet.sicken(ill, healthy=True)
    world.settle()
    assert by_outcome(world) == {("app:v1", "Drained"): 3}
    assert nothing_cut(world)
    assert world.ledger.served == 3

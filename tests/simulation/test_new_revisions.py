"""A new revision that does not come up takes nothing with it."""

import pytest

from simulation.stories import by_outcome, loaded, nothing_cut, standing
from simulation.world import World
from tidegate.api.conditions import PodState


@pytest.mark.parametrize(
    ("behaviour", "reason", "said"),
    [
        ({"pullable": False}, "NewRevisionFailed", "ImagePullBackOff"),
        ({"crash_after": 1.0}, "NewRevisionFailed", "exited with code 1"),
        ({"never_ready": True}, "ProgressDeadlineExceeded", "progressDeadlineSeconds"),
    ],
    ids=["image cannot be pulled", "crash loop", "never ready"],
)
def test_a_revision_that_does_not_come_up_takes_no_old_pod_and_the_next_push_recovers(
    world: World, behaviour: dict[str, object], reason: str, said: str
) -> None:
    standing(world, progressDeadlineSeconds=120)
    world.image("app:v2", **behaviour)
    world.edit(image="app:v2")
    world.run(400)
    assert len(world.ready_pods(image="app:v1", state=PodState.SERVING)) == 3
    assert world.condition("Stalled")["reason"] == reason
    assert said in world.condition("Stalled")["message"]
    assert world.condition("Ready")["status"] == "True"
    world.edit(image="app:v3")
    world.settle()
    assert by_outcome(world)["app:v1", "Drained"] == 3
    assert nothing_cut(world)


def test_a_revision_that_heals_by_itself_goes_on(world: World) -> None:
    standing(world)
    world.image("app:v2", pullable=False)
    world.edit(image="app:v2")
    world.run(120)
    world.image("app:v2")
    world.settle()
    assert by_outcome(world) == {("app:v1", "Drained"): 3}


def test_a_template_that_the_api_server_refuses_leaves_everything_as_it_is(world: World) -> None:
    standing(world)
    world.server.refuse_images = frozenset({"bad image"})
    world.edit(image="bad image")
    world.run(100)
    assert world.condition("Stalled")["reason"] == "InvalidSpec"
    assert "spec.template.spec.containers[0].image" in world.condition("Stalled")["message"]
    assert len(world.ready_pods(image="app:v1", state=PodState.SERVING)) == 3
    world.edit(image="app:v2")
    world.settle()


def test_pods_that_a_quota_refuses_stop_the_rollout_and_say_so(world: World) -> None:
    standing(world)
    world.manager.replica_sets.refuse = "exceeded quota: pods=3"
    world.edit(image="app:v2")
    world.run(60)
    assert "exceeded quota" in world.condition("Stalled")["message"]
    assert len(world.ready_pods(image="app:v1", state=PodState.SERVING)) == 3
    world.manager.replica_sets.refuse = ""
    world.settle()


def test_no_spare_capacity_stops_and_max_surge_0_recovers(world: World) -> None:
    world.kubelet.capacity = 3
    standing(world)
    world.edit(image="app:v2")
    world.run(100)
    assert world.condition("Stalled")["reason"] == "NoSpareCapacity"
    assert "maxSurge: 0" in world.condition("Stalled")["message"]
    assert world.outcomes() == []
    world.edit(maxSurge=0, maxUnavailable=1)
    world.settle()
    assert by_outcome(world)["app:v1", "Drained"] == 3
    assert nothing_cut(world)


def test_drain_first_makes_its_own_room(world: World) -> None:
    world.kubelet.capacity = 3
    standing(world, whenNoCapacity="DrainFirst")
    world.edit(image="app:v2")
    world.settle()
    assert by_outcome(world)["app:v1", "Drained"] == 3
    assert nothing_cut(world)


def test_one_device_and_drain_first(world: World) -> None:
    world.kubelet.capacity = 1
    standing(world, replicas=1, whenNoCapacity="DrainFirst")
    world.edit(image="app:v2")
    world.settle()
    assert by_outcome(world)["app:v1", "Drained"] == 1


def test_a_revision_that_turns_not_ready_within_min_ready_seconds_takes_no_old_pod(world: World) -> None:
    standing(world, minReadySeconds=20)
    world.edit(image="app:v2")
    world.until(lambda: world.ready_pods(image="app:v2"))
    world.run(10)
    new = world.pods(image="app:v2")[0]["metadata"]["uid"]
    world.kubelet.sicken(new, healthy=False)
    world.run(120)
    assert len(world.ready_pods(image="app:v1", state=PodState.SERVING)) == 3
    assert world.outcomes() == []
    world.kubelet.sicken(new, healthy=True)
    world.settle()
    assert by_outcome(world) == {("app:v1", "Drained"): 3}


def flap(world: World, uid: str, healthy: bool = False) -> None:
    """Ready for a moment at a time, as long as the pod serves."""
    if any(p["metadata"]["uid"] == uid for p in world.pods(state=PodState.SERVING)):
        world.kubelet.sicken(uid, healthy=healthy)
        world.loop.call_later(4.0, flap, world, uid, not healthy)


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_flapping_old_pod_does_not_hold_its_successor_where_none_can_stand_beside_it(
    world: World, replicas: int
) -> None:
    standing(world, replicas=replicas, minReadySeconds=20, maxSurge=0, maxUnavailable=1)
    flap(world, world.pods()[0]["metadata"]["uid"])
    world.run(30)
    world.edit(image="app:v2")
    world.settle()
    assert by_outcome(world) == {("app:v1", "Drained"): replicas}
    assert nothing_cut(world)


@pytest.mark.parametrize(("before", "after"), [(3, 2), (1, 0)])
def test_a_service_with_a_flapping_pod_scales_in(world: World, before: int, after: int) -> None:
    standing(world, replicas=before, minReadySeconds=20)
    flapping = world.pods()[-1]["metadata"]["uid"]
    flap(world, flapping)
    world.run(30)
    world.edit(replicas=after)
    world.settle()
    assert flapping not in {p["metadata"]["uid"] for p in world.pods()}
    assert nothing_cut(world)


def test_a_flapping_revision_that_is_given_up_costs_no_serving_pod(world: World) -> None:
    """It is Ready for a moment at a time, and never for as long as minReadySeconds asks."""
    standing(world, replicas=2, minReadySeconds=20)
    world.edit(image="app:v2")
    world.until(lambda: world.ready_pods(image="app:v2"))
    # By its work it would be the last of the three to go.
    world.load(world.pods(image="app:v2")[0], *[90.0] * 60)
    flapping = world.pods(image="app:v2")[0]["metadata"]["uid"]

    flap(world, flapping)
    world.run(60)
    assert world.outcomes() == []
    world.edit(image="app:v3")
    fewest = 3
    while world.missing() is not None:
        world.run(0.25)
        steady = [p for p in world.ready_pods(state=PodState.SERVING) if p["metadata"]["uid"] != flapping]
        fewest = min(fewest, len(steady))
    assert fewest == 2
    assert by_outcome(world) == {("app:v1", "Drained"): 2, ("app:v2", "Drained"): 1}
    assert nothing_cut(world)


def test_time_spent_draining_does_not_count_against_the_progress_deadline(world: World) -> None:
    loaded(world, 300.0, progressDeadlineSeconds=60)
    world.edit(image="app:v2")
    while world.missing() is not None:
        world.run(2)
        assert world.condition("Stalled")["status"] == "False", world.condition("Stalled")
    assert world.loop.time() > 300
    assert by_outcome(world) == {("app:v1", "Drained"): 3}


def test_the_progress_deadline_counts_from_the_pod_that_does_not_come_up(world: World) -> None:
    loaded(world, 100.0, progressDeadlineSeconds=60)
    world.edit(image="app:v2")
    world.until(lambda: world.pods(state=PodState.DRAINING))
    world.image("app:v2", never_ready=True)
    world.until(lambda: len(world.pods(image="app:v2")) == 2)
    born = world.loop.time()
    world.until(lambda: world.condition("Stalled").get("status") == "True", every=1.0)
    assert 59 <= world.loop.time() - born <= 70
    assert world.condition("Stalled")["reason"] == "ProgressDeadlineExceeded"
    assert len(world.ready_pods(state=PodState.SERVING)) == 3
    world.edit(image="app:v3")
    world.settle()
    assert nothing_cut(world)


@pytest.mark.parametrize("remedy", ["a node", "rolling back", "a smaller service"])
def test_no_spare_capacity_ends_in_other_ways_too(world: World, remedy: str) -> None:
    world.kubelet.capacity = 3
    standing(world)
    world.edit(image="app:v2")
    world.until(lambda: world.condition("Stalled").get("reason") == "NoSpareCapacity")
    if remedy == "a node":
        world.kubelet.capacity = 4
    elif remedy == "rolling back":
        world.edit(image="app:v1")
    else:
        world.edit(replicas=2)
    world.settle()
    assert nothing_cut(world)
    old = by_outcome(world)["app:v1", "Drained"]
    assert old == (0 if remedy == "rolling back" else 3)


def test_a_broken_revision_is_left_for_another_broken_one_and_then_for_a_good_one(world: World) -> None:
    standing(world)
    world.image("app:v2", pullable=False)
    world.image("app:v3", crash_after=1.0)
    for image in ("app:v2", "app:v3"):
        world.edit(image=image)
        world.run(100)
        assert len(world.ready_pods(image="app:v1", state=PodState.SERVING)) == 3
    world.edit(image="app:v4")
    world.settle()
    assert by_outcome(world)["app:v1", "Drained"] == 3
    assert nothing_cut(world)


def test_a_revision_that_breaks_after_its_first_pod_stops_there(world: World) -> None:
    standing(world, replicas=4)
    world.edit(image="app:v2")
    world.until(lambda: len(world.ready_pods(image="app:v2", state=PodState.SERVING)) == 2)
    world.image("app:v2", pullable=False)
    world.run(200)
    left = len(world.ready_pods(image="app:v1", state=PodState.SERVING))
    assert left >= 1
    assert world.condition("Stalled")["reason"] == "NewRevisionFailed"
    world.run(200)
    assert len(world.ready_pods(image="app:v1", state=PodState.SERVING)) == left
    assert len(world.ready_pods(state=PodState.SERVING)) == 4
    world.edit(image="app:v1")
    world.settle()
    assert nothing_cut(world)


@pytest.mark.parametrize("when", ["Wait", "DrainFirst"])
def test_with_a_device_for_each_surge_pod_nobody_lacks_one(world: World, when: str) -> None:
    """The next new pod waits a while for the one that terminates: no reason to stop, nor to drain another one first."""
    world.image("app:v1", stop=8.0)
    world.kubelet.capacity = 4
    standing(world, whenNoCapacity=when)
    world.edit(image="app:v2")
    fewest = 3

    def over() -> bool:
        nonlocal fewest
        fewest = min(fewest, len(world.ready_pods(state=PodState.SERVING)))
        return not world.pods(image="app:v1")

    world.until(over)
    world.settle()
    assert fewest == 3
    assert "NoSpareCapacity" not in {event.reason for event in world.events()}
    assert nothing_cut(world)


def test_a_pod_that_waits_for_a_long_drain_is_not_late(world: World) -> None:
    world.kubelet.capacity = 1
    world.create(replicas=1, whenNoCapacity="DrainFirst", progressDeadlineSeconds=60)
    world.settle()
    world.load(world.pods()[0], 500.0)
    world.edit(image="app:v2")
    world.settle()
    assert by_outcome(world)["app:v1", "Drained"] == 1
    assert "ProgressDeadlineExceeded" not in {event.reason for event in world.events()}

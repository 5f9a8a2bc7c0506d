"""Rollouts and scaling that go well, as stories."""

import pytest

from simulation.stories import by_outcome, loaded, nothing_cut, standing
from simulation.world import World
from tidegate.api.conditions import PodState


@pytest.mark.parametrize(
    ("surge", "unavailable", "replicas"),
    [(1, 0, 3), (2, 0, 4), ("34%", 0, 3), (1, 1, 4), (0, 1, 3), (0, 2, 5), (0, 0, 3), ("25%", "25%", 8), (1, 0, 1)],
)
def test_a_rollout_drains_every_old_pod_and_cuts_nothing(
    world: World, surge: int | str, unavailable: int | str, replicas: int
) -> None:
    standing(world, replicas=replicas, maxSurge=surge, maxUnavailable=unavailable)
    world.edit(image="app:v2")
    world.settle()
    assert world.outcomes() == [("app:v1", "Drained", 0)] * replicas
    assert world.ledger.served > 20
    assert world.ledger.unserved == world.ledger.tokens == 0
    assert set(world.checks.deletes.values()) == {"replicaset-controller"}


def test_without_surge_a_new_pod_starts_only_when_the_old_one_has_really_ended(world: World) -> None:
    world.image("app:v1", stop=20.0)
    standing(world, replicas=2, maxSurge=0, maxUnavailable=1)
    world.kubelet.capacity = 2
    world.edit(image="app:v2")

    def running() -> list[str]:
        """Of the pods that are being deleted, those whose containers run: they hold their device."""
        states = {
            p["metadata"]["uid"]: [c["state"] for c in p["status"]["containerStatuses"]]
            for p in world.pods(alive=False)
            if "deletionTimestamp" in p["metadata"]
        }
        return [uid for uid, found in states.items() if any("running" in state for state in found)]

    world.until(running)
    going = len(world.pods(alive=False))
    while running():
        assert len(world.pods(alive=False)) == going
        world.run(0.5)
    world.settle()
    assert by_outcome(world) == {("app:v1", "Drained"): 2}


def test_one_replica_is_replaced_before_it_goes(world: World) -> None:
    standing(world, replicas=1)
    world.edit(image="app:v2")
    world.until(lambda: world.pods(state=PodState.DRAINING))
    assert len(world.ready_pods(image="app:v2")) == 1
    world.settle()
    assert world.ledger.unserved == 0


def test_an_old_pod_waits_until_the_new_one_was_ready_for_min_ready_seconds(world: World) -> None:
    standing(world, minReadySeconds=20)
    world.edit(image="app:v2")
    world.until(lambda: world.ready_pods(image="app:v2"))
    began = world.loop.time()
    world.until(lambda: world.pods(state=PodState.DRAINING))
    assert world.loop.time() - began >= 18.5
    world.settle()


def test_a_pod_that_fails_within_min_ready_seconds_takes_no_old_one_with_it(world: World) -> None:
    standing(world, minReadySeconds=20)
    world.image("app:v2", crash_after=12.0)
    world.edit(image="app:v2")
    world.run(200)
    assert len(world.ready_pods(image="app:v1", state=PodState.SERVING)) == 3
    assert world.condition("Stalled")["reason"] == "NewRevisionFailed"
    world.edit(image="app:v3")
    world.settle()
    assert by_outcome(world)["app:v1", "Drained"] == 3


def test_a_policy_of_spec_edits_that_roll_nothing(world: World) -> None:
    standing(world)
    before = [p["metadata"]["uid"] for p in world.pods()]
    world.edit(budgetSeconds=77, quietSeconds=1, maxSurge=2, minReadySeconds=3, revisionHistoryLimit=1)
    world.run(60)
    world.settle()
    assert [p["metadata"]["uid"] for p in world.pods()] == before
    assert world.outcomes() == []


def test_restarted_at_replaces_every_pod(world: World) -> None:
    standing(world)
    world.edit(restartedAt="2026-01-01T00:10:00Z")
    world.settle()
    assert by_outcome(world) == {("app:v1", "Drained"): 3}


def test_scaling_out_and_in_drains_the_idlest_pod(world: World) -> None:
    world.create(replicas=2)
    world.settle()
    world.edit(replicas=4)
    world.settle()
    for pod, count in zip(world.pods(), (3, 1, 5, 2), strict=True):
        world.load(pod, *[60.0] * count)
    idlest = world.pods()[1]["metadata"]["uid"]
    # What they said while they started is too old by then.
    world.run(11)
    world.edit(replicas=3)
    world.settle()
    assert list(world.checks.outcomes) == [idlest]
    assert nothing_cut(world)


def test_scaling_to_nothing_and_back(world: World) -> None:
    standing(world, replicas=2)
    world.edit(replicas=0)
    world.settle()
    assert by_outcome(world) == {("app:v1", "Drained"): 2}
    assert nothing_cut(world)
    world.edit(replicas=2)
    world.settle()


def test_a_scale_in_that_is_reversed_while_its_pod_drains_gives_the_pod_back(world: World) -> None:
    world.create(replicas=3)
    world.settle()
    for pod in world.pods():
        world.load(pod, 120.0)
    before = {p["metadata"]["uid"] for p in world.pods()}
    world.edit(replicas=2)
    world.until(lambda: world.pods(state=PodState.DRAINING))
    world.run(15)
    world.edit(replicas=3)
    world.settle(limit=60)
    assert {p["metadata"]["uid"] for p in world.pods()} == before
    assert world.outcomes() == []


def test_a_scale_in_that_is_reversed_after_the_seal_makes_a_new_pod(world: World) -> None:
    world.create(replicas=3)
    world.settle()
    world.edit(replicas=2)
    world.until(lambda: world.pods(state=PodState.DRAINED), every=0.02)
    world.edit(replicas=3)
    world.settle()
    assert by_outcome(world) == {("app:v1", "Drained"): 1}


def test_scaling_in_the_middle_of_a_rollout(world: World) -> None:
    standing(world, replicas=4)
    world.edit(image="app:v2")
    world.until(lambda: world.pods(state=PodState.DRAINING))
    world.edit(replicas=2)
    world.run(40)
    world.edit(replicas=5)
    world.settle()
    assert nothing_cut(world)
    assert not world.pods(image="app:v1")


def test_a_scale_in_that_is_reversed_twice_before_its_drain_is_over(world: World) -> None:
    loaded(world, 60.0, replicas=2)
    before = {p["metadata"]["uid"] for p in world.pods()}
    for count in (1, 2, 1, 2):
        world.edit(replicas=count)
        world.run(7)
    world.settle(limit=100)
    assert {p["metadata"]["uid"] for p in world.pods()} == before
    assert nothing_cut(world)


def test_a_reversed_scale_in_whose_pod_cannot_be_asked_back_is_replaced(world: World) -> None:
    loaded(world, 600.0, budgetSeconds=60)
    world.edit(replicas=2)
    world.until(lambda: world.pods(state=PodState.DRAINING))
    world.run(10)
    victim = world.pods(state=PodState.DRAINING)[0]
    world.process(victim).conduct = "hangs"
    world.run(20)
    world.edit(replicas=3)
    world.settle(limit=300)
    assert victim["metadata"]["uid"] not in {p["metadata"]["uid"] for p in world.pods()}
    assert by_outcome(world) == {("app:v1", "Expired"): 1}


def test_a_scale_in_that_becomes_a_rollout(world: World) -> None:
    standing(world, replicas=4)
    world.edit(replicas=3)
    world.until(lambda: world.pods(state=PodState.DRAINING))
    world.edit(image="app:v2")
    world.settle()
    assert by_outcome(world) == {("app:v1", "Drained"): 4}
    assert nothing_cut(world)

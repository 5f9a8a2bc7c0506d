"""People change their minds in the middle of a rollout."""

import pytest

from simulation.stories import by_outcome, loaded, nothing_cut, standing
from simulation.world import World
from tidegate.api.conditions import PodState
from tidegate.cluster.port import DEPLOYMENTS


def test_a_rollback_in_the_middle_undoes_the_drain_that_runs(world: World) -> None:
    world.create()
    world.settle()
    for pod in world.pods():
        world.load(pod, 200.0)
    world.edit(image="app:v2")
    world.until(lambda: world.pods(state=PodState.DRAINING))
    world.run(10)
    before = {p["metadata"]["uid"] for p in world.pods(image="app:v1")}
    world.edit(image="app:v1")
    world.settle()
    assert {p["metadata"]["uid"] for p in world.pods()} == before
    assert set(by_outcome(world)) <= {("app:v2", "Drained"), ("app:v2", "NoWork")}
    assert nothing_cut(world)


def test_a_third_revision_in_the_middle_drains_the_second_one_too(world: World) -> None:
    standing(world)
    world.edit(image="app:v2")
    world.until(lambda: len(world.ready_pods(image="app:v2")) == 2)
    world.edit(image="app:v3")
    world.settle()
    assert by_outcome(world)["app:v1", "Drained"] == 3
    assert by_outcome(world)["app:v2", "Drained"] == 2
    assert nothing_cut(world)


def test_undo_to_a_revision_that_was_kept_uses_its_deployment_again(world: World) -> None:
    standing(world)
    first = {d["metadata"]["name"] for d in world.server.all(DEPLOYMENTS)}
    for image in ("app:v2", "app:v3", "app:v1"):
        world.edit(image=image)
        world.settle()
    assert world.status()["targetRevision"] in first
    assert len(list(world.server.all(DEPLOYMENTS))) == 3


def test_revisions_beyond_the_history_limit_go(world: World) -> None:
    standing(world, replicas=1, revisionHistoryLimit=1)
    for number in range(2, 6):
        world.edit(image=f"app:v{number}")
        world.settle()
    world.until(lambda: len(list(world.server.all(DEPLOYMENTS))) == 2, limit=60)


def test_a_paused_rollout_stands_still_and_goes_on(world: World) -> None:
    standing(world)
    world.edit(image="app:v2")
    world.until(lambda: len(world.ready_pods(image="app:v2")) == 1)
    world.edit(paused=True)
    world.run(150)
    old, new = len(world.pods(image="app:v1")), len(world.pods(image="app:v2"))
    assert old
    assert world.status()["phase"] == "Paused"
    world.run(150)
    assert (len(world.pods(image="app:v1")), len(world.pods(image="app:v2"))) == (old, new)
    world.edit(paused=False)
    world.settle()
    assert by_outcome(world) == {("app:v1", "Drained"): 3}


def test_a_paused_rollout_still_replaces_what_is_lost_and_scales(world: World) -> None:
    standing(world)
    world.edit(image="app:v2")
    world.until(lambda: len(world.ready_pods(image="app:v2")) == 1)
    world.edit(paused=True)
    world.run(100)
    world.kubelet.vanish(world.ready_pods(state=PodState.SERVING)[0]["metadata"]["uid"])
    world.run(60)
    assert len(world.ready_pods(state=PodState.SERVING)) >= 3
    world.edit(replicas=5)
    world.run(60)
    assert len(world.ready_pods(state=PodState.SERVING)) >= 5
    world.edit(paused=False)
    world.settle()


def test_surge_and_unavailable_changed_in_the_middle(world: World) -> None:
    standing(world, replicas=6)
    world.edit(image="app:v2")
    world.until(lambda: world.pods(state=PodState.DRAINING))
    world.edit(maxSurge=3)
    world.run(15)
    world.edit(maxSurge=0, maxUnavailable=2)
    world.settle()
    assert by_outcome(world) == {("app:v1", "Drained"): 6}
    assert nothing_cut(world)


def test_an_edit_of_the_drain_numbers_in_the_middle_of_a_drain_lets_it_go_on(world: World) -> None:
    loaded(world, 60.0)
    world.edit(image="app:v2")
    world.until(lambda: world.pods(state=PodState.DRAINING))
    world.run(10)
    first = world.pods(state=PodState.DRAINING)[0]["metadata"]["uid"]
    world.edit(quietSeconds=1, flushSeconds=3, stalledAfterSeconds=100)
    world.until(lambda: world.checks.outcomes)
    assert list(world.checks.outcomes) == [first]
    world.settle()
    assert world.outcomes() == [("app:v1", "Drained", 0)] * 3
    assert len(world.checks.drains) == 3


def test_two_pushes_within_a_moment_roll_to_the_second(world: World) -> None:
    standing(world)
    world.edit(image="app:v2")
    world.run(0.02)
    world.edit(image="app:v3")
    world.settle()
    assert by_outcome(world)["app:v1", "Drained"] == 3
    assert nothing_cut(world)


def test_a_restart_in_the_middle_of_a_rollout_is_a_third_revision(world: World) -> None:
    standing(world)
    world.edit(image="app:v2")
    world.until(lambda: len(world.ready_pods(image="app:v2")) == 2)
    world.edit(restartedAt="2026-01-01T00:10:00Z")
    world.settle()
    assert by_outcome(world) == {("app:v1", "Drained"): 3, ("app:v2", "Drained"): 2}
    assert nothing_cut(world)


def test_an_undo_in_the_middle_of_the_next_rollout(world: World) -> None:
    standing(world)
    world.edit(image="app:v2")
    world.settle()
    first = {p["metadata"]["uid"] for p in world.pods()}
    world.edit(image="app:v3")
    world.until(lambda: len(world.ready_pods(image="app:v3")) == 2)
    world.edit(image="app:v2")
    world.settle()
    assert len(first & {p["metadata"]["uid"] for p in world.pods()}) >= 1
    assert not world.pods(image="app:v3")
    assert nothing_cut(world)


def test_a_push_while_paused_goes_straight_to_the_latest_when_it_goes_on(world: World) -> None:
    standing(world)
    world.edit(image="app:v2")
    world.until(lambda: len(world.ready_pods(image="app:v2")) == 1)
    world.edit(paused=True)
    world.run(60)
    world.edit(image="app:v3")
    world.run(100)
    assert not world.pods(image="app:v3")
    world.edit(paused=False)
    world.settle()
    assert not world.pods(image="app:v2")
    assert nothing_cut(world)


def test_a_rollback_while_paused_waits_for_the_pause_to_end(world: World) -> None:
    standing(world)
    world.edit(image="app:v2")
    world.until(lambda: len(world.ready_pods(image="app:v2")) == 1)
    world.edit(paused=True)
    world.run(60)
    world.edit(image="app:v1")
    world.run(100)
    assert len(world.pods(image="app:v2", state=PodState.SERVING)) >= 1
    world.edit(paused=False)
    world.settle()
    assert not world.pods(image="app:v2")
    assert nothing_cut(world)


def test_a_rollout_that_is_scaled_to_nothing_and_back(world: World) -> None:
    standing(world)
    world.edit(image="app:v2")
    world.until(lambda: world.pods(state=PodState.DRAINING))
    world.edit(replicas=0)
    world.settle()
    assert not world.pods(alive=False)
    world.edit(replicas=3)
    world.settle()
    assert len(world.ready_pods(image="app:v2")) == 3
    assert nothing_cut(world)


@pytest.mark.parametrize(("surge", "unavailable"), [(0, 1), (1, 0), (0, 3)])
def test_slots_narrowed_or_widened_while_pods_drain(world: World, surge: int, unavailable: int) -> None:
    standing(world, replicas=6, maxSurge=3)
    world.edit(image="app:v2")
    world.until(lambda: len(world.pods(state=PodState.DRAINING)) >= 2)
    world.edit(maxSurge=surge, maxUnavailable=unavailable)
    world.settle()
    assert by_outcome(world) == {("app:v1", "Drained"): 6}
    assert nothing_cut(world)

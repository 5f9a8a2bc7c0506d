"""Rollouts as stories. Leaving a `World` checks that no promise was broken, and that nothing is written any more."""

from collections import Counter
from collections.abc import Iterator

import pytest

from simulation.world import World
from tidegate.api import names
from tidegate.api.errors import Denied, Unavailable
from tidegate.cluster.port import DEPLOYMENTS, LLM_SERVICES, PODS


@pytest.fixture
def world() -> Iterator[World]:
    with World(seed=1, paranoid=True) as made:
        yield made


def standing(world: World, **spec: object) -> None:
    """A service of v1 with streams on it."""
    world.create(**spec)
    world.settle()
    world.traffic.start(every=1.0, seconds=(5, 40))
    world.run(30)


def by_outcome(world: World) -> Counter[tuple[str, str]]:
    return Counter((image, outcome) for image, outcome, _ in world.outcomes())


def nothing_cut(world: World) -> bool:
    return all(cut == 0 for _, _, cut in world.outcomes()) and world.ledger.tokens == 0


# -- the plain rollout


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


def test_without_surge_a_new_pod_starts_only_when_the_old_one_is_really_gone(world: World) -> None:
    world.image("app:v1", stop=20.0)
    standing(world, replicas=2, maxSurge=0, maxUnavailable=1)
    world.kubelet.capacity = 2
    world.edit(image="app:v2")
    world.until(lambda: any("deletionTimestamp" in p["metadata"] for p in world.pods(alive=False)))
    going = len(world.pods(alive=False))
    while any("deletionTimestamp" in p["metadata"] for p in world.pods(alive=False)):
        assert len(world.pods(alive=False)) == going
        world.run(0.5)
    world.settle()
    assert by_outcome(world) == {("app:v1", "Drained"): 2}


def test_one_replica_is_replaced_before_it_goes(world: World) -> None:
    standing(world, replicas=1)
    world.edit(image="app:v2")
    world.until(lambda: world.pods(state=names.DRAINING))
    assert len(world.ready_pods(image="app:v2")) == 1
    world.settle()
    assert world.ledger.unserved == 0


def test_an_old_pod_waits_until_the_new_one_was_ready_for_min_ready_seconds(world: World) -> None:
    standing(world, minReadySeconds=20)
    world.edit(image="app:v2")
    world.until(lambda: world.ready_pods(image="app:v2"))
    began = world.loop.time()
    world.until(lambda: world.pods(state=names.DRAINING))
    assert world.loop.time() - began >= 18.5
    world.settle()


def test_a_pod_that_fails_within_min_ready_seconds_takes_no_old_one_with_it(world: World) -> None:
    standing(world, minReadySeconds=20)
    world.image("app:v2", crash_after=12.0)
    world.edit(image="app:v2")
    world.run(200)
    assert len(world.ready_pods(image="app:v1", state=names.SERVING)) == 3
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


# -- scaling


def test_scaling_out_and_in_drains_the_idlest_pod(world: World) -> None:
    world.create(replicas=2)
    world.settle()
    world.edit(replicas=4)
    world.settle()
    for pod, count in zip(world.pods(), (3, 1, 5, 2), strict=True):
        world.load(pod, *[60.0] * count)
    idlest = world.pods()[1]["metadata"]["uid"]
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
    world.until(lambda: world.pods(state=names.DRAINING))
    world.run(15)
    world.edit(replicas=3)
    world.settle(limit=60)
    assert {p["metadata"]["uid"] for p in world.pods()} == before
    assert world.outcomes() == []


def test_a_scale_in_that_is_reversed_after_the_seal_makes_a_new_pod(world: World) -> None:
    world.create(replicas=3)
    world.settle()
    world.edit(replicas=2)
    world.until(lambda: world.pods(state=names.DRAINED), every=0.02)
    world.edit(replicas=3)
    world.settle()
    assert by_outcome(world) == {("app:v1", "Drained"): 1}


def test_scaling_in_the_middle_of_a_rollout(world: World) -> None:
    standing(world, replicas=4)
    world.edit(image="app:v2")
    world.until(lambda: world.pods(state=names.DRAINING))
    world.edit(replicas=2)
    world.run(40)
    world.edit(replicas=5)
    world.settle()
    assert nothing_cut(world)
    assert not world.pods(image="app:v1")


# -- changes of mind


def test_a_rollback_in_the_middle_undoes_the_drain_that_runs(world: World) -> None:
    world.create()
    world.settle()
    for pod in world.pods():
        world.load(pod, 200.0)
    world.edit(image="app:v2")
    world.until(lambda: world.pods(state=names.DRAINING))
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
    world.kubelet.vanish(world.ready_pods(state=names.SERVING)[0]["metadata"]["uid"])
    world.run(60)
    assert len(world.ready_pods(state=names.SERVING)) >= 3
    world.edit(replicas=5)
    world.run(60)
    assert len(world.ready_pods(state=names.SERVING)) >= 5
    world.edit(paused=False)
    world.settle()


def test_surge_and_unavailable_changed_in_the_middle(world: World) -> None:
    standing(world, replicas=6)
    world.edit(image="app:v2")
    world.until(lambda: world.pods(state=names.DRAINING))
    world.edit(maxSurge=3)
    world.run(15)
    world.edit(maxSurge=0, maxUnavailable=2)
    world.settle()
    assert by_outcome(world) == {("app:v1", "Drained"): 6}
    assert nothing_cut(world)


# -- a new revision that does not come up


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
    assert len(world.ready_pods(image="app:v1", state=names.SERVING)) == 3
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
    assert len(world.ready_pods(image="app:v1", state=names.SERVING)) == 3
    world.edit(image="app:v2")
    world.settle()


def test_pods_that_a_quota_refuses_stop_the_rollout_and_say_so(world: World) -> None:
    standing(world)
    world.manager.replica_sets.refuse = "exceeded quota: pods=3"
    world.edit(image="app:v2")
    world.run(60)
    assert "exceeded quota" in world.condition("Stalled")["message"]
    assert len(world.ready_pods(image="app:v1", state=names.SERVING)) == 3
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
        fewest = min(fewest, len(world.ready_pods(state=names.SERVING)))
        return not world.pods(image="app:v1")

    world.until(over)
    world.settle()
    assert fewest == 3
    assert "NoSpareCapacity" not in {event.reason for event in world.told()}
    assert nothing_cut(world)


def test_a_pod_that_waits_for_a_long_drain_is_not_late(world: World) -> None:
    world.kubelet.capacity = 1
    world.create(replicas=1, whenNoCapacity="DrainFirst", progressDeadlineSeconds=60)
    world.settle()
    world.load(world.pods()[0], 500.0)
    world.edit(image="app:v2")
    world.settle()
    assert by_outcome(world)["app:v1", "Drained"] == 1
    assert "ProgressDeadlineExceeded" not in {event.reason for event in world.told()}


def test_one_device_and_drain_first(world: World) -> None:
    world.kubelet.capacity = 1
    standing(world, replicas=1, whenNoCapacity="DrainFirst")
    world.edit(image="app:v2")
    world.settle()
    assert by_outcome(world)["app:v1", "Drained"] == 1


# -- an old revision that is not well


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


# -- drains that do not go as planned


def test_a_pod_that_vanishes_in_the_middle_of_its_drain(world: World) -> None:
    standing(world)
    world.edit(image="app:v2")
    world.until(lambda: world.pods(state=names.DRAINING))
    lost = world.pods(state=names.DRAINING)[0]
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
    world.until(lambda: world.pods(state=names.DRAINING))
    world.run(8)
    victim = world.pods(state=names.DRAINING)[0]
    world.kubelet.crash(victim["metadata"]["uid"])
    world.settle()
    said = {row["pod"]: row["outcome"] for row in world.status()["outcomes"]}
    assert said[victim["metadata"]["name"]] == "Vanished"
    assert by_outcome(world)["app:v1", "Drained"] == 2


def test_a_budget_that_is_spent_lets_the_pod_go_and_counts_what_was_cut(world: World) -> None:
    world.create(budgetSeconds=60)
    world.settle()
    for pod in world.pods():
        world.load(pod, 500.0, 20.0)
    world.edit(image="app:v2")
    world.settle()
    assert world.outcomes() == [("app:v1", "Expired", 1)] * 3
    assert (world.ledger.tokens, world.ledger.served) == (3, 3)
    assert world.status()["rollout"]["cut"] == 3


def test_hold_keeps_the_pod_until_it_is_released(world: World) -> None:
    world.create(budgetSeconds=60, onExpiry="Hold")
    world.settle()
    for pod in world.pods():
        world.load(pod, 3000.0)
    world.edit(image="app:v2")
    world.run(400)
    assert len(world.pods(state=names.DRAINING)) == 1
    assert world.condition("DrainOverdue")["reason"] == "BudgetHeld"
    assert world.outcomes() == []
    world.edit(onExpiry="Release")
    world.settle()
    assert world.outcomes() == [("app:v1", "Expired", 1)] * 3


def test_a_held_pod_stops_the_other_slot_too(world: World) -> None:
    world.create(budgetSeconds=60, onExpiry="Hold", replicas=4, maxSurge=2)
    world.settle()
    for pod in world.pods():
        world.load(pod, 3000.0)
    world.edit(image="app:v2")
    world.until(lambda: len(world.pods(state=names.DRAINING)) == 2)
    # One of the two ends by itself while the other one is held: its slot stays empty.
    gone, held = world.pods(state=names.DRAINING)
    world.run(100)
    world.annotate(PODS, gone["metadata"]["name"], release="its client is gone")
    world.run(200)
    assert [p["metadata"]["name"] for p in world.pods(state=names.DRAINING)] == [held["metadata"]["name"]]
    assert len(world.ready_pods(image="app:v1", state=names.SERVING)) == 2
    world.edit(onExpiry="Release")
    world.settle()


def test_hold_ends_with_the_stream(world: World) -> None:
    world.create(budgetSeconds=60, onExpiry="Hold")
    world.settle()
    for pod in world.pods():
        world.load(pod, 300.0)
    world.edit(image="app:v2")
    world.settle()
    assert world.outcomes() == [("app:v1", "Drained", 0)] * 3


def test_hold_ends_by_rolling_back(world: World) -> None:
    world.create(budgetSeconds=60, onExpiry="Hold")
    world.settle()
    for pod in world.pods():
        world.load(pod, 3000.0)
    world.edit(image="app:v2")
    world.run(200)
    world.edit(image="app:v1")
    world.settle()
    assert not any(image == "app:v1" for image, _, _ in world.outcomes())


def test_hold_ends_by_break_glass(world: World) -> None:
    world.create(budgetSeconds=60, onExpiry="Hold", replicas=1)
    world.settle()
    world.load(world.pods()[0], 3000.0)
    world.edit(image="app:v2")
    world.run(200)
    held = world.pods(state=names.DRAINING)[0]
    world.annotate(PODS, held["metadata"]["name"], release="the client is gone")
    world.run(5)
    world.settle()
    said = {row["pod"]: row["outcome"] for row in world.status()["outcomes"]}
    assert said[held["metadata"]["name"]] in ("Released", "Vanished")


def test_a_budget_raised_in_time_moves_the_deadline(world: World) -> None:
    world.create(budgetSeconds=60)
    world.settle()
    for pod in world.pods():
        world.load(pod, 100.0)
    world.edit(image="app:v2")
    world.until(lambda: world.pods(state=names.DRAINING))
    world.run(30)
    world.edit(budgetSeconds=600)
    world.settle()
    assert nothing_cut(world)


@pytest.mark.parametrize(
    "conduct",
    ["ignores", "sealed while busy", "negative count", "falling sequence", "foreign id", "hangs", "500", "rubbish"],
)
def test_a_pod_that_misbehaves_is_bounded_by_its_budget_and_never_taken_for_empty(world: World, conduct: str) -> None:
    world.create(budgetSeconds=90)
    world.settle()
    odd = world.pods()[0]
    world.process(odd).conduct = conduct
    for pod in world.pods():
        world.load(pod, 40.0)
    began = world.loop.time()
    world.edit(image="app:v2")
    world.settle()
    outcomes = dict(zip(world.checks.outcomes, world.outcomes(), strict=True))
    assert outcomes[odd["metadata"]["uid"]][1] in ("Expired", "Drained")
    assert sum(row[1] == "Drained" for row in outcomes.values()) >= 2
    assert world.loop.time() - began < 400


def test_a_pod_that_says_sealed_at_once_is_not_believed_before_the_propagation_time(world: World) -> None:
    world.create(budgetSeconds=90, replicas=1)
    world.settle()
    world.process(world.pods()[0]).conduct = "sealed at once"
    world.edit(image="app:v2")
    world.until(lambda: world.pods(state=names.DRAINING))
    began = world.loop.time()
    world.until(lambda: world.pods(state=names.DRAINED), every=0.05)
    assert world.loop.time() - began > 4.5
    world.settle()


@pytest.mark.parametrize("how", ["refused", "dropped"])
def test_no_pod_is_drained_while_no_pod_answers(world: World, how: str) -> None:
    standing(world)
    world.network.severed = how
    world.edit(image="app:v2")
    world.run(120)
    assert world.outcomes() == []
    assert not world.pods(state=names.DRAINING)
    assert ":9901" in world.condition("DrainEndpointUnreachable")["message"]
    world.network.severed = ""
    world.settle()
    assert by_outcome(world) == {("app:v1", "Drained"): 3}


def test_an_annotation_rolls_although_no_pod_answers(world: World) -> None:
    world.create(budgetSeconds=30)
    world.settle()
    world.network.severed = "dropped"
    world.edit(image="app:v2")
    world.run(60)
    world.annotate(LLM_SERVICES, "chat", drain_unreachable="the mesh is strict")
    world.settle()
    assert by_outcome(world) == {("app:v1", "Expired"): 3}


def test_a_stream_that_stalls_holds_no_drain(world: World) -> None:
    world.create(stalledAfterSeconds=30, replicas=1)
    world.settle()
    process = world.process(world.pods()[0])
    process.arrive(5000.0)
    process.contract.progress("r1", world.loop.time())
    world.edit(image="app:v2")
    world.settle(limit=300)
    assert world.ledger.tokens == 1


# -- what others do


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
    world.until(lambda: world.pods(state=names.DRAINING))
    world.run(10)
    world.edit(image="app:v1")
    world.until(lambda: world.pods(image="app:v1", state=names.SERVING))
    world.settle()
    world.controller_lag = (0.5, 0.6)
    world.edit(restartedAt="2026-01-01T00:10:00Z")
    world.settle()
    assert by_outcome(world)["app:v1", "Expired"] == 1


def test_a_lost_pod_is_replaced_before_another_one_is_drained(world: World) -> None:
    standing(world, replicas=4)
    world.edit(image="app:v2")
    world.until(lambda: world.pods(state=names.DRAINING))
    for pod in world.ready_pods(image="app:v1", state=names.SERVING)[:2]:
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
        most = max(most, len(world.pods(state=names.DRAINING)))
    assert most == 1
    assert world.condition("LocksMissing")
    assert nothing_cut(world)


def test_a_draining_label_set_by_hand_is_a_wish(world: World) -> None:
    standing(world)
    pod = world.pods()[0]
    change = {"metadata": {"labels": {names.STATE: names.DRAINING}}}
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


def test_twenty_services_roll_at_once_and_a_broken_one_slows_nobody() -> None:
    with World(seed=5, traced=False) as world:
        services = [f"svc{number:02d}" for number in range(20)]
        for name in services:
            world.create(name, replicas=2, budgetSeconds=600)
        for name in services:
            world.settle(name)
        for name in services:
            for pod in world.pods(name):
                world.load(pod, 30.0)
        odd = dict(zip(services, ("hangs", "500", "ignores", "negative count", "refused"), strict=False))
        for name, conduct in odd.items():
            world.process(world.pods(name)[0]).conduct = conduct
        world.image("bad:v2", pullable=False)
        began = world.loop.time()
        for name in services:
            world.edit(name, image="bad:v2" if name == "svc05" else "app:v2")
        took = {}
        for _ in range(400):
            world.run(1.0)
            for name in services:
                if name not in took and world.missing(name) is None:
                    took[name] = world.loop.time() - began
            if len(took) >= 14:
                break
        good = [name for name in services if name not in odd and name != "svc05"]
        assert set(good) <= set(took)
        assert max(took[name] for name in good) < 120
        world.edit("svc05", image="app:v3")
        for name in services:
            world.settle(name)

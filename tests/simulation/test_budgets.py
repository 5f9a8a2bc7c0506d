"""Budgets that are spent, changed or held."""

from simulation.stories import loaded, nothing_cut
from simulation.world import World
from tidegate.api import names
from tidegate.api.conditions import PodState
from tidegate.cluster.port import PODS


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
    assert len(world.pods(state=PodState.DRAINING)) == 1
    assert world.condition("DrainOverdue")["reason"] == "BudgetHeld"
    assert world.outcomes() == []
    world.edit(onExpiry="Release")
    world.settle()
    assert world.outcomes() == [("app:v1", "Expired", 1)] * 3


def test_hold_says_what_a_person_can_do_and_a_raised_budget_ends_the_complaint(world: World) -> None:
    loaded(world, 300.0, budgetSeconds=60, onExpiry="Hold")
    world.edit(image="app:v2")
    world.until(lambda: world.condition("DrainOverdue"))
    said = world.condition("DrainOverdue")["message"]
    for remedy in ("spec.drain.budgetSeconds", "onExpiry: Release", "push the old revision again", names.RELEASE):
        assert remedy in said
    held = world.pods(state=PodState.DRAINING)[0]["metadata"]["name"]
    assert held in said
    world.edit(budgetSeconds=600)
    world.run(10)
    assert not world.condition("DrainOverdue")
    assert [p["metadata"]["name"] for p in world.pods(state=PodState.DRAINING)] == [held]
    world.settle()
    assert world.outcomes() == [("app:v1", "Drained", 0)] * 3


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
    held = world.pods(state=PodState.DRAINING)[0]
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
    world.until(lambda: world.pods(state=PodState.DRAINING))
    world.run(30)
    world.edit(budgetSeconds=600)
    world.settle()
    assert nothing_cut(world)


def test_a_stream_that_stalls_holds_no_drain(world: World) -> None:
    world.create(stalledAfterSeconds=30, replicas=1)
    world.settle()
    process = world.process(world.pods()[0])
    process.arrive(5000.0)
    process.contract.progress("r1", world.loop.time())
    world.edit(image="app:v2")
    world.settle(limit=300)
    assert world.ledger.tokens == 1


def test_a_budget_lowered_in_the_middle_of_a_drain_shortens_it(world: World) -> None:
    loaded(world, 500.0, replicas=1, budgetSeconds=600)
    world.edit(image="app:v2")
    world.until(lambda: world.pods(state=PodState.DRAINING))
    world.run(30)
    world.edit(budgetSeconds=60)
    world.settle(limit=120)
    assert world.outcomes() == [("app:v1", "Expired", 1)]
    assert world.ledger.tokens == 1


def test_a_budget_that_is_below_the_time_already_spent_leaves_time_for_the_tokens(world: World) -> None:
    loaded(world, 500.0, replicas=1, budgetSeconds=600)
    world.edit(image="app:v2")
    world.until(lambda: world.pods(state=PodState.DRAINING))
    world.run(100)
    world.edit(budgetSeconds=10)
    world.settle(limit=60)
    assert world.outcomes() == [("app:v1", "Expired", 1)]
    assert (world.ledger.tokens, world.ledger.resets) == (1, [])


def test_a_budget_changed_after_the_tokens_were_sent_changes_nothing(world: World) -> None:
    loaded(world, 500.0, replicas=1, budgetSeconds=60)
    world.edit(image="app:v2")
    world.until(lambda: world.ledger.tokens, every=0.1)
    world.edit(budgetSeconds=600)
    world.settle(limit=60)
    assert world.outcomes() == [("app:v1", "Expired", 1)]


def test_a_held_pod_stops_the_other_slot_too(world: World) -> None:
    world.create(budgetSeconds=60, onExpiry="Hold", replicas=4, maxSurge=2)
    world.settle()
    for pod in world.pods():
        world.load(pod, 3000.0)
    world.edit(image="app:v2")
    world.until(lambda: len(world.pods(state=PodState.DRAINING)) == 2)
    # One of the two ends by itself while the other one is held: its slot stays empty.
    gone, held = world.pods(state=PodState.DRAINING)
    world.run(100)
    world.annotate(PODS, gone["metadata"]["name"], release="its client is gone")
    world.run(200)
    assert [p["metadata"]["name"] for p in world.pods(state=PodState.DRAINING)] == [held["metadata"]["name"]]
    assert len(world.ready_pods(image="app:v1", state=PodState.SERVING)) == 2
    world.edit(onExpiry="Release")
    world.settle()

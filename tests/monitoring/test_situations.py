"""Each alert in a situation of a simulated service, over what the operator itself exposes in it, and in no other.

`alerts.yaml` tries the thresholds with series of its own; here nothing is made up, so a label or a value that the
operator does not expose as a rule expects it shows. The durations are the shipped ones.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from monitoring.recording import Recording
from monitoring.shipped import alerts
from simulation.world import World
from tidegate.api.conditions import PodState
from tidegate.cluster.port import PODS

MINUTE = 60
DRAIN_STUCK = ("TidegateDrainStuck", "chat")
BUDGET_TRUNCATING = ("TidegateBudgetTruncating", "chat")
STALLED = ("TidegateRolloutStalled", "chat")
VANISHED = ("TidegatePodVanished", "chat")
FAILING = ("TidegateServiceFailing", "chat")
DOWN = ("TidegateOperatorDown", "")
BLIND = ("TidegateOperatorNotReconciling", "")


@pytest.fixture
def world() -> Iterator[World]:
    with World(seed=31, traced=False) as made:
        made.steady = False
        yield made


def begin(world: World, **given: object) -> Recording:
    """A service that stands, and a quarter of an hour in which nothing is wrong."""
    world.create(**given)
    world.settle()
    recording = Recording(world)
    recording.run(15 * MINUTE)
    return recording


def roll(world: World, *seconds: float, image: str = "app:v2") -> None:
    """A new image, while every pod holds streams that last so long."""
    for pod in world.pods():
        world.load(pod, *seconds)
    world.edit(image=image)


def test_no_alert_is_left_out() -> None:
    tried = {DRAIN_STUCK, BUDGET_TRUNCATING, STALLED, VANISHED, FAILING, DOWN, BLIND}
    assert {rule["alert"] for rule in alerts()} == {alert for alert, _ in tried}


def test_healthy_rollouts_a_scale_in_and_a_change_of_operator_alert_nobody(world: World, tmp_path: Path) -> None:
    recording = begin(world)
    for number, length in enumerate((40.0, 90.0, 300.0), start=2):
        roll(world, length, length / 2, image=f"app:v{number}")
        recording.run(25 * MINUTE)
        assert world.missing() is None
    world.kill_operator()
    recording.run(5 * MINUTE)
    world.edit(replicas=2)
    recording.run(10 * MINUTE)
    assert world.missing() is None
    assert world.status()["drainTimes"]["samples"] >= 9
    assert recording.fired(tmp_path) == set()


def test_a_drain_that_is_held_past_its_deadline_is_stuck_and_stalls(world: World, tmp_path: Path) -> None:
    recording = begin(world, budgetSeconds=60, onExpiry="Hold")
    roll(world, 5000.0)
    began = recording.seconds
    recording.run(10 * MINUTE)
    assert recording.fired(tmp_path) == {DRAIN_STUCK, STALLED}
    assert recording.fired(tmp_path, began) == set()
    assert recording.fired(tmp_path, began + 2 * MINUTE) == set(), "not before a minute past the deadline, for one"


def test_a_drain_five_times_as_long_as_drains_are_is_stuck_long_before_its_deadline(
    world: World, tmp_path: Path
) -> None:
    world.create(initialSeconds=20)
    world.settle()
    for number in range(2, 8):
        roll(world, 15.0, image=f"app:v{number}")
        world.settle()
    bound = world.status()["drainTimes"]["p99UpperSeconds"]
    recording = Recording(world)
    roll(world, 1500.0, image="app:v9")
    recording.run(5 * bound)
    assert recording.fired(tmp_path) == set()
    recording.run(5 * MINUTE)
    assert recording.seconds < 1800 - MINUTE
    assert recording.fired(tmp_path) == {DRAIN_STUCK}


def test_a_budget_that_cuts_drains_is_told_and_told_on_while_there_is_no_p99(world: World, tmp_path: Path) -> None:
    recording = begin(world, budgetSeconds=60)
    began = recording.seconds
    roll(world, 5000.0)
    recording.run(10 * MINUTE)
    assert recording.fired(tmp_path) == {BUDGET_TRUNCATING}
    assert recording.fired(tmp_path, began) == set()
    # The hour in which an outcome alone alerts is over; the condition stands, and what it says.
    recording.run(70 * MINUTE)
    assert world.condition("BudgetTruncating")
    later = Recording(world)
    later.run(5 * MINUTE)
    assert later.fired(tmp_path) == {BUDGET_TRUNCATING}


def test_one_drain_cut_among_many_is_told_for_an_hour(world: World, tmp_path: Path) -> None:
    world.create(budgetSeconds=60)
    world.settle()
    for number in range(2, 9):
        roll(world, 5.0, image=f"app:v{number}")
        world.settle()
    recording = Recording(world)
    world.load(world.pods()[0], 5000.0)
    world.edit(image="app:v99")
    recording.run(10 * MINUTE)
    assert not world.condition("BudgetTruncating")
    assert recording.fired(tmp_path) == {BUDGET_TRUNCATING}
    recording.run(55 * MINUTE)
    later = Recording(world)
    later.run(5 * MINUTE)
    assert later.fired(tmp_path) == set()


def test_a_revision_that_does_not_come_up_is_a_stalled_rollout(world: World, tmp_path: Path) -> None:
    recording = begin(world)
    began = recording.seconds
    world.image("app:v2", crash_after=1.0)
    world.edit(image="app:v2")
    recording.run(20 * MINUTE)
    assert recording.fired(tmp_path) == {STALLED}
    assert recording.fired(tmp_path, began) == set()


@pytest.mark.parametrize("operator_there", [True, False], ids=["seen", "while no operator ran"])
def test_a_pod_that_goes_from_its_drain_is_told(world: World, tmp_path: Path, operator_there: bool) -> None:
    recording = begin(world)
    began = recording.seconds
    roll(world, 200.0)
    world.until(lambda: world.pods(state=PodState.DRAINING))
    world.run(10)
    (lost,) = world.pods(state=PodState.DRAINING)
    if not operator_there:
        world.stop_operator()
    world.kubelet.vanish(lost["metadata"]["uid"])
    recording.run(MINUTE)
    if not operator_there:
        world.start_operator()
    recording.run(5 * MINUTE)
    assert recording.fired(tmp_path) == {VANISHED}
    assert recording.fired(tmp_path, began) == set()


def test_no_operator_for_five_minutes_is_told(world: World, tmp_path: Path) -> None:
    recording = begin(world)
    world.stop_operator()
    began = recording.seconds
    recording.run(12 * MINUTE)
    assert recording.fired(tmp_path) == {DOWN}
    assert recording.fired(tmp_path, began + 4 * MINUTE) == set()
    world.start_operator()
    later = Recording(world)
    later.run(10 * MINUTE)
    assert later.fired(tmp_path) == set()


def test_an_operator_that_cannot_list_is_told(world: World, tmp_path: Path) -> None:
    recording = begin(world)
    world.faults.refused.add(PODS)
    # Before its last list is ten minutes old, by which it would be told too.
    recording.run(9 * MINUTE)
    assert recording.fired(tmp_path) == {BLIND}
    world.faults.refused.clear()
    world.run(2 * MINUTE)
    later = Recording(world)
    later.run(10 * MINUTE)
    assert later.fired(tmp_path) == set()


def test_an_operator_that_does_not_get_to_its_queue_is_told(world: World, tmp_path: Path) -> None:
    for name in ("a", "b", "c", "d", "e"):
        world.create(name, replicas=1)
        world.settle(name)
    recording = Recording(world)
    quick, world.faults.latency = world.faults.latency, (600.0, 600.0)
    for name in ("a", "b", "c", "d", "e"):
        world.edit(name, image="app:v2")
    recording.run(9 * MINUTE)
    world.faults.latency = quick
    assert recording.fired(tmp_path) == {BLIND}


def test_a_service_whose_writes_are_refused_is_told(world: World, tmp_path: Path) -> None:
    recording = begin(world)
    began = recording.seconds
    refusing = True
    world.faults.scripted += [(lambda verb, kind: refusing and verb == "apply", "500")] * 1000
    world.edit(image="app:v2")
    recording.run(10 * MINUTE)
    refusing = False
    assert recording.fired(tmp_path) == {FAILING}
    assert recording.fired(tmp_path, began) == set()

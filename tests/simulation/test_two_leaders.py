"""Two operators that each take themselves for the only one, as after a lease that expired in a long pause.

Each has its own store, its own conversations and its own delays. What one does the other learns late, and in between
decides on the world as it was. So the floor of serving pods is each one's own: at the same moment both may take a pod
away, and only a lease keeps them from it. Everything else holds as with one.
"""

from collections import Counter

import pytest

from simulation.process import Weather
from simulation.stories import by_outcome, loaded, nothing_cut, standing
from simulation.world import World
from tidegate.api.conditions import PodState
from tidegate.cluster.port import DEPLOYMENTS, PODS

LATE = Weather(lag=(0.0, 0.5))
STORMY = Weather(lag=(0.0, 0.5), duplicate=0.3, reorder=0.1)

either = pytest.mark.parametrize("weather", [Weather(), LATE, STORMY], ids=["calm", "late", "stormy"])


@either
def test_a_rollout_drains_and_pays_for_each_pod_once(world: World, weather: Weather) -> None:
    world.start_rival(weather)
    standing(world, replicas=4, maxSurge=2)
    world.edit(image="app:v2")
    world.settle()
    assert by_outcome(world) == {("app:v1", "Drained"): 4}
    assert len(world.checks.drains) == 4
    assert nothing_cut(world)
    assert Counter(world.checks.created.values()) == {4: 2}
    assert_each_drain_is_a_sample(world)


def assert_each_drain_is_a_sample(world: World) -> None:
    """Once, by whichever of the two."""
    learnt = world.learnt()
    assert sorted(learnt.counted) == sorted(pod["metadata"]["name"] for pod in world.checks.outcomes.values())
    assert learnt.drains.n == learnt.arrivals.n == len(learnt.counted)
    assert learnt.teardowns.n == len(set(learnt.teardown_counted))


@either
def test_changes_of_mind(world: World, weather: Weather) -> None:
    world.start_rival(weather)
    standing(world, replicas=4, maxSurge=2, maxUnavailable=1)
    for change in ({"image": "app:v2"}, {"image": "app:v3"}, {"replicas": 2}, {"image": "app:v2", "replicas": 5}):
        world.edit(**change)
        world.run(15)
    world.settle()
    assert nothing_cut(world)
    assert len(world.ready_pods(image="app:v2", state=PodState.SERVING)) == 5


@either
def test_a_budget_is_spent_once(world: World, weather: Weather) -> None:
    world.start_rival(weather)
    loaded(world, 500.0, 20.0, budgetSeconds=60)
    world.edit(image="app:v2")
    world.settle()
    assert world.outcomes() == [("app:v1", "Expired", 1)] * 3
    assert (world.ledger.tokens, world.ledger.served) == (3, 3)
    assert_each_drain_is_a_sample(world)
    assert world.learnt().drains.censored_n == 3


@either
def test_a_rollback_gives_the_pod_back_although_the_other_still_drains_it(world: World, weather: Weather) -> None:
    world.start_rival(weather)
    loaded(world, 200.0)
    before = {p["metadata"]["uid"] for p in world.pods()}
    world.edit(image="app:v2")
    world.until(lambda: world.pods(state=PodState.DRAINING))
    world.run(10)
    world.edit(image="app:v1")
    world.settle()
    assert {p["metadata"]["uid"] for p in world.pods()} == before
    assert nothing_cut(world)


@either
def test_a_pod_that_vanishes_is_replaced_once(world: World, weather: Weather) -> None:
    world.start_rival(weather)
    standing(world, replicas=4)
    world.edit(image="app:v2")
    world.until(lambda: world.pods(state=PodState.DRAINING))
    world.kubelet.vanish(world.pods(state=PodState.DRAINING)[0]["metadata"]["uid"])
    world.settle()
    assert len(list(world.server.all(PODS))) == 4
    assert {d["spec"]["replicas"] for d in world.server.all(DEPLOYMENTS)} == {0, 4}
    assert nothing_cut(world)


def test_one_of_two_is_killed_time_and_again(world: World) -> None:
    world.start_rival(LATE)
    standing(world, replicas=4)
    world.edit(image="app:v2")
    for _ in range(8):
        world.run(4)
        if world.operator is not None:
            world.kill_operator(1.0)
    world.settle()
    assert by_outcome(world) == {("app:v1", "Drained"): 4}
    assert nothing_cut(world)

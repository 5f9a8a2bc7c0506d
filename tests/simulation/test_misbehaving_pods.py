"""Pods that lie, hang or cannot be reached are bounded by their budget and never taken for empty."""

import pytest

from simulation.stories import by_outcome, loaded, standing
from simulation.world import World
from tidegate.api.conditions import PodState
from tidegate.cluster.port import LLM_SERVICES


@pytest.mark.parametrize(
    "conduct",
    [
        "ignores",
        "sealed while busy",
        "negative count",
        "falling sequence",
        "foreign id",
        "hangs",
        "500",
        "404",
        "rubbish",
    ],
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


@pytest.mark.parametrize(
    ("conduct", "said"),
    [
        ("sealed while busy", "in flight"),
        ("negative count", "inFlight"),
        ("falling sequence", "sequence decreases"),
        ("hangs", "no answer in time"),
        ("500", "HTTP 500"),
        ("404", "HTTP 404"),
        ("rubbish", "not JSON"),
        ("refused", "connection refused"),
        ("dropped", "connection timed out"),
    ],
)
def test_what_is_wrong_with_a_pod_that_misbehaves_stands_in_the_status(world: World, conduct: str, said: str) -> None:
    loaded(world, 500.0, replicas=1, budgetSeconds=90)
    world.edit(image="app:v2")
    world.until(lambda: world.pods(state=PodState.DRAINING))
    world.run(8)
    world.process(world.pods(state=PodState.DRAINING)[0]).conduct = conduct
    world.run(40)
    row = world.status()["pods"][0]
    assert said in row["trouble"]
    assert world.outcomes() == []
    world.settle(limit=120)
    assert by_outcome(world) == {("app:v1", "Expired"): 1}


def test_a_pod_that_says_sealed_at_once_is_not_believed_before_the_propagation_time(world: World) -> None:
    world.create(budgetSeconds=90, replicas=1)
    world.settle()
    world.process(world.pods()[0]).conduct = "sealed at once"
    world.edit(image="app:v2")
    world.until(lambda: world.pods(state=PodState.DRAINING))
    began = world.loop.time()
    world.until(lambda: world.pods(state=PodState.DRAINED), every=0.05)
    assert world.loop.time() - began > 4.5
    world.settle()


@pytest.mark.parametrize("how", ["refused", "dropped"])
def test_no_pod_is_drained_while_no_pod_answers(world: World, how: str) -> None:
    standing(world)
    world.network.severed = how
    world.edit(image="app:v2")
    world.run(120)
    assert world.outcomes() == []
    assert not world.pods(state=PodState.DRAINING)
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

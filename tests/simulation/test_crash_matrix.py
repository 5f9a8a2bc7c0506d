"""Kill the operator before and after every single write, or let the write fail, and compare how it all ends.

In good weather and while its watches lag. The comparison is with the run where nothing happened, under a mask of uids,
versions, times and generated names: per image the pods that were made, who was deleted, how each drain ended, what was
cut, and the counts in the end.
"""

import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import pytest

from simulation.process import Weather
from simulation.world import World
from tidegate.api import names
from tidegate.api.conditions import Outcome
from tidegate.cluster.port import DEPLOYMENTS, SECRETS, SERVICES

SEED = 11


def created(world: World) -> None:
    world.create(replicas=2)
    world.settle()


def _loaded(world: World, *seconds: float, **spec: Any) -> None:
    world.create(**spec)
    world.settle()
    for pod in world.pods():
        world.load(pod, *seconds)


def rolled(world: World) -> None:
    _loaded(world, 30.0, 12.0, replicas=2)
    world.edit(image="app:v2")
    world.settle()


def rolled_without_surge(world: World) -> None:
    _loaded(world, 20.0, replicas=2, maxSurge=0, maxUnavailable=1)
    world.edit(image="app:v2")
    world.settle()


def scaled_in_and_out(world: World) -> None:
    _loaded(world, 20.0, replicas=3)
    world.edit(replicas=1)
    world.settle()
    world.edit(replicas=2)
    world.settle()


def rolled_back(world: World) -> None:
    _loaded(world, 150.0, replicas=2)
    world.edit(image="app:v2")
    world.until(lambda: world.pods(state=names.DRAINING))
    world.run(12)
    world.edit(image="app:v1")
    world.settle()


def expired(world: World) -> None:
    _loaded(world, 900.0, replicas=1, budgetSeconds=40)
    world.edit(image="app:v2")
    world.settle()


def fixed(world: World) -> None:
    world.image("app:v2", crash_after=1.0)
    _loaded(world, 20.0, replicas=2)
    world.edit(image="app:v2")
    world.run(60)
    world.edit(image="app:v3")
    world.settle()


STORIES: tuple[Callable[[World], None], ...] = (
    created,
    rolled,
    rolled_without_surge,
    scaled_in_and_out,
    rolled_back,
    expired,
    fixed,
)
CORE = (created, rolled, scaled_in_and_out)
"""Told in bad weather in each run too; all of them are in the long lane."""


def ending(world: World) -> dict[str, Any]:
    """How a run ended, without what differs from run to run."""
    images = {
        d["metadata"]["labels"][names.REVISION]: d["spec"]["template"]["spec"]["containers"][0]["image"]
        for d in world.server.all(DEPLOYMENTS)
    }
    status = world.status()
    return {
        "pods made": {images[revision]: count for revision, count in world.checks.created.items()},
        "pods deleted": len(world.checks.deletes),
        "drains": Counter(world.outcomes()),
        "drains in status": Counter((row["outcome"], row.get("cut")) for row in status.get("outcomes") or []),
        "tokens": world.ledger.tokens,
        "served": world.ledger.served,
        "counts": {
            images[d["metadata"]["labels"][names.REVISION]]: d["spec"]["replicas"]
            for d in world.server.all(DEPLOYMENTS)
        },
        "services": [s["metadata"]["name"] for s in world.server.all(SERVICES)],
        "secrets": [s["metadata"]["name"] for s in world.server.all(SECRETS)],
        "status": {key: status.get(key) for key in ("phase", "serving", "updated", "draining", "replicas")},
        "cut": (status.get("rollout") or {}).get("cut"),
        "drains counted": (world.learnt().drains.n, world.status().get("drainTimes", {}).get("samples", 0)),
        "one sample a drain": world.learnt().drains.n
        == sum(outcome in (Outcome.DRAINED, Outcome.EXPIRED, Outcome.VANISHED) for _, outcome, _ in world.outcomes()),
    }


@dataclass(frozen=True, slots=True)
class Trouble:
    """What happens in one run, at the write of this number, counted from 1."""

    write: int
    what: str
    """`killed before`, `killed after`, or a fault of `port.Faults`."""
    weather: Weather | None = None

    def __str__(self) -> str:
        return f"{self.what} write {self.write}{f' in {self.weather}' if self.weather else ''}"


KILLS = ("killed before", "killed after")
FAULTS = ("conflict", "429", "500", "timeout")
LAG = Weather(lag=(0.0, 2.0))
STORM = Weather(lag=(0.0, 2.0), drop=0.1, duplicate=0.2, reorder=0.2)


def play(story: Callable[[World], None], trouble: Trouble | None) -> tuple[dict[str, Any], int]:
    """One run; returns its ending and how many writes the operator sent."""
    with World(SEED, traced=False) as world:
        world.steady = False
        if trouble is not None:
            world.weather = trouble.weather or world.weather
            if trouble.what in KILLS:
                world.kill_at(trouble.write, after=trouble.what == "killed after")
            else:
                world.faults.at_write[trouble.write] = trouble.what
        story(world)
        if trouble is not None:
            assert world.deaths == (trouble.what in KILLS), "nobody died"
            assert not world.faults.at_write, "nothing failed"
        # What was in flight when it ended ends too, so that the sums can be compared.
        world.run(60)
        return ending(world), len(world.sent)


def disturbed(story: Callable[[World], None], troubles: list[Trouble]) -> list[str]:
    """Play a story once per trouble; returns what went otherwise than undisturbed."""
    calm, _ = play(story, None)
    found = []
    for trouble in troubles:
        where = f"{story.__name__}, {trouble}"
        try:
            end, _ = play(story, trouble)
        except AssertionError as error:
            found.append(f"{where}: {str(error).splitlines()[0]}")
            continue
        found += [f"{where}: {key} {end[key]}, undisturbed {calm[key]}" for key in calm if end[key] != calm[key]]
    return found


def judge(story: Callable[[World], None], *what: str, weather: Weather | None = None) -> None:
    """Each of `what` at each write of the story, on all processors."""
    _, writes = play(story, None)
    # In other weather it may send fewer writes; those at the end are status alone.
    last = writes if weather is None else writes * 3 // 4
    troubles = [Trouble(at, kind, weather) for at in range(1, last + 1) for kind in what]
    count = os.cpu_count() or 1
    with ProcessPoolExecutor(count, mp_context=get_context("fork")) as pool:
        parts = [troubles[first::count] for first in range(count)]
        found = [text for part in pool.map(disturbed, [story] * count, parts) for text in part]
    assert not found, "\n".join(found[:40])
    assert len(troubles) > 10


every_story = pytest.mark.parametrize("story", STORIES, ids=[story.__name__ for story in STORIES])
core_stories = pytest.mark.parametrize("story", CORE, ids=[story.__name__ for story in CORE])


@every_story
def test_a_successor_carries_on_from_the_cluster_alone(story: Callable[[World], None]) -> None:
    judge(story, *KILLS)


@core_stories
def test_a_write_that_fails_or_is_not_answered_changes_no_ending(story: Callable[[World], None]) -> None:
    judge(story, *FAULTS)


@pytest.mark.long
@every_story
@pytest.mark.parametrize("weather", [None, LAG, STORM], ids=["calm", "lag", "storm"])
def test_kills_and_faults_in_every_weather_change_no_ending(
    story: Callable[[World], None], weather: Weather | None
) -> None:
    judge(story, *KILLS, *FAULTS, weather=weather)

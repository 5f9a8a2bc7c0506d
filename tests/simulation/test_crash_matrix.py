"""Kill the operator before and after every single write, and compare how it all ends with the run where nobody died.

What lives is compared under a mask of uids, versions, times and generated names: per image the pods that were made, who
was deleted, how each drain ended, what was cut, and the counts in the end.
"""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest

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


def play(story: Callable[[World], None], kill: tuple[int, bool] | None) -> tuple[dict[str, Any], int]:
    """One run; returns its ending and how many writes the operator sent."""
    with World(SEED, traced=False) as world:
        world.steady = False
        if kill is not None:
            world.kill_at(kill[0], after=kill[1])
        story(world)
        if kill is not None:
            assert world.deaths == 1, f"nobody died at write {kill[0]}"
        # What was in flight when it ended ends too, so that the sums can be compared.
        world.run(60)
        return ending(world), len(world.sent)


def killed(number: int, kills: list[tuple[int, bool]]) -> list[str]:
    """Play a story once per kill; returns what went otherwise than undisturbed."""
    story = STORIES[number]
    calm, _ = play(story, None)
    found = []
    for kill in kills:
        where = f"{story.__name__}, killed {'after' if kill[1] else 'before'} write {kill[0]}"
        try:
            end, _ = play(story, kill)
        except AssertionError as error:
            found.append(f"{where}: {str(error).splitlines()[0]}")
            continue
        found += [f"{where}: {key} {end[key]}, undisturbed {calm[key]}" for key in calm if end[key] != calm[key]]
    return found


@pytest.mark.parametrize("number", range(len(STORIES)), ids=[story.__name__ for story in STORIES])
def test_a_successor_carries_on_from_the_cluster_alone(number: int) -> None:
    _, writes = play(STORIES[number], None)
    kills = [(at, after) for at in range(1, writes + 1) for after in (False, True)]
    with ProcessPoolExecutor(2, mp_context=get_context("fork")) as pool:
        found = [text for part in pool.map(killed, [number] * 2, [kills[0::2], kills[1::2]]) for text in part]
    assert not found, "\n".join(found[:40])
    assert len(kills) > 10

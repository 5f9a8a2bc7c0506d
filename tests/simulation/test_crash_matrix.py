"""Kill the operator before and after every single write, or let the write fail, and compare how it all ends.

In good weather and while its watches lag. The comparison is with the run where nothing happened, under a mask of uids,
versions, times and generated names: per image the pods that were made, who was deleted, how each drain ended, what was
cut, and the counts in the end.
"""

import gc
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from simulation.branches import Branch, Branches
from simulation.process import Weather
from simulation.world import World
from tidegate.api import names
from tidegate.api.conditions import Outcome, PodState
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
    # The streams outlast all of it, also where the operator learns of a change from its next list alone.
    _loaded(world, 600.0, replicas=2)
    world.edit(image="app:v2")
    world.until(lambda: world.pods(state=PodState.DRAINING))
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
    world.until(lambda: world.pods(image="app:v2"))
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
"""Run in bad weather in each run too; all of them are in the long lane."""


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


KILLS = ("killed before", "killed after")
FAULTS = ("conflict", "429", "500", "timeout")
"""Those of `port.Faults`."""
LAG = Weather(lag=(0.0, 2.0))
STORM = Weather(lag=(0.0, 2.0), drop=0.1, duplicate=0.2, reorder=0.2)
Story = Callable[[World], None]


@dataclass(frozen=True, slots=True)
class Run:
    """A run from its beginning to its end."""

    ending: dict[str, Any]
    writes: int
    trace: list[str]


def strike(world: World, branch: Branch) -> None:
    """Let it happen, at the write that is about to be sent or at one to come."""
    if branch.variant in KILLS:
        world.kill_at(branch.write, after=branch.variant == "killed after")
    else:
        world.faults.at_write[branch.write] = branch.variant


def play(story: Story, weather: Weather | None, within: Branches | Branch | None = None, *, traced: bool = True) -> Run:
    """One run: undisturbed, that of one branch from its start, or of all `Branches`: then each child returns too."""
    world = World(SEED, traced=traced)
    if isinstance(within, Branches):
        world.sent = within
        within.strike = partial(strike, world)
    with world:
        world.steady = False
        world.weather = weather or world.weather
        if isinstance(within, Branch):
            strike(world, within)
        story(world)
        struck = within.here if isinstance(within, Branches) else within
        if struck is not None:
            assert world.deaths == (struck.variant in KILLS), "nobody died"
            assert not world.faults.at_write, "nothing failed"
        # What was in flight when it ended ends too, so that the sums can be compared.
        world.run(60)
        return Run(ending(world), len(world.sent), world.trace)


def explore(
    story: Story, weather: Weather | None, branches: Branches, *, traced: bool = False
) -> tuple[Run, dict[Branch, Any]]:
    """The undisturbed run, and by branch what each came to: as told, or an error."""
    # A garbage collection in a child would write to, and so copy, all that it shares with the parent.
    gc.collect()
    gc.freeze()
    try:
        told = play(story, weather, branches, traced=traced)
        branches.report(told)
    except BaseException as error:
        branches.report(RuntimeError(f"{type(error).__name__}: {error}"))
        branches.close()
        raise
    finally:
        gc.unfreeze()
    return told, branches.collect()


def difference(result: Any, calm: Run) -> str:
    """What went otherwise than undisturbed, or nothing."""
    if not isinstance(result, Run):
        return str(result).splitlines()[0]
    end = result.ending
    return "; ".join(f"{key} {end[key]}, undisturbed {was}" for key, was in calm.ending.items() if end[key] != was)


def retold(story: Story, weather: Weather | None, branch: Branch) -> str:
    """The same run once more, from its start and with its trace."""
    try:
        return "\n".join(play(story, weather, branch).trace[-70:])
    except Exception as error:
        return str(error)


def judge(story: Story, *variants: str, weather: Weather | None = None) -> None:
    """Each variant at each write of the story.

    In other weather it may send fewer writes, and those at the end are status alone: there, at the first three quarters
    of as many as in calm.
    """
    calm = None if weather is None else play(story, None, traced=False)
    branches = Branches(variants, calm.writes * 3 // 4 if calm else None)
    told, results = explore(story, weather, branches)
    calm = calm or told
    last = branches.last or told.writes
    assert last * len(variants) > 10
    found = {
        branch: difference(results.get(branch, "the run has no such write"), calm)
        for branch in (Branch(write, variant) for write in range(1, last + 1) for variant in variants)
    }
    wrong = {branch: text for branch, text in found.items() if text}
    if not wrong:
        return
    where = f"{story.__name__}{f' in {weather}' if weather else ''}"
    lines = [f"{where}, {branch}: {text}" for branch, text in wrong.items()]
    for branch in [branch for branch in wrong if not isinstance(results.get(branch), EOFError)][:1]:
        lines[40:] = [f"-- {where}, {branch}:", retold(story, weather, branch)]
    pytest.fail("\n".join(lines), pytrace=False)


every_story = pytest.mark.parametrize("story", STORIES, ids=[story.__name__ for story in STORIES])
core_stories = pytest.mark.parametrize("story", CORE, ids=[story.__name__ for story in CORE])


@every_story
@pytest.mark.parametrize("kill", KILLS)
def test_a_successor_carries_on_from_the_cluster_alone(story: Story, kill: str) -> None:
    judge(story, kill)


@core_stories
@pytest.mark.parametrize("fault", FAULTS)
def test_a_write_that_fails_or_is_not_answered_changes_no_ending(story: Story, fault: str) -> None:
    judge(story, fault)


@pytest.mark.long
@every_story
@pytest.mark.parametrize("weather", [None, LAG, STORM], ids=["calm", "lag", "storm"])
def test_kills_and_faults_in_every_weather_change_no_ending(story: Story, weather: Weather | None) -> None:
    judge(story, *KILLS, *FAULTS, weather=weather)

"""Runs that fork at a write: each child goes as a run of its own would, and each that goes wrong is named."""

import os
import signal
from collections.abc import Callable

import pytest

from simulation.branches import Branch, Branches
from simulation.process import Weather
from simulation.test_crash_matrix import FAULTS, KILLS, STORM, created, explore, judge, play
from simulation.world import World

ALL = (*KILLS, *FAULTS)


@pytest.mark.parametrize("weather", [None, STORM], ids=["calm", "storm"])
def test_a_branch_goes_as_the_run_from_its_start_would(weather: Weather | None) -> None:
    """Event by event: a child that had not kept the clock and the dice of the run would go another way."""
    calm, results = explore(created, weather, Branches(ALL, 7), traced=True)
    assert set(results) == {Branch(write, variant) for write in range(1, 8) for variant in ALL}
    assert calm.trace == play(created, weather).trace
    for branch in (Branch(write, variant) for write in (1, 4, 7) for variant in ALL):
        assert results[branch].trace == play(created, weather, branch).trace, str(branch)


def raises(world: World) -> None:
    created(world)
    assert not world.deaths, "somebody died"


def dies(world: World) -> None:
    created(world)
    if world.deaths:
        os.kill(os.getpid(), signal.SIGKILL)


def ends_otherwise(world: World) -> None:
    created(world)
    if world.deaths:
        world.edit(replicas=1)
        world.settle()


@pytest.mark.parametrize(
    ("story", "told", "traced"),
    [
        (raises, "somebody died", True),
        (dies, "the process ended with -9 and reported nothing", False),
        (ends_otherwise, "pods deleted 1, undisturbed 0", True),
    ],
)
def test_each_branch_that_goes_wrong_is_named(story: Callable[[World], None], told: str, traced: bool) -> None:
    with pytest.raises(pytest.fail.Exception) as failed:
        judge(story, "killed before", "500")
    lines = str(failed.value).splitlines()
    assert lines[0].startswith(f"{story.__name__}, killed before write 1: ") and told in lines[0]
    assert lines[1].startswith(f"{story.__name__}, killed before write 2: ") and told in lines[1]
    assert not any(line.startswith(f"{story.__name__}, 500") for line in lines)
    assert (f"-- {story.__name__}, killed before write 1:" in lines) == traced
    assert any("Deployment chat" in line for line in lines) == traced


def shorter_in_a_storm(world: World) -> None:
    created(world)
    if world.weather is not STORM:
        world.edit(replicas=4)
        world.settle()


def test_a_write_that_never_comes_is_a_failure() -> None:
    """In other weather fewer may be sent than were counted in calm: nothing passes for tested that was not."""
    with pytest.raises(pytest.fail.Exception, match=r"killed before write 1\d: the run has no such write"):
        judge(shorter_in_a_storm, "killed before", weather=STORM)

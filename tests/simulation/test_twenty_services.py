"""Many services at once: the broken ones among them slow nobody."""

from collections.abc import Callable
from typing import Any

from simulation.world import World
from tidegate.preview.pods import CONDUCTS

GOOD = tuple(f"good{number}" for number in range(4))
CONDUCT = {f"pod {what}".replace(" ", "-"): what for what in CONDUCTS if what not in ("honest", "sealed at once")}
IMAGES: dict[str, dict[str, Any]] = {
    "not-pulled": {"pullable": False},
    "crash-loop": {"crash_after": 1.0},
    "never-ready": {"never_ready": True},
    "late-failure": {"crash_after": 12.0},
    "no-node": {"schedulable": False},
}
EDITS: dict[str, dict[str, Any]] = {
    "held": {"image": "app:v3"},
    "invalid": {"image": "app:v3", "maxSurge": "many"},
    "refused": {"image": "bad image"},
}


def rolled(world: World, push: Callable[[str], None]) -> dict[str, float]:
    """Push to every service at the same moment; seconds after which each good one is there, with its streams ended."""
    for name in (*GOOD, *IMAGES, *EDITS, *CONDUCT):
        for pod in world.pods(name):
            world.load(pod, *([3000.0] if name == "held" else [30.0]))
    began, took = world.loop.time(), {}
    for name in (*IMAGES, *EDITS, *CONDUCT, *GOOD):
        push(name)
    while len(took) < len(GOOD):
        world.run(1.0)
        assert world.loop.time() - began < 1000
        took |= {n: world.loop.time() - began for n in GOOD if n not in took and world.missing(n) is None}
    return took


def test_twenty_services_roll_at_once_and_broken_ones_slow_nobody() -> None:
    with World(seed=5, traced=False) as world:
        world.steady = False
        services = (*GOOD, *IMAGES, *EDITS, *CONDUCT)
        assert len(services) >= 20
        for name in services:
            least = 20 if name == "late-failure" else 0
            hold = "Hold" if name == "held" else "Release"
            world.create(name, replicas=2, budgetSeconds=60, minReadySeconds=least, onExpiry=hold)
        for name in services:
            world.settle(name)
        alone = rolled(world, lambda name: world.edit(name, image="app:v2") if name in GOOD else None)
        for name, behaviour in IMAGES.items():
            world.image(f"{name}:v3", **behaviour)
        world.server.refuse_images = frozenset({"bad image"})
        for name, conduct in CONDUCT.items():
            world.process(world.pods(name)[0]).conduct = conduct

        def push(name: str) -> None:
            image = f"{name}:v3" if name in IMAGES else "app:v3"
            world.edit(name, **EDITS.get(name, {"image": image}))

        among = rolled(world, push)
        for name in GOOD:
            assert among[name] <= 1.2 * alone[name], (name, alone[name], among[name])
        world.run(120)
        for name in (*IMAGES, "invalid", "refused"):
            assert world.condition("Stalled", name)["status"] == "True" or name in ("never-ready",), name
            assert len(world.ready_pods(name, image="app:v1")) == 2, name
        assert world.condition("DrainOverdue", "held")["reason"] == "BudgetHeld"

"""Words that stories share."""

from collections import Counter

from simulation.world import World


def standing(world: World, **spec: object) -> None:
    """A service of v1 with streams on it."""
    world.create(**spec)
    world.settle()
    world.traffic.start(every=1.0, seconds=(5, 40))
    world.run(30)


def loaded(world: World, *seconds: float, **spec: object) -> None:
    """A service of v1 whose pods have streams of these lengths each, and get no more."""
    world.create(**spec)
    world.settle()
    for pod in world.pods():
        world.load(pod, *seconds)


def well_known(world: World) -> None:
    """A service of two pods after fourteen rollouts with streams of 45 s, so that its drain times are known."""
    world.create(replicas=2)
    world.settle()
    for number in range(2, 16):
        for pod in world.pods():
            world.load(pod, 45.0)
        world.edit(image=f"app:v{number}")
        world.settle()


def by_outcome(world: World) -> Counter[tuple[str, str]]:
    return Counter((image, outcome) for image, outcome, _ in world.outcomes())


def nothing_cut(world: World) -> bool:
    return all(cut == 0 for _, _, cut in world.outcomes()) and world.ledger.tokens == 0

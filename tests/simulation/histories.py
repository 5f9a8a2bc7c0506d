"""Random histories: people change their minds, pods and nodes fail, the network and the API server have bad days.

Everything follows from the seed: `play(seed)` repeats a history, `python -m simulation.histories SEED` tells it.
"""

import sys
from random import Random

from simulation.moves import WEIGHTS, Moves
from simulation.world import World

STEPS = 30
BAG = [name for name, weight in WEIGHTS.items() for _ in range(weight)]


def play(seed: int, steps: int = STEPS) -> str | None:
    """One history; what went wrong, or None. Every tenth also proves that nothing is written in the end."""
    world = World(seed, traced=False)
    said: list[str] = []
    try:
        with world:
            world.steady = seed % 10 == 0
            _live(world, seed, steps, said)
    except AssertionError as error:
        return "\n".join((*said, f"seed {seed}: {error}"))
    return None


def tell(seed: int) -> str:
    """One history event by event, however it ends."""
    world = World(seed)
    said: list[str] = []
    try:
        with world:
            world.steady = seed % 10 == 0
            _live(world, seed, STEPS, said)
    except AssertionError as error:
        said.append(str(error).splitlines()[0])
    return "\n".join((*world.trace, *said))


def _live(world: World, seed: int, steps: int, said: list[str]) -> None:
    moves, rng = Moves(world), Random(seed)

    def step(text: str) -> None:
        said.append(f"{world.loop.time():10.3f} {text}")

    step(moves.begin(rng))
    world.run(rng.uniform(0.0, 15.0))
    for _ in range(steps):
        step(moves.make(rng.choice(BAG), rng))
        world.run(rng.choice((0.05, 0.5, 2.0, 8.0)) * rng.uniform(0.5, 1.5))
    step("everything is mended")
    moves.mend()


if __name__ == "__main__":
    print(tell(int(sys.argv[1])))

"""Histories that Hypothesis invents and, when one breaks a promise, shrinks to a short story.

The same ones in each run, and others in the long lane; in shards, so that the workers of pytest share them.
"""

from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, note, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from simulation.histories import STEPS
from simulation.moves import WEIGHTS, Moves
from simulation.world import World

RANDOM = st.randoms(use_true_random=False)
PAUSES = st.sampled_from((0.05, 0.5, 2.0, 8.0))
SHARDS = 4
COMMON: dict[str, Any] = {
    "stateful_step_count": STEPS,
    "deadline": None,
    "database": None,
    "suppress_health_check": list(HealthCheck),
    "print_blob": True,
}


class Turns(RuleBasedStateMachine):
    """One world. What is promised is checked after each move, and in the end that it got there and stays."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(seed=3)
        self.world.__enter__()
        self.world.steady = False
        self.moves = Moves(self.world)
        self.whole = True
        """Whether each move so far was made to its end: a story that has failed already needs no ending."""

    @initialize(rng=RANDOM, pause=st.floats(0.0, 15.0))
    def begin(self, rng: Random, pause: float) -> None:
        self.step(lambda: self.moves.begin(rng), pause)

    def step(self, move: Any, pause: float) -> None:
        self.whole = False
        note(f"{self.world.loop.time():8.2f} {move()}")
        self.world.run(pause)
        self.whole = True

    @invariant()
    def no_promise_is_broken(self) -> None:
        self.world.assert_kept()

    def teardown(self) -> None:
        try:
            if self.whole and not self.world.broken():
                note(f"{self.world.loop.time():8.2f} everything is mended")
                self.moves.mend()
                self.world.verify()
        finally:
            self.world.close()


def _rule(name: str) -> Any:
    def move(self: Turns, rng: Random, pause: float) -> None:
        self.step(lambda: self.moves.make(name, rng), pause)

    move.__name__ = name
    return rule(rng=RANDOM, pause=PAUSES)(move)


EveryTurn = type("EveryTurn", (Turns,), {f"rule_{name}": _rule(name) for name in WEIGHTS})


shards = pytest.mark.parametrize("shard", range(SHARDS))


@shards
def test_no_story_that_hypothesis_invents_breaks_a_promise(shard: int) -> None:
    machine = seed(shard)(type("EveryTurn", (EveryTurn,), {}))
    run_state_machine_as_test(machine, settings=settings(max_examples=60 // SHARDS, **COMMON))


@pytest.mark.long
@shards
def test_no_story_of_a_long_search_breaks_a_promise(shard: int) -> None:
    run_state_machine_as_test(EveryTurn, settings=settings(max_examples=2000 // SHARDS, **COMMON))

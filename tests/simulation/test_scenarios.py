"""Rollouts as stories. Leaving a `World` checks that no promise was broken, and that nothing is written any more."""

import pytest

from simulation.world import World


@pytest.fixture
def world() -> World:
    return World(seed=1, paranoid=True)


def test_a_rollout_drains_every_old_pod_and_cuts_nothing(world: World) -> None:
    with world:
        world.create()
        world.settle()
        world.traffic.start(every=1.0, seconds=(5, 40))
        world.run(30)
        world.edit(image="app:v2")
        world.settle()
        assert world.outcomes() == [("app:v1", "Drained", 0)] * 3
        assert world.ledger.served > 20
        assert not world.ledger.unserved
        assert world.ledger.tokens == 0
        assert all(who == "replicaset-controller" for who in world.checks.deletes.values())

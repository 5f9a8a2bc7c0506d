"""The world of most stories."""

from collections.abc import Iterator

import pytest

from simulation.world import World


@pytest.fixture
def world() -> Iterator[World]:
    """Leaving it checks that no promise was broken, and that nothing is written any more."""
    with World(seed=1, paranoid=True) as made:
        yield made

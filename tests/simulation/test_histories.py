"""Random histories: the same ones in each run, many others in the long lane. `TIDEGATE_SEED` begins elsewhere.

They come in shards, so that the workers of pytest share them. `PYTHONPATH=operator:tests python -m simulation.histories
SEED` tells one history event by event.
"""

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.histories import STEPS, play

HISTORIES = 1000
SEED = 20261129
SHARDS = 40

shards = pytest.mark.parametrize("shard", range(SHARDS))


def _run(histories: int, steps: int, first: int) -> None:
    """So many, from the seed `first` on, until three have failed."""
    print(f"TIDEGATE_SEED={first}: {histories} histories of {steps} steps", flush=True)
    found: list[str] = []
    for seed in range(first, first + histories):
        try:
            failed = play(seed, steps)
        except Exception as error:
            failed = f"seed {seed}: the simulation itself failed: {type(error).__name__}: {error}"
        if failed is not None:
            found.append(failed)
        if len(found) >= 3:
            break
    assert not found, f"TIDEGATE_SEED={first}\n" + "\n\n".join(found)


@shards
def test_random_histories_keep_every_promise_and_get_there(shard: int) -> None:
    size = HISTORIES // SHARDS
    _run(size, STEPS, int(os.environ.get("TIDEGATE_SEED") or SEED) + shard * size)


def test_a_seed_tells_the_same_story_in_every_process() -> None:
    """Else a printed seed would be worth nothing; the order of sets differs from process to process."""
    root = Path(__file__).parents[2]
    told = []
    for salt in ("1", "2"):
        path = os.pathsep.join(str(root / part) for part in ("operator", "tests"))
        env = {**os.environ, "PYTHONHASHSEED": salt, "PYTHONPATH": path}
        command = [sys.executable, "-m", "simulation.histories", str(SEED)]
        told.append(subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout)
    assert told[0] == told[1]
    assert len(told[0].splitlines()) > 100


@pytest.mark.long
@shards
def test_long_random_histories_keep_every_promise_and_get_there(shard: int) -> None:
    size = 5 * HISTORIES // SHARDS
    base = os.environ.get("TIDEGATE_SEED")
    _run(size, 2 * STEPS, secrets.randbelow(10**8) if not base else int(base) + shard * size)

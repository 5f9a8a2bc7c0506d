"""Random histories: the same ones in each run, many others in the long lane. `TIDEGATE_SEED` begins elsewhere.

`PYTHONPATH=operator:tests python -m simulation.histories SEED` tells one history event by event.
"""

import os
import secrets
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from simulation.histories import STEPS, play

HISTORIES = 1000
SEED = 20261129
BATCH = 10


def _batch(first: int, steps: int) -> list[str]:
    found = []
    for seed in range(first, first + BATCH):
        try:
            failed = play(seed, steps)
        except Exception as error:
            failed = f"seed {seed}: the simulation itself failed: {type(error).__name__}: {error}"
        if failed is not None:
            found.append(failed)
    return found


def _run(histories: int, steps: int, seed: int) -> None:
    base = int(os.environ.get("TIDEGATE_SEED") or seed)
    print(f"TIDEGATE_SEED={base}: {histories} histories of {steps} steps", flush=True)
    found: list[str] = []
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("fork")) as pool:
        firsts = range(base, base + histories, BATCH)
        for part in pool.map(_batch, firsts, [steps] * len(firsts)):
            found += part
            if len(found) >= 3:
                pool.shutdown(cancel_futures=True)
                break
    assert not found, f"TIDEGATE_SEED={base}\n" + "\n\n".join(found[:3])


def test_random_histories_keep_every_promise_and_get_there() -> None:
    _run(HISTORIES, STEPS, SEED)


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
def test_long_random_histories_keep_every_promise_and_get_there() -> None:
    _run(5 * HISTORIES, 2 * STEPS, secrets.randbelow(10**8))

"""Waiting for something to come about, with an end."""

from __future__ import annotations

import time
from collections.abc import Callable

from .errors import ClusterError

POLL_SECONDS = 0.1


def wait_for(what: str, done: Callable[[], bool], check: Callable[[], None], timeout: float = 180.0) -> None:
    """Poll `done` until it is true; `check` raises as soon as waiting is pointless.

    Raises ClusterError after `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    while not done():
        check()
        if time.monotonic() > deadline:
            raise ClusterError(f"{what}: not within {timeout:.0f} s")
        time.sleep(POLL_SECONDS)

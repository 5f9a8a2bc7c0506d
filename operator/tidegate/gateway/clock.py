"""The gateway's clock. No other module of the gateway asks the machine for the time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """Passed to the gateway at its construction; the default is the machine's own clock.

    `monotonic`: seconds since an arbitrary moment, never decreasing; advances with the event loop's timers.
    `wall`: Unix seconds.
    """

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time

"""The clock of an operator, and how often it does what nothing asks for."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Clock:
    """The time of day and the time that only passes, both in seconds."""

    now: Callable[[], float]
    """Unix seconds."""
    monotonic: Callable[[], float]
    """Of lengths alone: no correction of the time of day moves it."""


SYSTEM_CLOCK: Final = Clock(time.time, time.monotonic)


@dataclass(frozen=True, slots=True)
class Pace:
    """How often the operator does what nothing asks for. Seconds."""

    workers: int = 16
    """Services that are worked on at the same time."""
    sweep_seconds: float = 120.0
    """Between two lists of the whole cluster."""
    poll_seconds: float = 5.0
    """Between two looks at a service in which something is awaited that may send no event."""
    refresh_seconds: float = 5.0
    """Numbers that only move are written at most so often; transitions are written at once."""
    eta_seconds: float = 30.0
    """How often a status is written in which nothing but the times to go have changed."""


STANDARD_PACE: Final = Pace()

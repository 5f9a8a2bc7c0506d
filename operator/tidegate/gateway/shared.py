"""What all requests of one gateway share."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.gateway.clock import Clock
from tidegate.gateway.draining import Drain
from tidegate.gateway.engine import Engine
from tidegate.gateway.keys import Keys
from tidegate.gateway.metrics import Metrics
from tidegate.gateway.upstream import Pool


@dataclass(frozen=True, slots=True)
class Shared:
    """The parts that a request uses, handed down to it."""

    clock: Clock
    drain: Drain
    engine: Engine
    keys: Keys
    metrics: Metrics
    pool: Pool

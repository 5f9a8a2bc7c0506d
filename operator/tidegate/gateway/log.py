"""The gateway's log: JSON lines on stdout, one for each change of state and none for single requests."""

from __future__ import annotations

import contextlib
import json
import sys

from tidegate.gateway.clock import Clock


class Log:
    """Writes events with the wall-clock time `at` and the process's instance."""

    def __init__(self, instance: str, clock: Clock) -> None:
        self._instance = instance
        self._clock = clock

    def write(self, event: str, **fields: object) -> None:
        """Write one event; errors are ignored, since a broken log must not stop the gateway."""
        line = json.dumps({"at": round(self._clock.wall(), 4), "event": event, "instance": self._instance, **fields})
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.write(line + "\n")
            sys.stdout.flush()

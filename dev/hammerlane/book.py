"""What was sent, what the engine has seen of it, and how it came out."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

HEADER = "X-Hammer"
"""Carries the id of each request that the lane sends."""

_ID = re.compile(rb"(?=(h[0-9]{8}h))")


@dataclass(slots=True)
class Book:
    """Counts of one round. An id is `sent` as often as the client itself has written it."""

    sent: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    last: int = 0

    def new_id(self) -> str:
        """An id that no other request has."""
        self.last += 1
        return f"h{self.last:08d}h"

    def note(self, data: bytes) -> None:
        """Count every id in what is sent: a fault may have made one request's id that of another."""
        self.sent.update(found.decode() for found in _ID.findall(data))

    def replayed(self) -> list[str]:
        """The ids that the engine has seen more often than their client has sent them."""
        return sorted(name for name, times in self.seen.items() if name in self.sent and times > self.sent[name])

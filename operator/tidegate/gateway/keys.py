"""Who may call the drain endpoint: the keys of the mounted Secret, and the preStop key, good for prestop alone."""

from __future__ import annotations

import contextlib
import hmac
from pathlib import Path

FILES = ("current", "previous")


class Keys:
    """Read on every use: the kubelet swaps the files when the Secret rotates, and calls are rare. No key, no drain."""

    def __init__(self, directory: str, prestop_key: str) -> None:
        self._directory = Path(directory) if directory else None
        self._prestop_key = prestop_key.encode()

    def drain_allowed(self, given: bytes | None) -> bool:
        """For POST, DELETE and GET /drain."""
        return _matches(given, self.all())

    def prestop_allowed(self, given: bytes | None) -> bool:
        """For GET /drain/prestop."""
        return _matches(given, [*self.all(), self._prestop_key])

    def all(self) -> list[bytes]:
        """The service's keys, the current one first."""
        keys = []
        if self._directory is not None:
            for name in FILES:
                with contextlib.suppress(OSError):
                    keys.append((self._directory / name).read_bytes().strip())
        return [key for key in keys if key]


def _matches(given: bytes | None, keys: list[bytes]) -> bool:
    """Compare with every key, each in constant time."""
    found = False
    for key in keys:
        found |= bool(key) and bool(given) and hmac.compare_digest(given or b"", key)
    return found

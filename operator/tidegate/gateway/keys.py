"""Who may call the drain endpoint: holders of a key in the mounted Secret, or of the preStop key for preStop only."""

from __future__ import annotations

import contextlib
from pathlib import Path

from tidegate.contract.calls import key_fits

FILES = ("current", "previous")


class Keys:
    """Read on every use: the kubelet swaps the files when the Secret rotates, and calls are rare. No key, no drain."""

    def __init__(self, directory: str, prestop_key: str) -> None:
        self._directory = Path(directory) if directory else None
        self._prestop_key = prestop_key.encode()

    def drain_allowed(self, given: bytes | None) -> bool:
        """For POST, DELETE and GET /drain."""
        return key_fits(given, self.all())

    def prestop_allowed(self, given: bytes | None) -> bool:
        """For GET /drain/prestop."""
        return key_fits(given, [*self.all(), self._prestop_key])

    def all(self) -> list[bytes]:
        """The service's keys, the current one first."""
        keys = []
        if self._directory is not None:
            for name in FILES:
                with contextlib.suppress(OSError):
                    keys.append((self._directory / name).read_bytes().strip())
        return [key for key in keys if key]

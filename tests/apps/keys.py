"""Who may call the drain endpoint: the keys of the mounted Secret, and the preStop key, good for prestop alone."""

import contextlib
import hmac
from pathlib import Path

HEADER = "tidegate-key"
FILES = ("current", "previous")


class Keys:
    """Reads the files on every call: the kubelet swaps them when the Secret rotates, and drain calls are rare."""

    def __init__(self, directory: str | None, prestop_key: str | None) -> None:
        self._directory = Path(directory) if directory else None
        self._prestop_key = (prestop_key or "").encode()

    def drain_allowed(self, given: str | None) -> bool:
        return _matches(given, self._drain_keys())

    def prestop_allowed(self, given: str | None) -> bool:
        return _matches(given, [*self._drain_keys(), self._prestop_key])

    def _drain_keys(self) -> list[bytes]:
        keys = []
        if self._directory is not None:
            for name in FILES:
                with contextlib.suppress(OSError):
                    keys.append((self._directory / name).read_bytes().strip())
        return keys


def _matches(given: str | None, keys: list[bytes]) -> bool:
    """Compare with every key, in constant time; no key given or none configured is no match."""
    sent = (given or "").encode("latin-1", "replace")
    found = False
    for key in keys:
        found |= bool(key) and bool(sent) and hmac.compare_digest(sent, key)
    return found

"""Who may call the drain endpoint: the keys of the mounted Secret, and the preStop key, good for prestop alone."""

import contextlib
from pathlib import Path

from tidegate.api.names import KEY_HEADER
from tidegate.contract.calls import key_fits

HEADER = KEY_HEADER.lower()
"""As `apps.wire` has the names of headers."""
FILES = ("current", "previous")


class Keys:
    """Reads the files on every call: the kubelet swaps them when the Secret rotates, and drain calls are rare."""

    def __init__(self, directory: str | None, prestop_key: str | None) -> None:
        self._directory = Path(directory) if directory else None
        self._prestop_key = (prestop_key or "").encode()

    def drain_allowed(self, given: str | None) -> bool:
        return _fits(given, self._drain_keys())

    def prestop_allowed(self, given: str | None) -> bool:
        return _fits(given, [*self._drain_keys(), self._prestop_key])

    def _drain_keys(self) -> list[bytes]:
        keys = []
        if self._directory is not None:
            for name in FILES:
                with contextlib.suppress(OSError):
                    keys.append((self._directory / name).read_bytes().strip())
        return keys


def _fits(given: str | None, keys: list[bytes]) -> bool:
    return key_fits((given or "").encode("latin-1", "replace"), keys)

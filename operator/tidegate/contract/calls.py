"""What a call of the contract brings beside its body: the key in its header, and how long it wants to wait."""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable

MAX_WAIT_SECONDS = 60.0
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|s|m|)", re.ASCII)
_UNITS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0}


def key_fits(given: bytes | None, keys: Iterable[bytes]) -> bool:
    """Compare with every key, each in constant time; no key given, or none there, is no match."""
    if not given:
        return False
    fits = False
    for key in keys:
        fits |= hmac.compare_digest(given, key)
    return fits


def parse_wait(text: str) -> float:
    """Seconds of `25s`, `500ms`, `1m` or a bare number, at most MAX_WAIT_SECONDS; raises ValueError."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text} is not a duration such as 25s")
    return min(float(match[1]) * _UNITS[match[2]], MAX_WAIT_SECONDS)

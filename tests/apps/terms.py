"""The words of the drain contract v1: states, numbers, the body of POST /drain and what can be wrong with it."""

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class State(Enum):
    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"
    SEALED = "sealed"


class Admission(Enum):
    """What becomes of a request that arrives: served, served as the last one of its connection, or a retryable 503."""

    SERVE = "serve"
    SERVE_AND_CLOSE = "serve-and-close"
    REFUSE = "refuse"


class InvalidDrainError(ValueError):
    """The body of POST /drain does not fit the contract; the message names the field."""


class DrainConflictError(RuntimeError):
    """DELETE /drain cannot be obeyed; the message says why."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The numbers in force until a POST brings its own, all in seconds; `stalled_after` 0 means never."""

    grace: float = 30.0
    propagation: float = 5.0
    quiet: float = 2.0
    flush: float = 5.0
    stalled_after: float = 300.0


@dataclass(frozen=True, slots=True)
class DrainRequest:
    """The body of POST /drain; None means absent or null. `remaining` None: no deadline (onExpiry Hold)."""

    id: str
    reason: str = ""
    remaining: float | None = None
    since_withdrawal: float = 0.0
    propagation: float | None = None
    quiet: float | None = None
    flush: float | None = None
    stalled_after: float | None = None

    @classmethod
    def parse(cls, body: object) -> "DrainRequest":
        """Read a decoded JSON body; raises InvalidDrainError."""
        if not isinstance(body, dict):
            raise InvalidDrainError("the body must be a JSON object")
        drain_id = body.get("id")
        if not isinstance(drain_id, str) or not drain_id:
            raise InvalidDrainError("id must be a string that is not empty")
        reason = body.get("reason")
        if reason is not None and not isinstance(reason, str):
            raise InvalidDrainError("reason must be a string")
        return cls(
            id=drain_id,
            reason=reason or "",
            remaining=_seconds(body, "remainingSeconds"),
            since_withdrawal=_seconds(body, "sinceWithdrawalSeconds") or 0.0,
            propagation=_seconds(body, "propagationSeconds"),
            quiet=_seconds(body, "quietSeconds"),
            flush=_seconds(body, "flushSeconds"),
            stalled_after=_seconds(body, "stalledAfterSeconds"),
        )


def _seconds(body: Mapping[str, object], field: str) -> float | None:
    value = body.get(field)
    if value is None:
        return None
    seconds = math.nan
    if isinstance(value, int | float) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):  # JSON's integers have no end
            seconds = float(value)
    if not math.isfinite(seconds):
        raise InvalidDrainError(f"{field} must be a number of seconds or null")
    return max(seconds, 0.0)

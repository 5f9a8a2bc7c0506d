"""The words of the drain contract v1: states, admissions, the numbers in force and the body of POST /drain."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, StrEnum

from tidegate.contract import fields

MAX_SECONDS = 1e9
"""Longer times are taken for this one: thirty years, which every clock and timer of a process can still count."""


class State(StrEnum):
    """What a process tells of itself: the contract's states, declared here alone. A pod's label has others."""

    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"
    SEALED = "sealed"


class Admission(Enum):
    """What becomes of a request that arrives: served, served as the last of its connection, or a retryable 503."""

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
    """The body of POST /drain; None means absent or null. `remaining` None: there is no deadline (onExpiry Hold)."""

    id: str
    reason: str = ""
    remaining: float | None = None
    since_withdrawal: float = 0.0
    propagation: float | None = None
    quiet: float | None = None
    flush: float | None = None
    stalled_after: float | None = None

    @classmethod
    def from_json(cls, body: bytes) -> DrainRequest:
        """Read the body of a call; raises InvalidDrainError."""
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            raise InvalidDrainError("the body is not JSON") from None
        return cls.parse(document)

    @classmethod
    def parse(cls, body: object) -> DrainRequest:
        """Read a decoded body; `deadline`, a text for people, is not looked at. Raises InvalidDrainError."""
        if not isinstance(body, dict):
            raise InvalidDrainError("the body must be a JSON object")
        drain_id, reason = body.get(fields.ID), body.get(fields.REASON)
        if not isinstance(drain_id, str) or not drain_id:
            raise InvalidDrainError("id must be a string that is not empty")
        if reason is not None and not isinstance(reason, str):
            raise InvalidDrainError("reason must be a string")
        return cls(
            drain_id,
            reason or "",
            _seconds(body, fields.REMAINING_SECONDS),
            _seconds(body, fields.SINCE_WITHDRAWAL_SECONDS) or 0.0,
            _seconds(body, fields.PROPAGATION_SECONDS),
            _seconds(body, fields.QUIET_SECONDS),
            _seconds(body, fields.FLUSH_SECONDS),
            _seconds(body, fields.STALLED_AFTER_SECONDS),
        )

    def document(self, deadline: str | None = None) -> dict[str, object]:
        """The body that says this, for who asks a pod to drain; `deadline` is a text for people."""
        return {
            fields.ID: self.id,
            fields.REASON: self.reason,
            fields.REMAINING_SECONDS: self.remaining,
            fields.SINCE_WITHDRAWAL_SECONDS: self.since_withdrawal,
            fields.PROPAGATION_SECONDS: self.propagation,
            fields.QUIET_SECONDS: self.quiet,
            fields.FLUSH_SECONDS: self.flush,
            fields.STALLED_AFTER_SECONDS: self.stalled_after,
            fields.DEADLINE: deadline,
        }

    def settings(self, defaults: Settings) -> Settings:
        """The numbers that are in force with this request."""
        own = {"propagation": self.propagation, "quiet": self.quiet, "flush": self.flush}
        own["stalled_after"] = self.stalled_after
        return replace(defaults, **{name: value for name, value in own.items() if value is not None})


@dataclass(slots=True)
class Work:
    """One request in flight.

    `whole`: the engine is done with it, only bytes are still on their way to the client. `opaque`: its response has
    begun and cannot carry a token, so it may come to its own end until the deadline.
    """

    id: str
    arrived: float
    streaming: bool
    queued: bool
    progressed: float | None = None
    whole: bool = False
    cut: bool = False
    opaque: bool = False


@dataclass(frozen=True, slots=True)
class Advance:
    """What the caller has to do now. `tokens`: ids to end with a shutdown token, counted as cut already."""

    tokens: tuple[str, ...] = ()
    abort: tuple[str, ...] = ()
    sealed: bool = False


def seconds_of(value: object) -> float:
    """A number out of JSON as seconds; raises ValueError for anything else, and for one that no float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("a number of seconds is needed")  # noqa: TRY004  (one kind of error for wrong values)
    try:
        seconds = float(value)
    except OverflowError:
        seconds = math.inf
    if not math.isfinite(seconds):
        raise ValueError("a number of seconds is needed")
    return min(seconds, MAX_SECONDS)


def _seconds(body: Mapping[str, object], field: str) -> float | None:
    value = body.get(field)
    if value is None:
        return None
    try:
        return max(seconds_of(value), 0.0)
    except ValueError:
        raise InvalidDrainError(f"{field} must be a number of seconds or null") from None

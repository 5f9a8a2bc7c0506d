"""Three timeouts per route, and the deadline that a client may set.

`connect`: until the engine accepts a connection. `idle`: silence in a response that has begun; before its first event,
or the first byte of another body, a request may wait in the engine's queue as long as `total` allows, with or without
a head. `total`: from arrival to the last byte.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass

from tidegate.contract.terms import MAX_SECONDS, seconds_of

DEADLINE_HEADER = b"tidegate-deadline-seconds"
_NUMBER = re.compile(rb"[+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,3})?|[+-]?\.[0-9]+")
FIELDS = {"connectSeconds": "connect", "idleSeconds": "idle", "totalSeconds": "total"}


@dataclass(frozen=True, slots=True)
class Timeouts:
    """In seconds; 0 means never."""

    connect: float = 5.0
    idle: float = 300.0
    total: float = 3600.0

    def __post_init__(self) -> None:
        for name in ("connect", "idle", "total"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name}: a number of seconds from 0 (never) up is needed, not {value}")

    def within(self, seconds: float) -> Timeouts:
        """The same, with a total of at most `seconds`, which are more than 0."""
        return Timeouts(self.connect, self.idle, min(self.total or math.inf, seconds))


@dataclass(frozen=True, slots=True)
class Route:
    """The timeouts for paths that begin with `prefix`, which ends at a segment boundary."""

    prefix: str
    timeouts: Timeouts

    def matches(self, path: str) -> bool:
        """Whether the path belongs to this route."""
        return path.startswith(self.prefix) and (
            self.prefix.endswith("/") or len(path) == len(self.prefix) or path[len(self.prefix)] == "/"
        )


@dataclass(frozen=True, slots=True)
class Profiles:
    """The timeouts of every path: those of the longest matching prefix, else the general ones."""

    general: Timeouts = Timeouts()
    routes: tuple[Route, ...] = ()

    def of(self, path: str) -> Timeouts:
        """The timeouts for one request."""
        if not self.routes:
            return self.general
        fitting = [route for route in self.routes if route.matches(path)]
        return max(fitting, key=lambda route: len(route.prefix)).timeouts if fitting else self.general


def parse_routes(text: str, general: Timeouts) -> tuple[Route, ...]:
    """Parse the JSON list of `spec.gateway.routes`; omitted timeouts are those of `general`. Raises ValueError."""
    try:
        entries = json.loads(text) if text.strip() else []
    except RecursionError:
        raise ValueError("routes: not a JSON list of routes: nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"routes: not JSON: {error}") from None
    if not isinstance(entries, list):
        raise ValueError("routes: a JSON list is needed")  # noqa: TRY004  (one kind of error for wrong options)
    routes: dict[str, Route] = {}
    for number, entry in enumerate(entries):
        route = _route(entry, f"routes[{number}]", general)
        if route.prefix in routes:
            raise ValueError(f"routes[{number}].pathPrefix: {route.prefix} has an entry already; merge the two")
        routes[route.prefix] = route
    return tuple(routes.values())


def _route(entry: object, where: str, general: Timeouts) -> Route:
    if not isinstance(entry, dict) or set(entry) - {"pathPrefix", "timeouts"}:
        raise ValueError(f"{where}: an object with pathPrefix and timeouts is needed")
    prefix, given = entry.get("pathPrefix"), entry.get("timeouts") or {}
    if not isinstance(prefix, str) or not prefix.startswith("/") or set(prefix) & set("?#"):
        raise ValueError(f"{where}.pathPrefix: a path that begins with / is needed, without ? and # and what follows")
    if not isinstance(given, dict) or set(given) - set(FIELDS):
        raise ValueError(f"{where}.timeouts: only {', '.join(FIELDS)} are known")
    values = {}
    for field, name in FIELDS.items():
        value = given.get(field)
        if value is None:
            value = getattr(general, name)
        try:
            values[name] = seconds_of(value)
        except ValueError as error:
            raise ValueError(f"{where}.timeouts.{field}: {error}") from None
    try:
        return Route(prefix, Timeouts(**values))
    except ValueError as error:
        raise ValueError(f"{where}.timeouts: {error}") from None


def parse_deadline(value: bytes) -> float:
    """The remaining seconds of a deadline set by the client. Raises ValueError."""
    if not _NUMBER.fullmatch(value):
        raise ValueError("Tidegate-Deadline-Seconds must be a number of seconds, such as 12.5")
    return min(float(value), MAX_SECONDS)

"""Metrics in Prometheus' text format. Every label has a small, fixed set of values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from tidegate.contract.terms import State
from tidegate.gateway.failures import Failure

PREFIX = "tidegate_gateway"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
GAUGES = {
    "inFlight": ("in_flight", "Requests in flight, until their last byte has been sent."),
    "streams": ("streams", "Requests in flight whose stream has begun."),
    "queued": ("queued", "Requests in flight that the engine has not begun to answer."),
    "stalled": ("stalled", "Streams on which the engine has been silent for too long."),
    "oldestSeconds": ("oldest_seconds", "Age of the oldest request in flight."),
}


class Metrics:
    """Counters since the start of the process. Updated when a request ends, never while it streams."""

    def __init__(self) -> None:
        self.codes: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.tokens = 0
        self.refused = 0
        self.invalid = 0
        self.bytes_out = 0
        self.connections = 0
        self.reused = 0

    def answered(self, status: int, sent: int) -> None:
        """A request is over; `status` 0: its client got no response head."""
        self.codes[f"{status // 100}xx" if 100 <= status < 600 else "none"] += 1
        self.bytes_out += sent

    def connection_opened(self) -> None:
        """A client has connected."""
        self.connections += 1

    def connection_reused(self) -> None:
        """A request was sent over a reused connection to the engine."""
        self.reused += 1

    def request_invalid(self) -> None:
        """A connection is closed because of an invalid request."""
        self.invalid += 1

    def request_refused(self) -> None:
        """A request was refused while draining."""
        self.refused += 1

    def token_sent(self) -> None:
        """A shutdown token was sent."""
        self.tokens += 1

    def failed(self, failure: Failure) -> None:
        """A request has failed."""
        self.failures[failure.label] += 1

    def render(self, state: Mapping[str, object], ever_cut: int) -> bytes:
        """The page for one scrape; `state` is the contract's answer, whose `cut` restarts with each drain."""
        return ("\n".join(self._lines(state, ever_cut)) + "\n").encode()

    def _lines(self, state: Mapping[str, object], ever_cut: int) -> Iterator[str]:
        for field, (name, text) in GAUGES.items():
            yield from _metric(name, "gauge", text, {"": state[field]})
        states = {f'{{state="{name}"}}': int(state["state"] == name) for name in State}
        yield from _metric("state", "gauge", "1 for the current state of the process.", states)
        codes = {f'{{code="{code}"}}': self.codes[code] for code in ("2xx", "3xx", "4xx", "5xx", "1xx", "none")}
        yield from _metric("requests_total", "counter", "Finished requests by class of their status.", codes)
        failures = {f'{{class="{kind.label}"}}': self.failures[kind.label] for kind in Failure}
        yield from _metric("failures_total", "counter", "Failed requests by class of failure.", failures)
        for name, value, text in (
            ("cut_total", ever_cut, "Requests cut by a drain."),
            ("shutdown_tokens_total", self.tokens, "Shutdown tokens sent."),
            ("refused_total", self.refused, "Requests refused while draining."),
            ("invalid_requests_total", self.invalid, "Connections closed because of an invalid request."),
            ("sent_bytes_total", self.bytes_out, "Bytes sent to clients, heads included."),
            ("connections_total", self.connections, "Connections accepted from clients."),
            ("upstream_reused_total", self.reused, "Requests sent over a reused connection to the engine."),
        ):
            yield from _metric(name, "counter", text, {"": value})


def _metric(name: str, kind: str, text: str, values: Mapping[str, object]) -> Iterator[str]:
    yield f"# HELP {PREFIX}_{name} {text}"
    yield f"# TYPE {PREFIX}_{name} {kind}"
    for labels, value in values.items():
        yield f"{PREFIX}_{name}{labels} {value}"

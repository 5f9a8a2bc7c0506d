"""Counters and histograms of one operator process, and where the rest of it reports to them.

They begin at 0 with the process, as Prometheus expects it. A drain is counted when its outcome has entered the status,
so one that a predecessor has reported is not counted again.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tidegate import __version__
from tidegate.api.conditions import BlockedReason, DrainReason, Outcome
from tidegate.api.status import LLMServiceStatus
from tidegate.core.planner.plan import Plan
from tidegate.core.report.status import new_outcomes
from tidegate.core.state import times
from tidegate.core.state.snapshot import OutcomeRecord

from .services import SERVICE, ServiceRow, Services, pod_rows

_DRAIN_BUCKETS: Final = (1, 2.5, 5, 10, 20, 30, 60, 90, 120, 180, 300, 600, 900, 1800, 3600)
_ARRIVAL_BUCKETS: Final = (0, 0.5, 1, 2, 3, 5, 10, 20, 30, 60, 120)
_PASS_BUCKETS: Final = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 30)


class Backlog(Protocol):
    """The queue of services, asked from the thread that answers scrapes."""

    @property
    def waiting(self) -> int:
        """Number of keys that are waiting for a worker."""

    @property
    def oldest_seconds(self) -> float:
        """Seconds that the first of them has waited."""


class Metrics:
    """The metrics of one operator process, in a registry of their own. `now` gives Unix time."""

    def __init__(self, queue: Backlog, now: Callable[[], float] = time.time) -> None:
        # A second series for each counter, which no graph needs.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry = CollectorRegistry()
        self._now = now
        self._pending: dict[str, dict[str, OutcomeRecord]] = {}
        self._services = Services(now)
        registry.register(self._services)
        self._failing: dict[str, int] = {}
        registry.register(_Failing(self._failing))
        ProcessCollector(registry=registry)
        labels = (*SERVICE, "outcome", "reason")
        self._drains = Counter("tidegate_drains", "Drains that ended.", labels, registry=registry)
        self._drain_seconds = Histogram(
            "tidegate_drain_seconds",
            "Duration of drains in seconds, from the withdrawal.",
            (*SERVICE, "outcome"),
            registry=registry,
            buckets=_DRAIN_BUCKETS,
        )
        self._late = Histogram(
            "tidegate_drain_last_arrival_seconds",
            "Seconds from the withdrawal of a pod to its last new request; 0 if none arrived.",
            SERVICE,
            registry=registry,
            buckets=_ARRIVAL_BUCKETS,
        )
        self._cut = Counter("tidegate_requests_cut", "Requests that were cut.", SERVICE, registry=registry)
        self._uncounted = Counter(
            "tidegate_drains_uncounted",
            "Drains whose cut requests nobody could count.",
            SERVICE,
            registry=registry,
        )
        self._passes = Counter("tidegate_reconcile", "Reconcile passes.", ("result",), registry=registry)
        for result in ("ok", "error", "fault"):
            self._passes.labels(result)
        self._pass_seconds = Histogram(
            "tidegate_reconcile_seconds", "Duration of a pass in seconds.", registry=registry, buckets=_PASS_BUCKETS
        )
        self._calls = Counter(
            "tidegate_api_requests",
            "Calls to the API server, except watches; code none: no answer.",
            ("verb", "resource", "code"),
            registry=registry,
        )
        self._process(queue)

    def _process(self, queue: Backlog) -> None:
        registry = self.registry
        Gauge("tidegate_operator_info", "The operator's version.", ("version",), registry=registry).labels(
            __version__
        ).set(1)
        self._leader = Gauge("tidegate_operator_leader", "1 while this process reconciles.", registry=registry)
        self._success = Gauge(
            "tidegate_operator_last_reconcile_timestamp_seconds",
            "Unix time of the last successful pass.",
            registry=registry,
        )
        self._list = Gauge(
            "tidegate_operator_last_list_timestamp_seconds",
            "Unix time of the last complete list of the cluster; expected every 2 minutes.",
            registry=registry,
        )
        self._lists_failed = Gauge(
            "tidegate_operator_failed_lists", "Consecutive failed lists of the cluster.", registry=registry
        )
        waiting = Gauge("tidegate_queue_keys", "Services that are waiting for a worker.", registry=registry)
        waiting.set_function(lambda: queue.waiting)
        oldest = Gauge("tidegate_queue_oldest_seconds", "Seconds that the first of them has waited.", registry=registry)
        oldest.set_function(lambda: queue.oldest_seconds)

    # -- what the parts of the operator report

    def leads(self, leading: bool) -> None:
        """Set whether this process reconciles; if it does not, it shows no services."""
        self._leader.set(leading)
        if not leading:
            for key in list(self._services.rows):
                self.forget(key)

    def listed(self) -> None:
        """A list of the cluster is complete."""
        self._list.set(self._now())
        self._lists_failed.set(0)

    def list_failed(self) -> None:
        """A list of the cluster failed."""
        self._lists_failed.inc()

    def called(self, verb: str, resource: str, code: str) -> None:
        """A call to the API server."""
        self._calls.labels(verb, resource, code).inc()

    def passed(self, key: str, result: str, seconds: float) -> None:
        """A pass over service `key` ended after `seconds`: `ok`, `error` (of the API server) or `fault` (a bug)."""
        self._passes.labels(result).inc()
        self._pass_seconds.observe(seconds)
        if result == "ok":
            self._success.set(self._now())
        else:
            self._failing[key] = self._failing.get(key, 0) + 1

    def achieved(self, key: str) -> None:
        """A pass over service `key` did everything it had to; one that skips a failing action did not."""
        self._failing.pop(key, None)

    def saw(self, key: str, decided: Plan, status: LLMServiceStatus) -> None:
        """A pass over service `key` decided on this plan and this status."""
        snapshot = decided.view.snapshot
        row = self._services.rows.get(key)
        if key not in self._pending:
            self._begin(snapshot.namespace, snapshot.name)
        last = dict(row.last if row is not None else _last(snapshot.status))
        fresh = dict(new_outcomes(decided))
        # An outcome that is no longer new is in the status now. Before that, its write could fail or be lost.
        for name, outcome in self._pending.get(key, {}).items():
            if name not in fresh:
                self._count(snapshot.namespace, snapshot.name, outcome)
                last[outcome.outcome, outcome.reason] = outcome.at
        self._pending[key] = fresh
        blocked = tuple(dict.fromkeys(b.reason for b in decided.blocked))
        self._services.rows[key] = ServiceRow(
            snapshot.namespace,
            snapshot.name,
            snapshot.spec.replicas,
            pod_rows(snapshot),
            status,
            last,
            snapshot.now,
            blocked,
        )

    def refused(self, key: str, status: LLMServiceStatus) -> None:
        """Service `key` has an invalid spec; its pods stay as they were last seen."""
        namespace, name = key.split("/", 1)
        row = self._services.rows.get(key) or ServiceRow(namespace, name, None, (), status, _last(status), self._now())
        self._services.rows[key] = replace(row, status=status, blocked=(BlockedReason.INVALID_SPEC,))

    def forget(self, key: str) -> None:
        """Service `key` is gone: remove its series."""
        self._pending.pop(key, None)
        self._failing.pop(key, None)
        if self._services.rows.pop(key, None) is not None:
            namespace, name = key.split("/", 1)
            for metric in (self._drains, self._drain_seconds, self._late, self._cut, self._uncounted):
                metric.remove_by_labels({"namespace": namespace, "service": name})

    # -- drains

    def _begin(self, namespace: str, name: str) -> None:
        """Start at 0: Prometheus sees no increase in a counter that appears with its first event."""
        self._cut.labels(namespace, name)
        self._uncounted.labels(namespace, name)
        self._late.labels(namespace, name)
        for outcome in Outcome:
            for reason in DrainReason:
                self._drains.labels(namespace, name, outcome, reason)

    def _count(self, namespace: str, name: str, ended: OutcomeRecord) -> None:
        outcome, reason = ended.outcome, ended.reason
        self._drains.labels(namespace, name, outcome, reason).inc()
        self._drain_seconds.labels(namespace, name, outcome).observe(ended.seconds)
        if ended.last_arrival_after_seconds is not None:
            self._late.labels(namespace, name).observe(ended.last_arrival_after_seconds)
        if ended.cut is None:
            self._uncounted.labels(namespace, name).inc()
        else:
            self._cut.labels(namespace, name).inc(ended.cut)


class _Failing(Collector):
    """Services whose last passes failed."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self._counts = counts

    def collect(self) -> Iterator[GaugeMetricFamily]:
        text = "Failed passes over the service since the last successful one; absent if there are none."
        family = GaugeMetricFamily("tidegate_reconcile_consecutive_failures", text, labels=SERVICE)
        for key, count in list(self._counts.items()):
            family.add_metric(key.split("/", 1), count)
        yield family


def _last(status: LLMServiceStatus) -> dict[tuple[str, str], float]:
    """Unix time of the last drain by outcome and reason, from the outcomes in the status."""
    found: dict[tuple[str, str], float] = {}
    for row in status.outcomes:
        ended = (str(row.outcome), str(row.reason or ""))
        found[ended] = max(found.get(ended, 0.0), times.parse(row.at) or 0.0)
    return found

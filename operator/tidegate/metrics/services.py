"""Gauges of each service, as its last pass saw it.

Passes write the rows, and scrapes, which run in a thread of their own, only read them: nothing is shared but frozen
rows. So a scrape calls no pod and no API server, and the series of a deleted service disappear.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tidegate.api.conditions import BlockedReason, ConditionStatus, Phase, PodState
from tidegate.api.status import LLMServiceStatus, PodStatus, RolloutStatus
from tidegate.core.state import times
from tidegate.core.state.snapshot import Pod, Snapshot

POD_STATES: Final = ("serving", "unready", PodState.DRAINING, PodState.DRAINED, "terminating")
SERVICE: Final = ("namespace", "service")
_POD: Final = (*SERVICE, "pod")


@dataclass(frozen=True, slots=True)
class PodRow:
    """A pod and its last reading. Times are Unix seconds."""

    name: str
    revision: str
    state: str
    observed_at: float | None = None
    in_flight: int | None = None
    oldest_seconds: float | None = None
    reason: str = ""
    since: float | None = None
    deadline: float | None = None
    """When its budget is spent; also set for a pod that `onExpiry: Hold` keeps."""


@dataclass(frozen=True, slots=True)
class ServiceRow:
    """A service: its pods and its status. `last` is the Unix time of the last drain, by outcome and reason.

    `at` is when the status was computed, in Unix seconds: its ETAs are relative to this time.
    """

    namespace: str
    name: str
    replicas: int | None
    pods: tuple[PodRow, ...]
    status: LLMServiceStatus
    last: Mapping[tuple[str, str], float]
    at: float
    blocked: tuple[BlockedReason, ...] = ()
    """Why the plan does nothing more now."""


def pod_rows(snapshot: Snapshot) -> tuple[PodRow, ...]:
    """Rows of all pods that exist."""
    return tuple(_pod_row(snapshot, pod) for pod in snapshot.pods)


def _pod_row(snapshot: Snapshot, pod: Pod) -> PodRow:
    reading = snapshot.readings.get(pod.uid)
    drain = pod.drain if pod.state == PodState.DRAINING and pod.alive else None
    if reading is not None and drain is not None and reading.at < drain.since:
        # From before the withdrawal: the pod may have got requests since.
        reading = None
    return PodRow(
        name=pod.name,
        revision=pod.revision,
        state=_state(pod),
        observed_at=reading.at if reading else None,
        in_flight=reading.in_flight if reading else None,
        oldest_seconds=reading.oldest_seconds if reading else None,
        reason=drain.reason if drain else "",
        since=drain.since if drain else None,
        deadline=(drain.deadline or drain.since + snapshot.spec.drain.budget_seconds) if drain else None,
    )


def _state(pod: Pod) -> str:
    if not pod.alive:
        return "terminating"
    if pod.state == PodState.SERVING and not pod.ready:
        return "unready"
    return pod.state


class Services(Collector):
    """The rows, by key `namespace/name`."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.rows: dict[str, ServiceRow] = {}
        self._now = now

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The gauges of all rows; a scrape calls this."""
        sheet = _Sheet()
        now = self._now()
        # Copied in one step, since passes change the dict at the same time.
        for row in list(self.rows.values()):
            _service(sheet, row)
            _rollout(sheet, row, now)
            _drain_times(sheet, row)
            for pod in row.pods:
                _pod(sheet, row, pod)
            for draining in row.status.pods:
                _eta(sheet, "drain", (row.namespace, row.name, draining.name), draining, row.at)
        yield from sheet.families.values()


class _Sheet:
    """The metric families of one scrape, including those without a sample."""

    def __init__(self) -> None:
        self.families = {
            name: GaugeMetricFamily(f"tidegate_{name}", text, labels=labels)
            for name, (text, labels) in _FAMILIES.items()
        }

    def add(self, name: str, labels: tuple[str, ...], value: float | None) -> None:
        """Add a sample. A value that is not known is absent, not 0."""
        if value is not None:
            self.families[name].add_metric(labels, float(value))


_FAMILIES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "service_phase": ("1 for the phase that the service is in.", (*SERVICE, "phase")),
    "service_condition": ("Conditions of the service: 1 when True, 0 when False.", (*SERVICE, "condition", "reason")),
    "service_blocked": ("1 for each reason why nothing more is done for the service now.", (*SERVICE, "reason")),
    "service_replicas": ("spec.replicas.", SERVICE),
    "pods": ("Pods by state; unready: the pod should serve and is not Ready.", (*SERVICE, "state")),
    "pod_state": ("1 for the state that the pod is in.", (*_POD, "revision", "state")),
    "pod_in_flight_requests": ("Requests in flight, from the last answer of the draining pod.", _POD),
    "pod_oldest_request_seconds": ("Age of the oldest of them in seconds, from the same answer.", _POD),
    "pod_observed_timestamp_seconds": ("Unix time of the pod's last answer.", _POD),
    "drain_started_timestamp_seconds": ("Unix time at which the draining pod was withdrawn.", (*_POD, "reason")),
    "drain_deadline_timestamp_seconds": ("Unix time at which the budget of the draining pod is spent.", _POD),
    "drain_eta_timestamp_seconds": (
        "Unix time at which the drain is expected to be over; estimate: likely, or upper with 95 % probability.",
        (*_POD, "estimate"),
    ),
    "last_drain_timestamp_seconds": (
        "Unix time of the last drain with this outcome and reason.",
        (*SERVICE, "outcome", "reason"),
    ),
    "rollout_running": ("1 while a rollout is running.", SERVICE),
    "rollout_seconds": ("Duration of the running rollout, or of the last one, in seconds.", SERVICE),
    "rollout_bound_seconds": ("Lower bound of the duration of that rollout, in seconds.", SERVICE),
    "rollout_eta_timestamp_seconds": (
        "Unix time at which the rollout is expected to be over; estimate: likely, or upper with 95 % probability.",
        (*SERVICE, "estimate"),
    ),
    "rollout_drained_pods": ("Pods drained in that rollout.", SERVICE),
    "rollout_cut_requests": ("Requests cut in that rollout; absent if nobody could count those of a pod.", SERVICE),
    "rollout_uncounted_pods": ("Pods of that rollout whose cut requests nobody could count.", SERVICE),
    "drain_estimate_seconds": ("Estimated duration of a drain, in seconds.", (*SERVICE, "estimate")),
    "drain_estimate_samples": ("Drains that the estimate is based on.", SERVICE),
    "drain_estimate_censored_samples": ("How many of them are only lower bounds: cut or lost from sight.", SERVICE),
    "drain_estimate_covers_ratio": ("Largest quantile of drains that the samples bound with 95 % confidence.", SERVICE),
    "grace_period_seconds": ("terminationGracePeriodSeconds of the next revision.", SERVICE),
    "grace_period_term_seconds": ("Its terms, in seconds.", (*SERVICE, "term", "source")),
}


def _service(sheet: _Sheet, row: ServiceRow) -> None:
    key = (row.namespace, row.name)
    for phase in Phase:
        sheet.add("service_phase", (*key, phase), row.status.phase is phase)
    for condition in row.status.conditions:
        labels = (*key, condition.type, condition.reason)
        sheet.add("service_condition", labels, condition.status is ConditionStatus.TRUE)
    for reason in row.blocked:
        sheet.add("service_blocked", (*key, reason), 1)
    sheet.add("service_replicas", key, row.replicas)
    for state in POD_STATES:
        sheet.add("pods", (*key, state), sum(pod.state == state for pod in row.pods))
    for ended, at in row.last.items():
        sheet.add("last_drain_timestamp_seconds", (*key, *ended), at)


def _rollout(sheet: _Sheet, row: ServiceRow, now: float) -> None:
    key = (row.namespace, row.name)
    rollout = row.status.rollout
    started = None if rollout is None else times.parse(rollout.started_at)
    if rollout is None or started is None:
        return
    running = rollout.finished_at is None
    sheet.add("rollout_running", key, running)
    sheet.add("rollout_seconds", key, now - started if running else rollout.seconds)
    sheet.add("rollout_bound_seconds", key, rollout.bound_seconds)
    _eta(sheet, "rollout", key, rollout, row.at)
    sheet.add("rollout_drained_pods", key, rollout.drained)
    sheet.add("rollout_cut_requests", key, rollout.cut)
    sheet.add("rollout_uncounted_pods", key, rollout.uncounted)


def _drain_times(sheet: _Sheet, row: ServiceRow) -> None:
    key = (row.namespace, row.name)
    if (known := row.status.drain_times) is not None:
        estimates = {"p50": known.p50_seconds, "p90": known.p90_seconds, "p99": known.p99_seconds}
        for name, seconds in (estimates | {"p99Upper": known.p99_upper_seconds}).items():
            sheet.add("drain_estimate_seconds", (*key, name), seconds)
        sheet.add("drain_estimate_samples", key, known.samples)
        sheet.add("drain_estimate_censored_samples", key, known.censored)
    if (grace := row.status.grace_period) is not None:
        sheet.add("grace_period_seconds", key, grace.seconds)
        for term in grace.terms:
            sheet.add("grace_period_term_seconds", (*key, term.name, term.source), term.seconds)
            if term.name == "drain":
                sheet.add("drain_estimate_covers_ratio", key, term.covers)


def _eta(sheet: _Sheet, what: str, key: tuple[str, ...], promised: PodStatus | RolloutStatus, at: float) -> None:
    """Exported as a time, since seconds from now would be wrong by the age of the pass that computed them."""
    for name, seconds in (("likely", promised.eta_seconds), ("upper", promised.eta_upper_seconds)):
        if seconds is not None:
            sheet.add(f"{what}_eta_timestamp_seconds", (*key, name), at + seconds)


def _pod(sheet: _Sheet, row: ServiceRow, pod: PodRow) -> None:
    key = (row.namespace, row.name, pod.name)
    sheet.add("pod_state", (*key, pod.revision, pod.state), 1)
    sheet.add("pod_in_flight_requests", key, pod.in_flight)
    sheet.add("pod_oldest_request_seconds", key, pod.oldest_seconds)
    sheet.add("pod_observed_timestamp_seconds", key, pod.observed_at)
    sheet.add("drain_started_timestamp_seconds", (*key, pod.reason), pod.since)
    sheet.add("drain_deadline_timestamp_seconds", key, pod.deadline)

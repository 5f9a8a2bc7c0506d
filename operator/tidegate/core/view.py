"""What follows from a snapshot before anything is decided: which revision is wanted, who counts, who holds work."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from tidegate.api import names
from tidegate.api.conditions import ConditionStatus, ConditionType
from tidegate.api.drain import OnExpiry
from tidegate.api.resource import WhenNoCapacity

from . import amounts, revision, template, times
from .amounts import Amounts
from .grace import GracePeriod, grace_period
from .model import ContainerStatus, Deployment, Pod, Snapshot

FRESH_SECONDS: Final = 5.0
"""A reading older than this does not choose victims. Longer than a call may take, or a slow pod would be asked for
ever; no longer than that, since a pod that was asked as it started says nothing about what it holds now."""

SCHEDULER_SECONDS: Final = 10.0
"""The scheduler's longest backoff (podMaxBackoffSeconds): a free place is not taken before."""

FAILED_WAITING: Final = frozenset(
    (
        "ImagePullBackOff",
        "ErrImagePull",
        "InvalidImageName",
        "ErrImageNeverPull",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
        "CrashLoopBackOff",
    )
)
"""Waiting reasons of the kubelet that do not heal by waiting alone."""


@dataclass(frozen=True)
class View:
    """A snapshot with its first conclusions, each drawn once."""

    s: Snapshot
    amounts: Amounts
    source: str
    target: Deployment | None
    findings: tuple[template.Finding, ...]
    drain_first: bool = False
    """Whether `whenNoCapacity: DrainFirst` has put maxSurge 0, maxUnavailable 1 in force."""

    @classmethod
    def of(cls, s: Snapshot) -> "View":
        rollout = s.spec.rollout
        source = revision.source(s.raw_spec)
        target = revision.find((d for d in s.deployments if not d.deleting), source)
        if s.spec.drain.grace.roll_on_drift:
            source, target = _with_grace(s, source, target)
        resolved = amounts.resolve(s.spec.replicas, rollout.max_surge, rollout.max_unavailable)
        drain_first = rollout.when_no_capacity is WhenNoCapacity.DRAIN_FIRST and _starved(s, target)
        if drain_first:
            resolved = Amounts(s.spec.replicas, 0, 1)
        found = template.findings(s.spec) or tuple(_unroutable(s, target))
        return cls(s, resolved, source, target, found, drain_first)

    @cached_property
    def grace(self) -> GracePeriod:
        """What a pod made now gets in place when somebody else deletes it."""
        return grace_period(self.s.spec, self.s.drain_times)

    @cached_property
    def blocked(self) -> bool:
        """Whether the wanted revision cannot be made: running drains go on, nothing new is begun."""
        return bool(self.findings or self.s.rejected or self.s.conflicts)

    @cached_property
    def alive(self) -> list[Pod]:
        return [pod for pod in self.s.pods if pod.alive]

    @cached_property
    def _by_revision(self) -> dict[str, list[Pod]]:
        found: dict[str, list[Pod]] = {}
        for pod in self.alive:
            found.setdefault(pod.revision, []).append(pod)
        return found

    def pods_of(self, deployment: Deployment | None) -> list[Pod]:
        return self._by_revision.get(deployment.revision, []) if deployment is not None else []

    @cached_property
    def target_pods(self) -> list[Pod]:
        return self.pods_of(self.target)

    @cached_property
    def old_pods(self) -> list[Pod]:
        return [p for p in self.alive if self.target is None or p.revision != self.target.revision]

    @cached_property
    def old_deployments(self) -> list[Deployment]:
        return [d for d in self.s.deployments if self.target is None or d.uid != self.target.uid]

    def occupied(self, deployment: Deployment) -> int:
        """Pods that this Deployment has or is about to have: asked for and not there counts, so does not yet gone.

        A drained pod that is paid for stands beside the replicas: those are pods that may not have been seen yet.
        """
        pods = self.pods_of(deployment)
        paid = sum(p.state == names.DRAINED and p.uid in deployment.released for p in pods)
        return max(deployment.replicas + paid, len(pods))

    @cached_property
    def total(self) -> int:
        """All places taken. Without surge a terminating pod holds its place: it may still hold its device."""
        taken = sum(self.occupied(d) for d in self.s.deployments)
        if self.amounts.surge == 0:
            taken += sum(pod.terminating for pod in self.s.pods)
        return taken

    def staying(self, deployment: Deployment) -> int:
        """Pods of this Deployment that are there or asked for, and not on their way out."""
        leaving = sum(p.state != names.SERVING for p in self.pods_of(deployment))
        return max(self.occupied(deployment) - leaving, 0)

    @cached_property
    def target_staying(self) -> int:
        return 0 if self.target is None else self.staying(self.target)

    @cached_property
    def paused(self) -> bool:
        """Whether a rollout is held in its middle, or before it began; without an old revision nothing is held."""
        others = any(d.replicas for d in self.old_deployments) or bool(self.old_pods)
        return self.s.spec.rollout.paused and others

    @cached_property
    def serving(self) -> list[Pod]:
        return [p for p in self.alive if p.state == names.SERVING and p.ready]

    @cached_property
    def available(self) -> list[Pod]:
        """Serving pods that count: each has stayed Ready for minReadySeconds, of whichever revision it is.

        Else a pod of a revision that is given up would count in each moment in which it flaps to Ready.
        """
        least = self.s.spec.rollout.min_ready_seconds
        return [p for p in self.serving if p.ready_since is not None and self.s.now - p.ready_since >= least]

    @cached_property
    def target_available(self) -> list[Pod]:
        """Pods of the wanted revision that count."""
        return [p for p in self.target_pods if p.uid in self.available_uids]

    @cached_property
    def available_uids(self) -> frozenset[str]:
        return frozenset(p.uid for p in self.available)

    @cached_property
    def lost(self) -> list[Pod]:
        """Pods that stopped serving by no doing of ours: of an old revision and NotReady, or deleted undrained."""
        new = self.target.revision if self.target else None
        return [
            p
            for p in self.s.pods
            if p.state == names.SERVING and not p.ready and (p.terminating or (p.alive and p.revision != new))
        ]

    @cached_property
    def leaving(self) -> list[Pod]:
        """Pods on their way out, by whomever; the place of each will be free."""
        return [p for p in self.s.pods if p.terminating or (p.alive and p.state != names.SERVING)]

    @cached_property
    def starved(self) -> list[Pod]:
        """Pods of the wanted revision that find no node, unless as many are leaving or have just left.

        A terminating pod keeps its device for a moment: where there are replicas + maxSurge of them the next new pod
        waits for it, and needs nobody else to go.
        """
        found = [p for p in self.target_pods if p.unschedulable]
        return found if len(found) > len(self.leaving) and self.s.now >= self.room_seen_at else []

    @cached_property
    def last_drain(self) -> float:
        """When the last drain ended, of pods that stand or are gone; 0 if there was none."""
        listed = [times.parse(row.get("at")) or 0.0 for row in self.s.status.get("outcomes") or []]
        return max([*listed, *(p.outcome.at for p in self.s.pods if p.outcome is not None)], default=0.0)

    @property
    def room_seen_at(self) -> float:
        """When the pod of the last drain should be gone, and the scheduler have seen its place."""
        return self.last_drain + self.s.spec.drain.grace.teardown_seconds + SCHEDULER_SECONDS

    @cached_property
    def draining(self) -> list[Pod]:
        return [p for p in self.alive if p.state == names.DRAINING]

    def overdue(self, pod: Pod) -> bool:
        """Whether it drains and its budget, as it is now, is spent."""
        spent = pod.drain is not None and self.s.now > pod.drain.since + self.s.spec.drain.budget_seconds
        return spent and pod.state == names.DRAINING

    @cached_property
    def held(self) -> list[Pod]:
        """Pods that `onExpiry: Hold` keeps beyond their budget."""
        hold = self.s.spec.drain.on_expiry is OnExpiry.HOLD
        return [p for p in self.draining if hold and self.overdue(p)]

    def holds_no_work(self, pod: Pod) -> bool:
        """Unknown is never zero: only a container that does not run or has not started proves an empty pod."""
        return bool(self.why_empty(pod))

    def why_empty(self, pod: Pod) -> str:
        """What proves that the pod holds no work; empty when it may hold some."""
        c = pod.container
        if not pod.any_running or not c.running:
            why = c.waiting_reason or ("" if c.exit_code is None else f"exited with code {c.exit_code}")
            return f"nothing runs in it{f' ({why})' if why else ''}"
        if not c.started:
            return "its container has not started yet"
        if pod.gateway is not None and not pod.gateway.running:
            return "its gateway does not run, and whatever came through it ended with it"
        reading = self.s.readings.get(pod.uid)
        if pod.ready or reading is None or reading.state != "starting" or self.s.now - reading.at > 1:
            return ""
        # An engine that has closed its port may still generate.
        return "it says that it is still starting" if reading.in_flight == 0 else ""

    @cached_property
    def failing(self) -> list[Pod]:
        """Pods of the wanted revision whose own container says that it will not come up.

        One that crashed and is Ready again is among them until it has stayed so for minReadySeconds.
        """
        return [p for p in self.target_pods if p.uid not in self.available_uids and failure(p)]


def failure(pod: Pod) -> str:
    """The container's own reason for not coming up, or nothing."""
    if pod.state != names.SERVING:
        return ""
    before = _failure(pod.gateway) if pod.gateway is not None else ""
    # Its engine waits for it.
    return f"container {names.GATEWAY}: {before}" if before else _failure(pod.container)


def _failure(c: ContainerStatus) -> str:
    crash = ""
    if c.restarts and c.exit_code is not None:
        crash = f"container exited with code {c.exit_code} ({c.exit_reason or 'Error'}), restarted {c.restarts} times"
    if c.waiting_reason == "CrashLoopBackOff" or (crash and not c.waiting_reason):
        return f"{c.waiting_reason or 'Crashed'}: {crash or c.waiting_message}"
    if c.waiting_reason in FAILED_WAITING:
        return f"{c.waiting_reason}: {c.waiting_message}"
    return ""


def _unroutable(s: Snapshot, target: Deployment | None) -> Iterator[template.Finding]:
    standing = {p.revision for p in s.pods if p.alive}
    for d in s.deployments:
        if d.revision in standing and (target is None or d.uid != target.uid):
            older = revision.spec_of(d.source)
            finding = template.unroutable(s.spec, older) if older is not None else None
            if finding is not None:
                yield finding
                return


def _with_grace(s: Snapshot, source: str, target: Deployment | None) -> tuple[str, Deployment | None]:
    """With rollOnDrift the grace period is part of the revision, and another one takes its place once it is stale.

    Only of a service that stands whole, and after the condition has said so: the drains of the very rollout that this
    begins move the terms again.
    """
    grace = grace_period(s.spec, s.drain_times)
    fresh = revision.with_grace(source, grace.seconds)
    if target is None:
        return fresh, None
    alive = [p for p in s.pods if p.alive]
    if not target.replicas and all(p.revision != target.revision for p in alive):
        return fresh, target
    others = any(d.replicas for d in s.deployments if d.uid != target.uid)
    whole = len(alive) == s.spec.replicas and all(
        p.revision == target.revision and p.state == names.SERVING and p.ready for p in alive
    )
    said = any(
        c.get("type") == ConditionType.GRACE_PERIOD_STALE and c.get("status") == ConditionStatus.TRUE
        for c in s.status.get("conditions") or []
    )
    if whole and not others and said and not s.spec.rollout.paused and grace.drifted_from(target.grace_seconds):
        return fresh, None
    return target.source, target


def _starved(s: Snapshot, target: Deployment | None) -> bool:
    return target is not None and any(p.alive and p.revision == target.revision and p.unschedulable for p in s.pods)


def by_age(pods: Iterable[Pod]) -> list[Pod]:
    return sorted(pods, key=lambda p: (p.created, p.name))

"""What follows from a snapshot before anything is decided: which revision is wanted, who counts, who holds work."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tidegate.api import names
from tidegate.api.resource import WhenNoCapacity

from . import amounts, revision, template
from .amounts import Amounts
from .model import Deployment, Pod, Snapshot

FRESH_SECONDS: Final = 10.0
"""A reading older than this does not choose victims."""

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


@dataclass(frozen=True, slots=True)
class View:
    """A snapshot with its first conclusions."""

    s: Snapshot
    amounts: Amounts
    source: str
    target: Deployment | None
    findings: tuple[template.Finding, ...]

    @classmethod
    def of(cls, s: Snapshot) -> "View":
        rollout = s.spec.rollout
        source = revision.source(s.raw_spec)
        target = revision.find((d for d in s.deployments if not d.deleting), source)
        resolved = amounts.resolve(s.spec.replicas, rollout.max_surge, rollout.max_unavailable)
        if rollout.when_no_capacity is WhenNoCapacity.DRAIN_FIRST and _starved(s, target):
            resolved = Amounts(s.spec.replicas, 0, 1)
        return cls(s, resolved, source, target, template.findings(s.spec))

    @property
    def blocked(self) -> bool:
        """Whether the wanted revision cannot be made: running drains go on, nothing new is begun."""
        return bool(self.findings or self.s.rejected or self.s.conflicts)

    @property
    def alive(self) -> list[Pod]:
        return [pod for pod in self.s.pods if pod.alive]

    def pods_of(self, deployment: Deployment | None) -> list[Pod]:
        return [p for p in self.alive if deployment is not None and p.revision == deployment.revision]

    @property
    def target_pods(self) -> list[Pod]:
        return self.pods_of(self.target)

    @property
    def old_pods(self) -> list[Pod]:
        return [p for p in self.alive if self.target is None or p.revision != self.target.revision]

    @property
    def old_deployments(self) -> list[Deployment]:
        return [d for d in self.s.deployments if self.target is None or d.uid != self.target.uid]

    def occupied(self, deployment: Deployment) -> int:
        """Pods that this Deployment has or is about to have: asked for and not there counts, so does not yet gone."""
        return max(deployment.replicas, len(self.pods_of(deployment)))

    @property
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

    @property
    def target_staying(self) -> int:
        return 0 if self.target is None else self.staying(self.target)

    @property
    def paused(self) -> bool:
        """Whether a rollout is held in its middle, or before it began; without an old revision nothing is held."""
        others = any(d.replicas for d in self.old_deployments) or bool(self.old_pods)
        return self.s.spec.rollout.paused and others

    @property
    def serving(self) -> list[Pod]:
        return [p for p in self.alive if p.state == names.SERVING and p.ready]

    @property
    def available(self) -> list[Pod]:
        """Serving pods that count: one of the new revision has to have stayed Ready for minReadySeconds."""
        least = self.s.spec.rollout.min_ready_seconds
        new = self.target.revision if self.target else None
        return [
            p
            for p in self.serving
            if p.revision != new or (p.ready_since is not None and self.s.now - p.ready_since >= least)
        ]

    @property
    def draining(self) -> list[Pod]:
        return [p for p in self.alive if p.state == names.DRAINING]

    def holds_no_work(self, pod: Pod) -> bool:
        """Unknown is never zero: only a container that does not run or has not started proves an empty pod."""
        if not pod.any_running or not pod.container.running or not pod.container.started:
            return True
        reading = self.s.readings.get(pod.uid)
        return reading is not None and reading.state == "starting" and self.s.now - reading.at <= 1 and not pod.ready

    @property
    def failing(self) -> list[Pod]:
        """Pods of the wanted revision whose own container says that it will not come up."""
        return [p for p in self.target_pods if failure(p)]


def failure(pod: Pod) -> str:
    """The container's own reason for not coming up, or nothing."""
    c = pod.container
    if pod.ready or pod.state != names.SERVING:
        return ""
    crash = ""
    if c.restarts and c.exit_code is not None:
        crash = f"container exited with code {c.exit_code} ({c.exit_reason or 'Error'}), restarted {c.restarts} times"
    if c.waiting_reason == "CrashLoopBackOff" or (crash and not c.waiting_reason):
        return f"{c.waiting_reason or 'Crashed'}: {crash or c.waiting_message}"
    if c.waiting_reason in FAILED_WAITING:
        return f"{c.waiting_reason}: {c.waiting_message}"
    return ""


def _starved(s: Snapshot, target: Deployment | None) -> bool:
    return target is not None and any(p.alive and p.revision == target.revision and p.unschedulable for p in s.pods)


def by_age(pods: Iterable[Pod]) -> list[Pod]:
    return sorted(pods, key=lambda p: (p.created, p.name))

"""What follows from a snapshot before anything is decided: which revision is wanted, who counts, who holds work."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from tidegate.api.conditions import PodState
from tidegate.api.drain import OnExpiry
from tidegate.core.drain_time.grace import GracePeriod, grace_period
from tidegate.core.render.finding import Finding

from . import pods, times
from .limits import Limits
from .pods import NoWork
from .snapshot import Deployment, Pod, Snapshot

FRESH_SECONDS: Final = 5.0
"""A reading older than this does not choose victims. Longer than a call may take, or a slow pod would be asked for
ever; no longer than that, since a pod that was asked as it started says nothing about what it holds now."""

SCHEDULER_SECONDS: Final = 10.0
"""The scheduler's longest backoff (podMaxBackoffSeconds): a free place is not taken before."""


TERMINATION_MARGIN: Final = 30.0
"""Seconds after its grace period in which a pod may still be reported to have ended."""


@dataclass(frozen=True)
class View:
    """A snapshot with its first conclusions, each drawn once."""

    snapshot: Snapshot
    limits: Limits
    source: str
    target: Deployment | None
    findings: tuple[Finding, ...]
    drain_first: bool = False
    """Whether `whenNoCapacity: DrainFirst` has put maxSurge 0, maxUnavailable 1 in force."""

    @cached_property
    def grace(self) -> GracePeriod:
        """What a pod made now gets in place when somebody else deletes it."""
        return grace_period(self.snapshot.spec, self.snapshot.drain_times)

    @cached_property
    def cannot_start(self) -> bool:
        """Whether the wanted revision cannot be made: running drains go on, nothing new is begun."""
        return bool(self.findings or self.snapshot.rejected or self.snapshot.conflicts)

    @cached_property
    def alive(self) -> list[Pod]:
        """Pods that count as replicas."""
        return [pod for pod in self.snapshot.pods if pod.alive]

    @cached_property
    def _by_revision(self) -> dict[str, list[Pod]]:
        found: dict[str, list[Pod]] = {}
        for pod in self.alive:
            found.setdefault(pod.revision, []).append(pod)
        return found

    def pods_of(self, deployment: Deployment | None) -> list[Pod]:
        """Alive pods of its revision."""
        return self._by_revision.get(deployment.revision, []) if deployment is not None else []

    @cached_property
    def target_pods(self) -> list[Pod]:
        """Alive pods of the wanted revision."""
        return self.pods_of(self.target)

    @cached_property
    def old_pods(self) -> list[Pod]:
        """Alive pods of all others."""
        return [p for p in self.alive if self.target is None or p.revision != self.target.revision]

    @cached_property
    def old_deployments(self) -> list[Deployment]:
        """All but that of the wanted revision."""
        return [d for d in self.snapshot.deployments if self.target is None or d.uid != self.target.uid]

    def occupied(self, deployment: Deployment) -> int:
        """Pods that this Deployment has or is about to have: asked for and not there counts, so does not yet gone.

        A drained pod that the replicas were lowered for stands beside them: those may be pods not seen yet.
        """
        mine = self.pods_of(deployment)
        released = sum(p.state == PodState.DRAINED and p.uid in deployment.released for p in mine)
        return max(deployment.replicas + released, len(mine))

    @cached_property
    def total(self) -> int:
        """All places taken. Without surge a terminating pod holds its place while it may hold its device."""
        taken = sum(self.occupied(d) for d in self.snapshot.deployments)
        return taken + (len(self.occupying) if self.limits.surge == 0 else 0)

    @cached_property
    def occupying(self) -> list[Pod]:
        """Terminating pods that may hold their device: until their containers have ended, or should have long ago.

        A pod whose node is dead stays as it was last seen, for ever: waited for, it would be missing as long.
        """
        return [p for p in self.snapshot.pods if p.terminating and p.any_running and p not in self.stuck]

    def staying(self, deployment: Deployment) -> int:
        """Pods of this Deployment that are there or asked for, and not on their way out."""
        leaving = sum(p.state != PodState.SERVING for p in self.pods_of(deployment))
        return max(self.occupied(deployment) - leaving, 0)

    @cached_property
    def target_staying(self) -> int:
        """As `staying`, of the wanted revision."""
        return 0 if self.target is None else self.staying(self.target)

    @cached_property
    def old_stand(self) -> bool:
        """Whether pods of another revision stand or are asked for."""
        return any(d.replicas for d in self.old_deployments) or bool(self.old_pods)

    @property
    def rolling(self) -> bool:
        """Whether the wanted revision has to be made, or pods of another one still have to go."""
        return self.target is None or self.old_stand

    @property
    def paused(self) -> bool:
        """Whether a rollout is held in its middle, or before it began; without an old revision nothing is held."""
        return self.snapshot.spec.rollout.paused and self.old_stand

    @cached_property
    def serving(self) -> list[Pod]:
        """Pods that take traffic: by their label, and Ready."""
        return [p for p in self.alive if p.state == PodState.SERVING and p.ready]

    @cached_property
    def available(self) -> list[Pod]:
        """Serving pods that count: each has stayed Ready for minReadySeconds, of whichever revision it is.

        Else a pod of a revision that is given up would count in each moment in which it flaps to Ready.
        """
        least = self.snapshot.spec.rollout.min_ready_seconds
        return [p for p in self.serving if p.ready_since is not None and self.snapshot.now - p.ready_since >= least]

    @cached_property
    def target_available(self) -> list[Pod]:
        """Pods of the wanted revision that count."""
        return [p for p in self.target_pods if p.uid in self.available_uids]

    @cached_property
    def available_uids(self) -> frozenset[str]:
        """Of the `available` ones."""
        return frozenset(p.uid for p in self.available)

    @cached_property
    def lost(self) -> list[Pod]:
        """Pods that stopped serving by no doing of ours: of an old revision and NotReady, or deleted undrained."""
        new = self.target.revision if self.target else None
        return [
            p
            for p in self.snapshot.pods
            if p.state == PodState.SERVING and not p.ready and (p.terminating or (p.alive and p.revision != new))
        ]

    @cached_property
    def leaving(self) -> list[Pod]:
        """Pods on their way out, by whomever; the place of each will be free."""
        going = (p for p in self.snapshot.pods if p.terminating or (p.alive and p.state != PodState.SERVING))
        return [p for p in going if p not in self.stuck]

    @cached_property
    def told(self) -> frozenset[str]:
        """Names of the pods whose outcome the status lists."""
        return frozenset(row.pod for row in self.snapshot.status.outcomes)

    def untold(self, pod: Pod) -> bool:
        """Whether its end is still to be told, once it comes, and is not told by an outcome or a release."""
        mine = pod.state in (PodState.SERVING, PodState.DRAINING)
        return mine and pod.outcome is None and not pod.release and pod.name not in self.told

    @cached_property
    def going(self) -> list[Pod]:
        """Pods that somebody else takes away, and that may hold requests until their last container has ended."""
        listed = {row.name for row in self.snapshot.status.pods}
        return [
            p
            for p in self.snapshot.pods
            if not p.alive
            and p.any_running
            and self.untold(p)
            and (p.uid in self.snapshot.last_seen or p.name in listed or not self.holds_no_work(p))
        ]

    @cached_property
    def stuck(self) -> list[Pod]:
        """Pods that should have ended: their grace period and a margin are over, and nothing says that they did."""
        now = self.snapshot.now
        return [
            p
            for p in self.snapshot.pods
            if p.terminates_by is not None and p.any_running and now > p.terminates_by + TERMINATION_MARGIN
        ]

    @cached_property
    def still_draining(self) -> list[Pod]:
        """Of those that somebody else takes away, the ones that a rollout or a scale-in has to wait for.

        One that should have ended long ago holds nobody up: its node may be dead.
        """
        new = self.target.revision if self.target else None
        return [p for p in self.going if p not in self.stuck and (p.state == PodState.DRAINING or p.revision != new)]

    @cached_property
    def starved(self) -> list[Pod]:
        """Pods of the wanted revision that find no node, unless as many are leaving or have just left.

        A terminating pod keeps its device for a moment: where there are replicas + maxSurge of them the next new pod
        waits for it, and needs nobody else to go.
        """
        found = [p for p in self.target_pods if p.unschedulable]
        return found if len(found) > len(self.leaving) and self.snapshot.now >= self.room_seen_at else []

    @cached_property
    def last_drain(self) -> float:
        """When the last drain ended, of pods that stand or are gone; 0 if there was none."""
        listed = [times.parse(row.at) or 0.0 for row in self.snapshot.status.outcomes]
        return max([*listed, *(p.outcome.at for p in self.snapshot.pods if p.outcome is not None)], default=0.0)

    @property
    def room_seen_at(self) -> float:
        """When the pod of the last drain should be gone, and the scheduler have seen its place."""
        return self.last_drain + self.snapshot.spec.drain.grace.teardown_seconds + SCHEDULER_SECONDS

    @cached_property
    def draining(self) -> list[Pod]:
        """Pods that are withdrawn and not drained yet."""
        return [p for p in self.alive if p.state == PodState.DRAINING]

    def overdue(self, pod: Pod) -> bool:
        """Whether it drains and its budget, as it is now, is spent."""
        spent = pod.drain is not None and self.snapshot.now > pod.drain.since + self.snapshot.spec.drain.budget_seconds
        return spent and pod.state == PodState.DRAINING

    @cached_property
    def held(self) -> list[Pod]:
        """Pods that `onExpiry: Hold` keeps beyond their budget."""
        hold = self.snapshot.spec.drain.on_expiry is OnExpiry.HOLD
        return [p for p in self.draining if hold and self.overdue(p)]

    def holds_no_work(self, pod: Pod) -> bool:
        """Unknown is never zero: see `no_work`."""
        return self.no_work(pod) is not None

    def no_work(self, pod: Pod) -> NoWork | None:
        """What proves that the pod holds no work; None when it may hold some."""
        return pods.no_work(pod, self.snapshot.readings.get(pod.uid), self.snapshot.now)

    @cached_property
    def failing(self) -> list[Pod]:
        """Pods of the wanted revision whose own container says that it will not come up.

        One that crashed and is Ready again is among them until it has stayed so for minReadySeconds.
        """
        return [p for p in self.target_pods if p.uid not in self.available_uids and pods.failure(p)]

"""Which pods go next, and in which order their drains start."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tidegate.api import names
from tidegate.api.conditions import DrainReason, PodState
from tidegate.core.state.snapshot import Pod
from tidegate.core.state.view import FRESH_SECONDS, View

from . import eta
from .actions import Question

BELIEVED_SECONDS: Final = 60.0
"""An answer that proves that the drain endpoints can be reached is at most so old; a waiting GET renews it."""
UNREADY_SECONDS: Final = 10.0
"""NotReady for so long counts as lost, not as flapping."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Pods that have to go, by what stands in the way of each."""

    reason: DrainReason
    empty: tuple[Pod, ...]
    """Hold no work: they go at once."""
    not_ready: tuple[Pod, ...]
    """Take no traffic, may still work."""
    not_available: tuple[Pod, ...]
    """Ready, but not for minReadySeconds, so that nobody counts on them."""
    available: tuple[Pod, ...]
    starting: tuple[Pod, ...] = ()
    """Said when they were last asked that they are starting: they hold no work if that is still so."""
    flapping: tuple[Pod, ...] = ()
    """NotReady for too short a time to count as lost."""

    @property
    def asked(self) -> tuple[Pod, ...]:
        """All that may hold work."""
        return self.not_ready + self.not_available + self.available


def outgoing(view: View) -> list[Candidates]:
    """Pods that are not wanted any more: all of old revisions, and the surplus of the wanted one.

    The surplus is as large as `limit` says; which pods make it up is decided by rank.
    """
    found = []
    old = [p for p in view.old_pods if p.state == PodState.SERVING]
    if old and view.target is not None:
        found.append(_sort(view, DrainReason.ROLLOUT, old))
    if view.target_staying > view.limits.replicas:
        mine = [p for p in view.target_pods if p.state == PodState.SERVING]
        found.append(_sort(view, DrainReason.SCALE_IN, mine))
    return found


def surplus_while_paused(view: View) -> Candidates:
    """Where a paused rollout has to shrink: pods of old revisions first, then of the new one."""
    old = [p for p in view.old_pods if p.state == PodState.SERVING]
    return _sort(view, DrainReason.SCALE_IN, old or [p for p in view.target_pods if p.state == PodState.SERVING])


def _sort(view: View, reason: DrainReason, pods: Iterable[Pod]) -> Candidates:
    empty, not_ready, not_available, available, starting, flapping = [], [], [], [], [], []
    for pod in pods:
        if view.holds_no_work(pod):
            empty.append(pod)
        elif not pod.ready:
            said = view.snapshot.readings.get(pod.uid)
            starting += [pod] if said is not None and said.state == "starting" else []
            # A readiness that flaps for a moment is no reason to take a pod away.
            if pod.unready_since is None or view.snapshot.now - pod.unready_since >= UNREADY_SECONDS:
                not_ready.append(pod)
            else:
                flapping.append(pod)
        elif pod.uid not in view.available_uids:
            not_available.append(pod)
        else:
            available.append(pod)
    # Of an abandoned revision first: the newest have the least to lose.
    not_ready.sort(key=lambda p: (-p.created, p.name))
    groups = (empty, not_ready, not_available, available, starting, flapping)
    return Candidates(reason, *(tuple(pods) for pods in groups))


def questions(view: View, pods: Iterable[Pod]) -> tuple[Question, ...]:
    """One question to each candidate that has not answered, or failed to, lately."""
    asked = []
    for pod in pods:
        said = view.snapshot.readings.get(pod.uid)
        failed = view.snapshot.troubles.get(pod.uid)
        # What it said before it was Ready does not tell what it holds. That it did not answer stands: one that flaps
        # would be asked anew each time, and hold up all others for as long as it does not answer.
        heard = [] if said is None or said.at < (pod.ready_since or 0.0) else [said.at]
        heard += [] if failed is None else [failed.at]
        old = all(view.snapshot.now - at > FRESH_SECONDS for at in heard)
        if old and pod.askable and pod.contract_port:
            run = pod.container.run if pod.foreign is not None else ""
            asked.append(Question(pod.uid, pod.ip, pod.contract_port, pod.foreign, run))
    return tuple(asked)


def choose(view: View, pods: Iterable[Pod], count: int) -> list[Pod]:
    """The `count` pods with the least work; unknown sorts last; names break ties so that a repeat repeats."""
    chosen = sorted(pods, key=lambda p: (*_work(view, p), p.name))[:count]
    if count > 1:
        # Several at once end with the longest: it starts first.
        chosen.sort(key=lambda p: (*_longest_first(view, p), p.name))
    return chosen


def _longest_first(view: View, pod: Pod) -> tuple[bool, float, float, float]:
    said = view.snapshot.readings.get(pod.uid)
    if said is None or _work(view, pod)[0]:
        return True, 0.0, 0.0, 0.0
    seconds, requests, oldest = eta.predicted(view, said)
    return False, -seconds, -requests, -oldest


def _work(view: View, pod: Pod) -> tuple[bool, int, float]:
    said = view.snapshot.readings.get(pod.uid)
    if said is None or said.in_flight is None or pod.uid in view.snapshot.troubles:
        return True, 0, 0.0
    return False, said.in_flight, said.oldest_seconds or 0.0


def reachable(view: View) -> bool:
    """Whether any running pod of the service answers: else a drain would only wait for its budget."""
    if view.snapshot.annotations.get(names.DRAIN_UNREACHABLE):
        return True
    # A trouble is what came last: an answer takes it away.
    answers = (view.snapshot.readings.get(p.uid) for p in view.alive if p.uid not in view.snapshot.troubles)
    return any(said is not None and view.snapshot.now - said.at <= BELIEVED_SECONDS for said in answers)

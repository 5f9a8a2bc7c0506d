"""snapshot -> plan: everything that is decided about a service, in one pure function.

The formula of a step, with R replicas, S surge, U unavailable (all resolved):

    raise the wanted revision by   min(R - staying, R + S - total)
    withdraw at most               available - (R - U)  serving pods

where `total` counts every place taken or about to be taken and `available` the pods that serve now. One free place
becomes one new pod, one pod beyond the floor becomes one drain: slots pipeline, nothing goes in waves.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidegate.api.conditions import BlockedReason, Reason
from tidegate.core.drain_time.drain_times import DrainTimes
from tidegate.core.state.snapshot import Pod, Snapshot
from tidegate.core.state.view import TERMINATION_MARGIN, View

from . import children, disruption, ends, in_progress, new_revision, notices, progress, replicas, samples
from .actions import Action, DrainOrder, Question
from .blocked import Blocked
from .candidates import UNREADY_SECONDS
from .ends import End
from .notices import Notice
from .observe import observe
from .step import Step

SOONEST_SECONDS: Final = 0.02
"""Whatever a rule asks for, a pass that did nothing is not followed by another one at once."""
_WEIGHT: Final = {reason: weight for weight, reason in enumerate(BlockedReason)}


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now, whom to talk to, why no more is done, and when to look again at the latest."""

    view: View
    actions: tuple[Action, ...] = ()
    orders: tuple[DrainOrder, ...] = ()
    questions: tuple[Question, ...] = ()
    blocked: tuple[Blocked, ...] = ()
    """The weightiest first. Whatever tells people why nothing happens maps this, and derives nothing."""
    remaining: Reason | None = None
    """What is left to do until the service is as its spec wants it; None when nothing is, or nothing may be done."""
    notices: tuple[Notice, ...] = ()
    """What people should know although nothing waits for it."""
    requeue_after: float | None = None
    """Seconds; None: at the next event."""
    ends: tuple[End, ...] = ()
    """How pods ended that others took away. Told in the status that is made of this plan, and nowhere before."""
    remembered: Mapping[str, Pod] = field(default_factory=dict)
    """What the next pass has to be given as `Snapshot.last_seen`, once the status is written."""
    learnt: DrainTimes | None = None
    """What is known with the drains that are over. To be kept before anything else is done: a drained pod that its
    Deployment was lowered for goes, and takes its samples with it."""

    def blocked_by(self, reason: BlockedReason) -> Blocked | None:
        """The first of this reason."""
        return next((b for b in self.blocked if b.reason is reason), None)


def plan(snapshot: Snapshot) -> Plan:
    """Decide. The same snapshot gives the same plan."""
    view = observe(snapshot)
    returning = in_progress.wanted_back(view)
    # Drains, and the replicas that they lower, first: nothing that goes wrong with a child may hold them up.
    step = in_progress.drains_in_progress(view, returning)
    step += ends.keep_asking(view)
    step += in_progress.drained_by_others(view)
    step += replicas.lower_drained(view)
    step += replicas.reclaim(view, step.scaled)
    step += children.ensure_children(view)
    # Whatever holds back the rest says so, whether or not this pass comes to it.
    step += Step(blocked=(*new_revision.obstacles(view), *new_revision.awaited(view)))
    step += Step(blocked=disruption.held_back(view) if disruption.has_surplus(view) else ())
    # Gate 1: what cannot be made is not begun. Gate 2: counts are only trusted when nothing in this pass changes them.
    if not view.cannot_start and not step.changes_counts:
        # Gate 3: a paused rollout keeps its revisions as they are.
        step += replicas.hold_count(view, len(returning)) if view.paused else _roll(view, len(returning))
        step += children.prune(view)
    over = tuple(ends.ends(view))
    return Plan(
        view,
        step.actions,
        step.orders,
        step.questions,
        tuple(sorted(step.blocked, key=lambda b: _WEIGHT[b.reason])),
        progress.remaining(view),
        tuple(notices.notices(view)),
        _requeue_after(view, step),
        over,
        ends.remembered(view),
        samples.counted(view, [(end.pod, end.outcome) for end in over]),
    )


def _roll(view: View, returning: int) -> Step:
    """Towards the wanted revision: raise it by what is missing, withdraw what is not wanted."""
    step = children.refresh(view)
    if not step.changes_counts:
        step += replicas.grow(view, returning)
    return step + disruption.shrink(view, changing=step.changes_counts)


def _requeue_after(view: View, step: Step) -> float | None:
    soonest = [*step.wake, *_timers(view)]
    if step.orders or step.questions or view.snapshot.conflicts:
        soonest.append(view.snapshot.poll_seconds)
    return max(min(soonest), SOONEST_SECONDS) if soonest else None


def _timers(view: View) -> Iterator[float]:
    """Seconds until time alone changes what is decided."""
    now, least = view.snapshot.now, view.snapshot.spec.rollout.min_ready_seconds
    for pod in view.alive:
        if pod.ready_since is not None and now - pod.ready_since < least:
            yield pod.ready_since + least - now + 0.05
    yield from (rest + 0.05 for rest in progress.wakes(view))
    if view.room_seen_at > now and any(p.unschedulable for p in view.target_pods):
        yield view.room_seen_at - now + 0.05
    for pod in view.occupying:
        if pod.terminates_by is not None:
            yield pod.terminates_by + TERMINATION_MARGIN - now + 0.05
    for pod in view.lost:
        if pod.unready_since is not None and now - pod.unready_since < UNREADY_SECONDS:
            yield pod.unready_since + UNREADY_SECONDS - now + 0.05

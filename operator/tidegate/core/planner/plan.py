"""snapshot -> plan: everything that is decided about a service, in one pure function.

The formula of a step, with R replicas, S surge, U unavailable (all resolved):

    raise the wanted revision by   min(R - staying, R + S - total)
    withdraw at most               available - (R - U)  serving pods

where `total` counts every place taken or about to be taken and `available` the pods that serve now. One free place
becomes one new pod, one pod beyond the floor becomes one drain: slots pipeline, nothing goes in waves.
"""

from dataclasses import dataclass
from typing import Final

from tidegate.core.drain_time.drain_times import DrainTimes
from tidegate.core.state.snapshot import Snapshot
from tidegate.core.state.view import View

from . import children, disruption, progress, replicas, running, samples
from .actions import Action, DrainOrder, Question
from .candidates import UNREADY_SECONDS
from .draft import POLL_SECONDS, Draft
from .observe import observe

SOONEST_SECONDS: Final = 0.02
"""Whatever a rule asks for, a pass that did nothing is not followed by another one at once."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now, whom to talk to, and when to look again at the latest (seconds, None: at the next event)."""

    view: View
    actions: tuple[Action, ...] = ()
    orders: tuple[DrainOrder, ...] = ()
    questions: tuple[Question, ...] = ()
    unreachable: bool = False
    requeue_after: float | None = None
    learnt: DrainTimes | None = None
    """What is known with the drains that are over. To be kept before anything else is done: a pod that is paid for
    goes, and takes its samples with it."""


def plan(s: Snapshot) -> Plan:
    """Decide. The same snapshot gives the same plan."""
    view = observe(s)
    draft = Draft(view)
    # Drains and what they pay for first: nothing that goes wrong with a child may hold them up.
    running.running_drains(draft)
    running.strays(draft)
    replicas.pay(draft)
    replicas.reclaim(draft)
    children.ensure_children(draft)
    if not view.blocked and not draft.counting:
        # Counts are only trusted when nothing is about to change them in this same pass.
        if view.paused:
            replicas.hold_count(draft)
        else:
            children.refresh(draft)
            replicas.grow(draft)
            disruption.shrink(draft)
        children.prune(draft)
    _wake(draft)
    return Plan(
        view,
        tuple(draft.actions),
        tuple(draft.orders),
        tuple(draft.questions),
        draft.unreachable,
        max(min(draft.wake), SOONEST_SECONDS) if draft.wake else None,
        samples.counted(view),
    )


def _wake(draft: Draft) -> None:
    view = draft.view
    least = view.snapshot.spec.rollout.min_ready_seconds
    for pod in view.alive:
        if pod.ready_since is not None and view.snapshot.now - pod.ready_since < least:
            draft.wake.append(pod.ready_since + least - view.snapshot.now + 0.05)
    draft.wake.extend(rest + 0.05 for rest in progress.wakes(view))
    if view.room_seen_at > view.snapshot.now and any(p.unschedulable for p in view.target_pods):
        draft.wake.append(view.room_seen_at - view.snapshot.now + 0.05)
    for pod in view.lost:
        if pod.unready_since is not None and view.snapshot.now - pod.unready_since < UNREADY_SECONDS:
            draft.wake.append(pod.unready_since + UNREADY_SECONDS - view.snapshot.now + 0.05)
    if draft.orders or draft.questions or draft.unreachable or view.snapshot.conflicts:
        draft.wake.append(POLL_SECONDS)

"""Drains that run, ours and those that strangers began."""

from tidegate.api import names
from tidegate.api.conditions import DrainReason
from tidegate.core.state.snapshot import Pod, Reading
from tidegate.core.state.view import View, by_age

from . import candidates, drains
from .actions import Withdraw
from .draft import POLL_SECONDS, Draft


def running_drains(draft: Draft) -> None:
    view = draft.view
    back = wanted_back(view)
    draft.returning = len(back)
    for pod in by_age(view.draining):
        actions, order = drains.advance(view, pod, undo=pod.uid in back)
        draft.actions.extend(actions)
        if order is not None:
            draft.orders.append(order)
        if pod.drain is not None and pod.drain.deadline is not None:
            rest = pod.drain.deadline + drains.EXPIRY_SLACK - view.snapshot.now
            # One that is overdue waits for its pod to be asked, which wakes us: the past is no time to look again.
            draft.wake.append(rest if rest > 0 else POLL_SECONDS)


def strays(draft: Draft) -> None:
    """Pods labelled serving that somebody else drains: NotReady, so asked once; undrained, or replaced.

    One whose container is about to be started again by the kubelet is left to it.
    """
    view = draft.view
    for pod in by_age(view.alive):
        if pod.state != names.SERVING or pod.unready_since is None or view.holds_no_work(pod):
            continue
        heard = [
            x.at for x in (view.snapshot.readings.get(pod.uid), view.snapshot.troubles.get(pod.uid)) if x is not None
        ]
        if not heard or max(heard) < pod.unready_since:
            draft.questions.extend(candidates.questions(view, [pod]))
            continue
        reading = astray(view, pod)
        if reading is None:
            continue
        if reading.state == "draining" and reading.drain_id:
            order = drains.order(view, pod, drains.foreign(pod, reading), undo=True)
            draft.orders.extend([order] if order else [])
        elif reading.state == "draining" and (over := _hook_over(view, pod)) > reading.at:
            # Not before it is over, and not by what it said before.
            draft.wake.append(max(over - view.snapshot.now, 0.0))
            if view.snapshot.now >= over:
                draft.questions.extend(candidates.questions(view, [pod]))
        else:
            record = drains.begin(view, pod, DrainReason.MANUAL)
            draft.actions.append(Withdraw(pod.name, pod.uid, record, pod.version))


def astray(view: View, pod: Pod) -> Reading | None:
    """What a pod said that is labelled serving and drains all the same, by somebody else's will."""
    if pod.state != names.SERVING or pod.unready_since is None or view.holds_no_work(pod):
        return None
    reading = view.snapshot.readings.get(pod.uid)
    drains_ = reading is not None and reading.state in ("draining", "sealed") and reading.at >= pod.unready_since
    return reading if drains_ else None


def _hook_over(view: View, pod: Pod) -> float:
    """Until when a drain under no id may be a preStop hook's.

    A failed liveness probe calls the hook, kills the container alone and starts it again: such a pod serves again by
    itself. The kubelet gives a hook the grace period at most, so one that drains beyond it was drained by somebody.
    """
    grace = next((d.grace_seconds for d in view.snapshot.deployments if d.revision == pod.revision), 0)
    return (pod.unready_since or 0.0) + grace + drains.EXPIRY_SLACK


def undoable(view: View, pod: Pod) -> bool:
    """Whether its drain can be undone: held back for nothing, the service would be one pod short for ever.

    One that cannot be asked goes the way of a drain, and so does one that somebody else drains too, under another id.
    """
    said = view.snapshot.readings.get(pod.uid)
    others = said is not None and said.drain_id and (pod.drain is None or said.drain_id != pod.drain.id)
    return pod.uid not in view.snapshot.troubles and pod.foreign is None and not others


def wanted_back(view: View) -> set[str]:
    """Draining pods of the wanted revision that are missed: the latest first, since it has lost the least.

    What a person drained by hand stays drained, and so does what cannot be undone.
    """
    missing = view.limits.replicas - view.target_staying
    if missing <= 0 or view.blocked or view.target is None:
        return set()
    own = (DrainReason.ROLLOUT, DrainReason.SCALE_IN)
    draining = [(p.drain, p) for p in view.target_pods if p.state == names.DRAINING and p.drain is not None]
    mine = [(drain.since, p) for drain, p in draining if drain.reason in own and undoable(view, p)]
    mine.sort(key=lambda item: (-item[0], item[1].name))
    return {p.uid for _, p in mine[:missing]}

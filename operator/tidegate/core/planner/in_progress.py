"""Drains that run: ours, carried on to their end, and those that a third party began."""

from tidegate.api.conditions import BlockedReason, DrainReason, PodState
from tidegate.core.state.pods import by_age
from tidegate.core.state.snapshot import Pod, Reading
from tidegate.core.state.view import View

from . import candidates, drains
from .actions import Withdraw
from .blocked import Blocked, Held, Readings, Returning
from .step import Step


def drains_in_progress(view: View, returning: frozenset[str]) -> Step:
    """Carry on every drain that runs; `returning` are uids of those pods that are asked to serve again."""
    step = Step(blocked=_waited_for(view, returning))
    for pod in by_age(view.draining):
        actions, order = drains.advance(view, pod, undo=pod.uid in returning)
        step += Step(tuple(actions), () if order is None else (order,))
        if pod.drain is not None and pod.drain.deadline is not None:
            rest = pod.drain.deadline + drains.EXPIRY_SLACK - view.snapshot.now
            # One that is overdue waits for its pod to be asked, which wakes us: the past is no time to look again.
            step += Step(wake=(rest if rest > 0 else view.snapshot.poll_seconds,))
    return step


def _waited_for(view: View, returning: frozenset[str]) -> tuple[Blocked, ...]:
    found = []
    # What was deleted while it served is waited for when nothing else is left to do.
    deleted = (p for p in view.still_draining if p.state == PodState.DRAINING or not view.rolling)
    running = by_age([*view.draining, *deleted])
    if running:
        found.append(Blocked(BlockedReason.DRAINING, tuple(running), Returning(returning)))
    overdue = tuple(by_age(p for p in view.draining if view.overdue(p)))
    if view.held:
        found.append(Blocked(BlockedReason.BUDGET_HELD, overdue, Held(undoable(view, overdue[0]))))
    elif overdue:
        found.append(Blocked(BlockedReason.BUDGET_SPENT, overdue))
    return tuple(found)


def drained_by_others(view: View) -> Step:
    """Pods labelled serving that a third party drains: NotReady, so asked once; undrained, or replaced.

    One whose container is about to be started again by the kubelet is left to it.
    """
    step = Step()
    found: list[tuple[Pod, Reading]] = []
    for pod in by_age(view.alive):
        if pod.state != PodState.SERVING or pod.unready_since is None or view.holds_no_work(pod):
            continue
        known = (view.snapshot.readings.get(pod.uid), view.snapshot.troubles.get(pod.uid))
        heard = [x.at for x in known if x is not None]
        if not heard or max(heard) < pod.unready_since:
            step += Step(questions=candidates.questions(view, [pod]))
        elif (reading := third_party_drain(view, pod)) is not None:
            found.append((pod, reading))
            step += _take_back(view, pod, reading)
    if found:
        pods, readings = zip(*found, strict=True)
        step += Step(blocked=(Blocked(BlockedReason.DRAINED_BY_OTHERS, pods, Readings(readings)),))
    return step


def _take_back(view: View, pod: Pod, reading: Reading) -> Step:
    """Undrain the pod, wait while its preStop hook may be the cause, or replace it."""
    if reading.state == "draining" and reading.drain_id:
        order = drains.order(view, pod, drains.third_party_record(pod, reading), undo=True)
        return Step(orders=(order,) if order else ())
    if reading.state == "draining" and (over := _hook_over(view, pod)) > reading.at:
        # Not before it is over, and not by what it said before.
        asked = candidates.questions(view, [pod]) if view.snapshot.now >= over else ()
        return Step(questions=asked, wake=(max(over - view.snapshot.now, 0.0),))
    record = drains.begin(view, pod, DrainReason.MANUAL)
    return Step((Withdraw(pod.name, pod.uid, record, pod.version),))


def third_party_drain(view: View, pod: Pod) -> Reading | None:
    """What a pod said that is labelled serving and drains all the same, by somebody else's will."""
    if pod.state != PodState.SERVING or pod.unready_since is None or view.holds_no_work(pod):
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


def wanted_back(view: View) -> frozenset[str]:
    """Draining pods of the wanted revision that are missed: the latest first, since it has lost the least.

    What a person drained by hand stays drained, and so does what cannot be undone.
    """
    missing = view.limits.replicas - view.target_staying
    if missing <= 0 or view.cannot_start or view.target is None:
        return frozenset()
    own = (DrainReason.ROLLOUT, DrainReason.SCALE_IN)
    draining = [(p.drain, p) for p in view.target_pods if p.state == PodState.DRAINING and p.drain is not None]
    mine = [(drain.since, p) for drain, p in draining if drain.reason in own and undoable(view, p)]
    mine.sort(key=lambda item: (-item[0], item[1].name))
    return frozenset(p.uid for _, p in mine[:missing])

"""Which pods are withdrawn now: those beyond the floor, available - (R - U), and those that serve nobody."""

from tidegate.api.conditions import DrainReason

from . import drains, victims
from .actions import MarkDrained, Withdraw
from .draft import POLL_SECONDS, Draft
from .view import View, by_age


def shrink(draft: Draft) -> None:
    view = draft.view
    floor = view.amounts.least_serving
    spare = len(view.available) - floor
    surplus = view.target_staying - view.amounts.replicas
    for group in victims.outgoing(view):
        rollout = group.reason is DrainReason.ROLLOUT
        limit = len(group.asked) + len(group.empty) if rollout else surplus
        limit -= release_empty(draft, group, limit)
        if draft.actions or limit <= 0:
            # What holds no work goes first and alone, so that the counts below stay true.
            return
        spare -= withdraw(draft, group, limit, spare)


def release_empty(draft: Draft, group: victims.Candidates, limit: int) -> int:
    """Pods that hold no work go at once, in one PATCH; none goes while the new revision fails to come up."""
    view = draft.view
    if group.reason is DrainReason.ROLLOUT and view.failing:
        return 0
    chosen = by_age(group.empty)[-limit:] if limit < len(group.empty) else by_age(group.empty)
    for pod in chosen:
        record = drains.begin(view, pod, group.reason)
        ended = drains.no_work(view, record)
        draft.actions.append(MarkDrained(pod.name, pod.uid, pod.state, None, ended))
    return len(chosen)


def withdraw(draft: Draft, group: victims.Candidates, limit: int, spare: int) -> int:
    """Begin drains; returns how many serving pods that takes."""
    view = draft.view
    unready = min(_unready_allowed(view, group), limit)
    serving = min(max(spare, 0), limit - min(unready, len(group.unready)), len(group.serving))
    if view.s.locks_missing:
        busy = len(view.draining)
        unready, serving = (min(unready, 1 - busy), 0) if group.unready else (0, min(serving, 1 - busy))
    if unready <= 0 and serving <= 0:
        return 0
    asked = group.unready * (unready > 0) + group.serving * (serving > 0)
    open_questions = victims.questions(view, asked)
    if open_questions:
        draft.questions.extend(open_questions)
        return 0
    if not victims.reachable(view):
        draft.unreachable = True
        draft.wake.append(POLL_SECONDS)
        return 0
    chosen = victims.choose(view, group.unready, max(unready, 0)) + victims.choose(view, group.serving, max(serving, 0))
    for pod in chosen:
        draft.actions.append(Withdraw(pod.name, pod.uid, drains.begin(view, pod, group.reason)))
    return sum(p.ready for p in chosen)


def _unready_allowed(view: View, group: victims.Candidates) -> int:
    """NotReady pods that may still work may also recover: all of them go only once the new revision stands."""
    if not group.unready:
        return 0
    if group.reason is not DrainReason.ROLLOUT:
        return len(group.unready)
    if any(p in view.available for p in view.target_pods) and not view.failing:
        return len(group.unready)
    lost = sum(not p.ready for p in view.draining)
    return max(min(view.amounts.unavailable - lost, len(group.unready)), 0)

"""Which pods are withdrawn now: those beyond the floor, available - (R - U), and those that serve nobody."""

from tidegate.api.conditions import DrainReason

from . import drains, telling, victims
from .actions import MarkDrained, Withdraw
from .draft import POLL_SECONDS, Draft
from .view import View, by_age


def shrink(draft: Draft) -> None:
    view = draft.view
    spare = spare_serving(view)
    surplus = view.target_staying - view.amounts.replicas
    for group in victims.outgoing(view):
        rollout = group.reason is DrainReason.ROLLOUT
        limit = len(group.asked) + len(group.empty) if rollout else surplus
        limit -= release_empty(draft, group, limit)
        # Whoever still starts waits for nobody: it is asked now, not when its turn to drain comes.
        draft.questions.extend(victims.questions(view, group.starting))
        if draft.counting or limit <= 0:
            # What holds no work goes first and alone, so that the counts below stay true.
            return
        spare -= withdraw(draft, group, limit, spare)


def spare_serving(view: View) -> int:
    """Serving pods beyond the floor. None is to spare after a loss that is not mended, whatever maxUnavailable says."""
    if view.lost and len(view.available) < view.amounts.replicas:
        return 0
    if view.drain_first and not view.starved:
        return 0
    return len(view.available) - view.amounts.least_serving


def release_empty(draft: Draft, group: victims.Candidates, limit: int) -> int:
    """Pods that hold no work go at once, in one PATCH; none goes while the new revision fails to come up."""
    view = draft.view
    if group.reason is DrainReason.ROLLOUT and view.failing:
        return 0
    youngest = by_age(group.empty)[::-1]
    chosen = by_age(youngest[: max(limit, 0)])
    for pod in chosen:
        record = drains.begin(view, pod, group.reason)
        ended = drains.no_work(view, record)
        why = telling.why(view, pod, ended)
        draft.actions.append(MarkDrained(pod.name, pod.uid, pod.state, None, ended, why, pod.version))
    return len(chosen)


def withdraw(draft: Draft, group: victims.Candidates, limit: int, spare: int) -> int:
    """Begin drains; returns how many serving pods that takes."""
    view = draft.view
    unready = min(_unready_allowed(view, group), limit)
    serving = min(max(spare, 0), limit - min(unready, len(group.unready)), len(group.serving))
    if group.reason is DrainReason.ROLLOUT and (view.failing or view.held):
        serving = 0
    if view.s.locks_missing:
        busy = len(view.draining)
        unready, serving = (min(unready, 1 - busy), 0) if group.unready else (0, min(serving, 1 - busy))
    if unready <= 0 and serving <= 0:
        return 0
    asked = group.unready * (unready > 0) + group.serving * (serving > 0)
    open_questions = victims.questions(view, asked)
    draft.questions.extend(q for q in open_questions if q not in draft.questions)
    if not victims.reachable(view):
        # An answer of any running pod will do: the candidates left may be just those that are broken.
        candidates = {p.uid for p in asked}
        others = [p for p in view.serving if p.uid not in candidates]
        draft.questions.extend(victims.questions(view, others))
        # While they are asked again the last answers stand, so that the condition does not flap.
        draft.unreachable = all(p.uid in view.s.troubles or not p.askable for p in (*asked, *others))
        draft.wake.append(POLL_SECONDS)
        return 0
    if open_questions:
        return 0
    chosen = list(group.unready[: max(unready, 0)]) + victims.choose(view, group.serving, max(serving, 0))
    for pod in chosen:
        draft.actions.append(Withdraw(pod.name, pod.uid, drains.begin(view, pod, group.reason), pod.version))
    return sum(p.ready for p in chosen)


def _unready_allowed(view: View, group: victims.Candidates) -> int:
    """NotReady pods that may still work may also recover, so they go slot by slot once the new revision stands.

    Before that only as many as maxUnavailable allows, and those beyond what is wanted at all: else a pod of an
    abandoned revision that never became Ready would hold the place of the next one for ever.
    """
    slots = max(view.amounts.slots - len(view.draining), 0)
    if group.reason is not DrainReason.ROLLOUT:
        return len(group.unready)
    if not view.failing and any(p.uid in view.available_uids for p in view.target_pods):
        return min(slots, len(group.unready))
    staying = sum(view.staying(d) for d in view.old_deployments)
    beyond = staying - view.amounts.replicas
    return min(max(view.amounts.unavailable - len(view.draining), beyond, 0), len(group.unready))

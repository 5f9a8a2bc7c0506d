"""What is said of a single pod, as parts of sentences: what it holds, why it does not start, how its drain ended."""

from tidegate.api.conditions import Outcome
from tidegate.core.planner.actions import EndCause
from tidegate.core.state.pods import Emptiness, Failure, NoWork
from tidegate.core.state.snapshot import Pod, Reading
from tidegate.core.state.view import View

from .phrases import count, seconds


def work(view: View, pod: Pod, since: float) -> str:
    """What a pod holds that drains since then, in Unix seconds, as far as it is known."""
    reading, trouble = view.snapshot.readings.get(pod.uid), view.snapshot.troubles.get(pod.uid)
    if reading is not None and reading.at < since:
        # Asked before it was withdrawn: by now it may hold anything.
        reading = None
    if trouble is not None:
        if reading is None or reading.in_flight is None:
            return f"requests in flight unknown ({trouble.detail})"
        ago = seconds(view.snapshot.now - reading.at)
        return f"requests in flight unknown ({trouble.detail}; {ago} ago: {reading.in_flight})"
    if not pod.askable:
        return "requests in flight unknown (its drain port is not known)"
    if reading is None:
        return "requests in flight unknown (it has not answered yet)"
    if reading.in_flight is None:
        return "requests in flight unknown (its drain endpoint does not report them)"
    oldest = f" (oldest {seconds(reading.oldest_seconds)})" if reading.oldest_seconds else ""
    return f"{count(reading.in_flight, 'request')} in flight{oldest}"


def cause(outcome: str, known: EndCause) -> str:
    """What ended a drain, where it was not the end of the pod's requests."""
    empty = "" if known.no_work is None else no_work(known.no_work)
    match outcome:
        case Outcome.NO_WORK:
            return f"because {empty}"
        case Outcome.VANISHED:
            return f"because {empty or 'its process restarted during the drain'}"
        case Outcome.EXPIRED:
            asked = f"; the pod did not answer ({known.unanswered})" if known.unanswered else ""
            return f"because its drain budget was spent{asked}"
        case _:
            return ""


def no_work(found: NoWork) -> str:
    """What proves that a pod holds no work."""
    match found.proof:
        case Emptiness.NOTHING_RUNS:
            exited = "" if found.exit_code is None else f"exited with code {found.exit_code}"
            why = found.waiting_reason or exited
            return f"its container is not running{f' ({why})' if why else ''}"
        case Emptiness.NOT_STARTED:
            return "its container has not started yet"
        case Emptiness.GATEWAY_DOWN:
            return "its gateway is not running, which ended all requests through it"
        case Emptiness.SAYS_STARTING:
            return "it reports that it is still starting"


def failure(found: Failure) -> str:
    """The container's own reason for not starting."""
    where = f" in container {found.container}" if found.container else ""
    detail = found.message
    if found.exit_code is not None:
        times = count(found.restarts, "time")
        detail = f"container exited with code {found.exit_code} ({found.exit_reason}), restarted {times}"
    return f"{found.reason}{where}{f': {detail}' if detail else ''}"


def answers(pod: Pod | None) -> str:
    """What a pod does that can be asked what it holds; None stands for any pod."""
    if pod is None or pod.foreign is None:
        return "answers GET /drain"
    return "accepts a connection" if pod.foreign.count is None else f"answers GET {pod.foreign.count.path}"


def drained_by_others(reading: Reading) -> str:
    """Of a pod that somebody else drains: what becomes of it."""
    if reading.state == "sealed":
        return "a third party has drained it, which cannot be undone, so it is being replaced"
    return "a third party is draining it, so Tidegate asks it to serve again"

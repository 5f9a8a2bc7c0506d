"""What is told of single pods to the person who is called at night: what is, why, what next."""

from tidegate.api.conditions import Outcome
from tidegate.core.planner.actions import EndCause
from tidegate.core.state.pods import Emptiness, Failure, NoWork
from tidegate.core.state.snapshot import DrainRecord, Pod, Reading
from tidegate.core.state.view import View


def work(view: View, pod: Pod, record: DrainRecord) -> str:
    """What a draining pod holds, as far as it is known."""
    reading, trouble = view.snapshot.readings.get(pod.uid), view.snapshot.troubles.get(pod.uid)
    if reading is not None and reading.at < record.since:
        # Asked before it was withdrawn: by now it may hold anything.
        reading = None
    if trouble is not None:
        if reading is None or reading.in_flight is None:
            return f"its count is unknown ({trouble.detail})"
        ago = int(view.snapshot.now - reading.at)
        return f"its count is unknown ({trouble.detail}; {ago} s ago it was {reading.in_flight})"
    if not pod.askable:
        return "its count is unknown (where to ask it is not known)"
    if reading is None:
        return "it has not answered yet"
    if reading.in_flight is None:
        return "its endpoint does not count, so how many requests are in flight is unknown"
    oldest = f", the oldest {int(reading.oldest_seconds)} s old" if reading.oldest_seconds else ""
    return f"{reading.in_flight} requests in flight{oldest}"


def cause(outcome: str, known: EndCause) -> str:
    """What ended a drain, where it was not the end of the pod's requests."""
    empty = "" if known.no_work is None else no_work(known.no_work)
    match outcome:
        case Outcome.NO_WORK:
            return f"since {empty}"
        case Outcome.VANISHED:
            return f"since {empty or 'its process is another one than the one that was told to drain'}"
        case Outcome.EXPIRED:
            asked = f"; it could not be asked ({known.unanswered})" if known.unanswered else ""
            return f"since its budget is spent{asked}"
        case _:
            return ""


def no_work(found: NoWork) -> str:
    """What proves that a pod holds no work."""
    match found.proof:
        case Emptiness.NOTHING_RUNS:
            exited = "" if found.exit_code is None else f"exited with code {found.exit_code}"
            why = found.waiting_reason or exited
            return f"nothing runs in it{f' ({why})' if why else ''}"
        case Emptiness.NOT_STARTED:
            return "its container has not started yet"
        case Emptiness.GATEWAY_DOWN:
            return "its gateway does not run, and whatever came through it ended with it"
        case Emptiness.SAYS_STARTING:
            return "it says that it is still starting"


def failure(found: Failure) -> str:
    """The container's own reason for not coming up."""
    where = f"container {found.container}: " if found.container else ""
    crash = f"container exited with code {found.exit_code} ({found.exit_reason}), restarted {found.restarts} times"
    return f"{where}{found.reason}: {found.message if found.exit_code is None else crash}"


def asked_by(pod: Pod) -> str:
    """The call by which a pod is asked what it holds."""
    if pod.foreign is None:
        return "GET /drain"
    return "a connection" if pod.foreign.count is None else f"GET {pod.foreign.count.path}"


def drained_by_others(reading: Reading) -> str:
    """Of a pod that drains by somebody else's will: what becomes of it."""
    if reading.state == "sealed":
        return "it was drained to its end by somebody else than Tidegate and cannot take that back: it is replaced"
    return "it drains under an id that is not Tidegate's: it is asked to serve again"

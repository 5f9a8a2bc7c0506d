"""What is told of single pods to the person who is called at night: what is, why, what next."""

from tidegate.api import names
from tidegate.api.conditions import Outcome
from tidegate.core.state.snapshot import DrainRecord, OutcomeRecord, Pod, Reading
from tidegate.core.state.view import View, by_age


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


def why(view: View, pod: Pod, ended: OutcomeRecord) -> str:
    """What ended a drain, where it was not the end of the pod's requests."""
    match ended.outcome:
        case Outcome.NO_WORK:
            return f"since {view.why_empty(pod)}"
        case Outcome.VANISHED:
            return f"since {view.why_empty(pod) or 'its process is another one than the one that was told to drain'}"
        case Outcome.EXPIRED:
            trouble = view.snapshot.troubles.get(pod.uid)
            asked = f"; it could not be asked ({trouble.detail})" if trouble is not None else ""
            return f"since its budget is spent{asked}"
        case _:
            return ""


def stray(reading: Reading) -> str:
    """Of a pod that drains by somebody else's will: what becomes of it."""
    if reading.state == "sealed":
        return "it was drained to its end by somebody else than Tidegate and cannot take that back: it is replaced"
    return "it drains under an id that is not Tidegate's: it is asked to serve again"


def altered(pods: list[Pod]) -> str:
    """Of pods without the hook that was rendered for them: the in-pod lock is not theirs."""
    return (
        f"Pod {by_age(pods)[0].name} lacks the preStop hook that Tidegate rendered ({len(pods)} in all): something "
        "changed it on its way in, as a mutating webhook does. Tidegate drains it all the same, but when somebody "
        "else deletes it, its requests are cut. Exempt these pods from the webhook, then set spec.rollout.restartedAt"
    )


def no_port(pods: list[Pod]) -> str:
    """Of pods that nobody knows where to ask, when there is no other."""
    return (
        f"No pod is drained: at which port {by_age(pods)[0].name} is to be asked is not known, since it lacks "
        f"Tidegate's preStop hook and the annotation {names.SOURCE} of its Deployment cannot be read. To roll all the "
        f"same, annotate the LLMService with {names.DRAIN_UNREACHABLE}: <reason>"
    )

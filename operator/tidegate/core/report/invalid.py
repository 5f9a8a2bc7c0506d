"""The status of an LLMService whose spec cannot be read: nothing is touched, and it says what to mend."""

from typing import TypeVar

from tidegate.api.conditions import ConditionStatus, ConditionType, Phase, Reason
from tidegate.api.status import Condition, LLMServiceStatus, PodStatus, RolloutStatus
from tidegate.core.state import times

from .phrases import sentence

_Row = TypeVar("_Row", PodStatus, RolloutStatus)


def status(held: LLMServiceStatus, generation: int, message: str, now: float) -> LLMServiceStatus:
    """The status held, with InvalidSpec in front; pods stay as they are, and nothing is promised of them any more."""
    text = f"{sentence(f'Invalid spec: {message}')} Nothing changes until it is corrected."
    ready = held.condition(ConditionType.READY)
    rows = []
    for kind, value in (
        (ConditionType.READY, ConditionStatus.FALSE if ready is None else ready.status),
        (ConditionType.RECONCILING, ConditionStatus.FALSE),
        (ConditionType.STALLED, ConditionStatus.TRUE),
    ):
        before = held.condition(kind)
        same = before is not None and before.status is value
        rows.append(
            Condition(
                type=kind,
                status=value,
                observed_generation=generation,
                last_transition_time=before.last_transition_time if before is not None and same else times.short(now),
                reason=Reason.INVALID_SPEC,
                message=text,
            )
        )
    change: dict[str, object] = {
        "observed_generation": generation,
        "phase": Phase.STALLED,
        "message": text,
        "conditions": tuple(rows),
    }
    if held.pods:
        change["pods"] = tuple(_without_promise(row) for row in held.pods)
    if held.rollout is not None:
        change["rollout"] = _without_promise(held.rollout)
    return held.model_copy(update=change)


def _without_promise(row: _Row) -> _Row:
    return row.model_copy(update={"eta_seconds": None, "eta_upper_seconds": None})

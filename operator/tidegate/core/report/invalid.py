"""The status of an LLMService whose spec cannot be read: nothing is touched, and it says what to mend."""

from collections.abc import Mapping
from typing import Any

from tidegate.api.conditions import ConditionStatus, ConditionType, Phase, Reason
from tidegate.core.state import times


def status(service: Mapping[str, Any], message: str, now: float) -> dict[str, Any]:
    """The status held, with InvalidSpec in front; pods stay as they are, and nothing is promised of them any more."""
    held = dict(service.get("status") or {})
    if "rollout" in held:
        held["rollout"] = _without_promise(held["rollout"])
    if "pods" in held:
        held["pods"] = [_without_promise(row) for row in held["pods"]]
    generation = int(service["metadata"].get("generation", 1))
    before = {c["type"]: c for c in held.get("conditions") or []}
    text = f"{message}. Nothing is changed until then"
    rows = []
    for kind, value in (
        (ConditionType.READY, str(before.get(ConditionType.READY, {}).get("status", ConditionStatus.FALSE))),
        (ConditionType.RECONCILING, str(ConditionStatus.FALSE)),
        (ConditionType.STALLED, str(ConditionStatus.TRUE)),
    ):
        old = before.get(kind, {})
        same = old.get("status") == value and old.get("lastTransitionTime")
        rows.append(
            {
                "type": str(kind),
                "status": value,
                "observedGeneration": generation,
                "lastTransitionTime": old["lastTransitionTime"] if same else times.short(now),
                "reason": str(Reason.INVALID_SPEC),
                "message": text,
            }
        )
    return held | {
        "observedGeneration": generation,
        "phase": str(Phase.STALLED),
        "message": text,
        "conditions": rows,
    }


def _without_promise(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in ("etaSeconds", "etaUpperSeconds")}

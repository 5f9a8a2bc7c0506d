"""What is measured, and where the time from a seal to the lowering goes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from cluster.harness.audit import Call
from tidegate.api import names

FIRST, BETWEEN = "until the first write", "between writes"


@dataclass
class Figures:
    """Of all rounds with one length of streams."""

    lowering: list[float] = field(default_factory=list)
    """Seconds from the seal of a pod to the accepted write that lowers the replicas."""
    steps: list[dict[str, float]] = field(default_factory=list)
    """By drain, where the time from the seal to the lowering went, in seconds."""
    ratios: list[float] = field(default_factory=list)
    """Lower bound of the rollout's time, through the time it took."""
    writes: list[float] = field(default_factory=list)
    """API writes per replaced pod."""
    drains: list[float] = field(default_factory=list)
    """Mean seconds of a drain, by rollout."""
    starts: list[float] = field(default_factory=list)
    """Seconds that a new pod takes to be ready, by rollout."""
    cut: int = 0
    """Streams cut or refused."""


@dataclass
class Usage:
    """Of the operator's process: resident memory, and the share of one core."""

    rss_mib: float
    cpu_share: float


def lowerings(
    writes: Sequence[Call], sealed: Mapping[str, float], pods: Mapping[str, str]
) -> Iterator[tuple[float, float]]:
    """(seal, lowering) of each pod that a write of a Deployment releases. `sealed`: by pod; `pods`: names by uid."""
    paid: set[str] = set()
    for call in writes:
        if call.resource != "deployments":
            continue
        annotations = (call.entry["requestObject"].get("metadata") or {}).get("annotations") or {}
        released = set(filter(None, annotations.get(names.RELEASED, "").split(",")))
        for uid in released - paid:
            pod = pods.get(uid, "")
            if pod in sealed:
                yield sealed[pod], answered(call)
        paid |= released


def steps(writes: list[Call], sealed: float, lowered: float) -> dict[str, float]:
    """Seconds until the first write came, in the API server by resource, and outside of it between two writes."""
    between = [c for c in writes if sealed <= moment(c.at) <= lowered]
    found = {FIRST: moment(between[0].at) - sealed, BETWEEN: lowered - moment(between[0].at)}
    for call in between:
        within = answered(call) - moment(call.at)
        found[call.resource] = found.get(call.resource, 0.0) + within
        found[BETWEEN] -= within
    return found


def answered(call: Call) -> float:
    """When the API server had answered the call, in seconds since the epoch."""
    return moment(str(call.entry["stageTimestamp"]))


def moment(text: str) -> float:
    """Seconds since the epoch, of a time of the API."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()

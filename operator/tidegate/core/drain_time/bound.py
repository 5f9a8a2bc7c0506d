"""How fast a rollout could have been at best.

    max(S + e + max D, (N (S + e) + sum D) / (s + u))

with N pods to replace, start time S, minReadySeconds included, propagation e, drains D_i and s + u slots: each
replacement occupies one slot for S + e + D_i, and no schedule does better.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Drained:
    """N drains, counted in seconds from withdrawal + propagation."""

    count: int
    total: float
    longest: float


def rollout_bound(start: float, propagation: float, drains: Drained, slots: int) -> float:
    """Seconds that no schedule of this rollout could have beaten; `start` is the mean time until a pod counts."""
    if not drains.count:
        return start
    packed = (drains.count * (start + propagation) + drains.total) / max(slots, 1)
    return max(start + propagation + drains.longest, packed)

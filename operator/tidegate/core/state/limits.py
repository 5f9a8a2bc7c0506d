"""Counts and percentages, resolved as Kubernetes does it for Deployments."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """How many pods there should be, and by how many a rollout may depart from that."""

    replicas: int
    surge: int
    unavailable: int

    @property
    def least_serving(self) -> int:
        """replicas - maxUnavailable."""
        return max(self.replicas - self.unavailable, 0)

    @property
    def most_pods(self) -> int:
        """replicas + maxSurge."""
        return self.replicas + self.surge

    @property
    def slots(self) -> int:
        """How many replacements can go on at a time."""
        return self.surge + self.unavailable


def resolve(replicas: int, max_surge: int | str, max_unavailable: int | str) -> Limits:
    """A percentage of `replicas` rounds up for surge and down for unavailable; both 0 resolves to one unavailable.

    Source: `ResolveFenceposts` of the Deployment controller in Kubernetes 1.34.
    """
    surge = _scaled(max_surge, replicas, up=True)
    unavailable = min(_scaled(max_unavailable, replicas, up=False), replicas)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return Limits(replicas, surge, unavailable)


def _scaled(value: int | str, total: int, *, up: bool) -> int:
    if isinstance(value, int):
        return value
    exact = total * int(value.rstrip("%")) / 100
    return math.ceil(exact) if up else math.floor(exact)

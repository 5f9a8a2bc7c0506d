"""What the status of a service tells of its own times, for whoever plans a change of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegate.api.conditions import TermSource
from tidegate.api.rules import Model


class _Term(Model):
    name: str
    seconds: float
    source: str


class _GracePeriod(Model):
    terms: tuple[_Term, ...] = ()


class _DrainTimes(Model):
    p50_seconds: float | None = None


class _Rollout(Model):
    start_seconds: float | None = None


class Measured(Model):
    """The part of a status that a plan needs, and no more: a newer operator's other words are no concern of it."""

    phase: str = ""
    grace_period: _GracePeriod = _GracePeriod()
    drain_times: _DrainTimes = _DrainTimes()
    rollout: _Rollout = _Rollout()

    @classmethod
    def of(cls, resource: Mapping[str, Any]) -> Measured:
        """From an LLMService. Raises InvalidSpec, for a status that no operator wrote."""
        return cls.parse_at("status", resource.get("status") or {})

    @property
    def teardown(self) -> float | None:
        """Seconds; None if it was not measured."""
        own = (t.seconds for t in self.grace_period.terms if (t.name, t.source) == ("teardown", TermSource.MEASURED))
        return next(own, None)

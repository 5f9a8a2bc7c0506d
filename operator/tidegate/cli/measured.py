"""The measured times in the status of a service, for `tidegate plan`."""

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
    """The part of a status that a plan needs. Nothing else is parsed, so that statuses of newer operators work."""

    phase: str = ""
    grace_period: _GracePeriod = _GracePeriod()
    drain_times: _DrainTimes = _DrainTimes()
    rollout: _Rollout = _Rollout()

    @classmethod
    def of(cls, resource: Mapping[str, Any]) -> Measured:
        """From an LLMService. Raises InvalidSpec for an invalid status."""
        return cls.parse_at("status", resource.get("status") or {})

    @property
    def teardown(self) -> float | None:
        """The measured teardown term in seconds; None if it was not measured."""
        own = (t.seconds for t in self.grace_period.terms if (t.name, t.source) == ("teardown", TermSource.MEASURED))
        return next(own, None)

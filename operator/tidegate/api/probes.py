"""The part of the spec that configures the probes of the serving container."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tidegate.api.ports import PortRef
from tidegate.api.rules import DAY, Model, Rule, bounded

ProbePath = Annotated[
    str,
    Field(max_length=1024),
    Rule(
        cel="self.startsWith('/')",
        message="must start with '/': write the path alone, without scheme, host and port",
        holds=lambda path: path.startswith("/"),
    ),
]


class Probe(Model):
    """Path and port of a probe. Absent fields follow from the drain mode; a probe in the template takes precedence."""

    path: ProbePath | None = None
    """HTTP path; absent: the one of the drain mode."""
    port: PortRef | None = None
    """Number or name of the container port; absent: the one of the drain mode."""


class StartupProbe(Probe):
    """Tells when the container has started."""

    budget_seconds: int = bounded(1800, 1, DAY)
    """Seconds that a container may take to start before it is restarted; absent: 1800."""


class ReadinessProbe(Probe):
    """Tells when the pod can get requests."""

    period_seconds: int = bounded(2, 1, 300)
    """Seconds between two probes; absent: 2."""


class LivenessProbe(Probe):
    """Tells when the container has to be restarted."""

    termination_grace_period_seconds: int = bounded(10, 1, 600)
    """Seconds that a container that failed this probe has to exit; absent: 10."""


class Probes(Model):
    """Probes of the serving container."""

    startup: StartupProbe | None = None
    """Startup probe of the serving container."""
    readiness: ReadinessProbe | None = None
    """Readiness probe of the serving container."""
    liveness: LivenessProbe | None = None
    """Liveness probe of the serving container."""

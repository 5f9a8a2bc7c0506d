"""The probes of a serving container, where its template has none of its own."""

import math
from typing import Any

from tidegate.api.probes import Probe
from tidegate.api.resource import LLMServiceSpec


def probes(spec: LLMServiceSpec, port: int | None, live: str | None, ready: str | None) -> dict[str, Any]:
    """By field of the container. `live` and `ready` are paths for where the user names none; None asks the port."""
    startup, readiness, liveness = spec.probes.startup, spec.probes.readiness, spec.probes.liveness
    startup_period = 1
    budget = (startup and startup.budget_seconds) or 1800
    return {
        # `started` means something only with a startup probe, and the policies read it.
        "startupProbe": {
            **_check(startup, live, port),
            "periodSeconds": startup_period,
            "failureThreshold": max(math.ceil(budget / startup_period), 1),
            # What never answered has nothing to drain.
            "terminationGracePeriodSeconds": 10,
        },
        "readinessProbe": {
            **_check(readiness, ready, port),
            "periodSeconds": (readiness and readiness.period_seconds) or 2,
            "timeoutSeconds": 2,
            "failureThreshold": 2,
        },
        # Patient, as the sidecar's: a restart cuts every stream of the pod. Under load an event loop may well be busy
        # for more than the second that Kubernetes waits by default, as with the tokens of a long prompt. A startup
        # probe keeps that second: it only asks again, and a longer one would stretch the budget of a start that hangs.
        "livenessProbe": {
            **_check(liveness, live, port),
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": 6,
            "terminationGracePeriodSeconds": (liveness and liveness.termination_grace_period_seconds) or 10,
        },
    }


def _check(probe: Probe | None, path: str | None, port: int | None) -> dict[str, Any]:
    path = (probe and probe.path) or path
    at = (probe and probe.port) or port
    return {"httpGet": {"path": path, "port": at}} if path is not None else {"tcpSocket": {"port": at}}

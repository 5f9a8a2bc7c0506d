"""The preStop hooks of a pod's containers, and which of them end before the requests do."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tidegate.api import names
from tidegate.core.state.snapshot import Unhooked

Raw = Mapping[str, Any]

EXIT_ON_ZERO: Final = "EXIT_ON_ZERO_ACTIVE_CONNECTIONS"
"""Environment of Istio's proxy: after SIGTERM it waits until no connection is open."""
PROXY_CONFIG: Final = "PROXY_CONFIG"
"""Environment of Istio's proxy: its configuration as JSON."""
DRAIN_DURATION: Final = "terminationDrainDuration"
"""In that configuration, how long it serves after SIGTERM: `300s`."""


def trimmed(container: Raw) -> dict[str, Any]:
    """What is kept of a container: its name, its hook, and where it has none, how long it goes on after SIGTERM."""
    hook = _hook(container)
    kept: dict[str, Any] = {"name": container["name"], "lifecycle": {"preStop": hook}}
    told = [e for e in container.get("env") or [] if e.get("name") in (EXIT_ON_ZERO, PROXY_CONFIG)]
    return kept | {"env": told} if told and not hook else kept


def port(containers: Iterable[Raw]) -> int | None:
    """The port of the preStop hook that the operator rendered, in the first of these containers that has the hook."""
    for container in containers:
        call = (_hook(container) or {}).get("httpGet") or {}
        if call.get("path") == names.PRESTOP_PATH and isinstance(call.get("port"), int):
            return int(call["port"])
    return None


def unhooked(containers: Iterable[Raw], serving: str) -> tuple[Unhooked, ...]:
    """Containers beside the serving one that have no preStop hook at all: every container is rendered with one.

    Init containers that keep running need none: the kubelet ends them after the others.
    """
    return tuple(Unhooked(c["name"], _lasts(c)) for c in containers if c["name"] != serving and not _hook(c))


def _hook(container: Raw) -> Raw | None:
    return (container.get("lifecycle") or {}).get("preStop") or None


def _lasts(container: Raw) -> float:
    """Seconds for which the container serves after SIGTERM, as far as it is known; infinite: until nobody needs it."""
    told = {e.get("name"): str(e.get("value") or "") for e in container.get("env") or []}
    if told.get(EXIT_ON_ZERO, "").lower() == "true":
        return float("inf")
    try:
        config = json.loads(told.get(PROXY_CONFIG) or "{}")
    except (ValueError, RecursionError):
        return 0.0
    found = re.fullmatch(
        r"(\d{1,9}(?:\.\d{1,9})?)s", str(config.get(DRAIN_DURATION) if isinstance(config, dict) else "")
    )
    return float(found[1]) if found else 0.0

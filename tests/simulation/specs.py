"""Specs of LLMServices as stories give them: by the names of fields, wherever in the spec these stand."""

from collections.abc import Mapping
from typing import Any

from tidegate.cluster.port import Object
from tidegate.preview.patches import merged

_GRACE = frozenset(("initialSeconds", "teardownSeconds", "safetySeconds", "maxSeconds", "rollOnDrift"))
_DRAIN = frozenset(
    (
        "mode",
        "native",
        "budgetSeconds",
        "onExpiry",
        "propagationSeconds",
        "quietSeconds",
        "flushSeconds",
        "stalledAfterSeconds",
    )
)
_TOP = frozenset(("replicas", "port", "service", "probes", "engine", "gateway", "disruption"))


def template(image: str, mode: str) -> Object:
    """A pod template of one container, with the ports of the drain mode."""
    ports = [{"name": "http", "containerPort": 8000}]
    if mode == "Native":
        ports.append({"name": "admin", "containerPort": 9901})
    return {"metadata": {}, "spec": {"containers": [{"name": "server", "image": image, "ports": ports}]}}


def edited(spec: Mapping[str, Any], given: Mapping[str, Any]) -> Object:
    """The spec with what is given in place; the rest of the names are fields of rollout."""
    change: dict[str, Any] = {"drain": {}, "rollout": {}}
    for key, value in given.items():
        if key == "image":
            change["template"] = template(value, str(given.get("mode", spec["drain"]["mode"])))
        elif key in _TOP:
            change[key] = value
        elif key in _DRAIN:
            change["drain"][key] = value
        elif key in _GRACE:
            change["drain"].setdefault("grace", {})[key] = value
        else:
            change["rollout"][key] = value
    return merged(spec, {key: value for key, value in change.items() if value != {}})

"""What a JSON patch and a JSON merge patch make of an object."""

from collections.abc import Mapping
from typing import Any

from tidegate.api.errors import Conflict
from tidegate.cluster.port import Object


def merged(old: Mapping[str, Any], change: Mapping[str, Any]) -> Object:
    """JSON merge patch: None removes, maps are merged, the rest is replaced."""
    result = dict(old)
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            held = result.get(key)
            result[key] = merged(held if isinstance(held, Mapping) else {}, value)
        else:
            result[key] = value
    return result


def operate(document: Any, op: str, path: tuple[str, ...], value: Any) -> Object:
    """One operation of a JSON patch on maps. Raises Conflict, as the operator's client reads the server's 422."""
    where = "/".join(path)
    if not isinstance(document, Mapping):
        raise Conflict(f"the server rejected our request: {where} has no parent (422)")
    key, rest = path[0], path[1:]
    held = dict(document)
    if rest:
        if key not in held:
            raise Conflict(f"the server rejected our request: {where} is missing (422)")
        held[key] = operate(held[key], op, rest, value)
        return held
    if op != "add" and key not in held:
        raise Conflict(f"the server rejected our request: {where} is missing (422)")
    if op == "test":
        if held[key] != value:
            raise Conflict(f"the server rejected our request: testing {where} failed (422)")
    elif op in ("add", "replace"):
        held[key] = value
    elif op == "remove":
        del held[key]
    else:
        raise NotImplementedError(f"JSON patch {op}")
    return held

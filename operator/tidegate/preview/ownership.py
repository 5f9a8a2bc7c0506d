"""Server-side apply, as far as the operator needs it: who owns which field, and what an apply makes of an object.

Maps are merged key by key, and so are the lists whose items have a key of their own (`KEYS`); other lists are replaced
whole. Every apply of the operator forces: a field that it sets to another value belongs to it alone afterwards, a field
that it set before and leaves out now goes, unless somebody else owns it too.
"""

from collections.abc import Iterator, Mapping
from typing import Any

Object = dict[str, Any]
Path = tuple[Any, ...]
Owners = dict[str, frozenset[Path]]

_IDENTITY = frozenset(("apiVersion", "kind"))
KEYS: dict[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "ownerReferences": ("uid",),
    "ports": ("port", "containerPort", "protocol"),
}


class Item(tuple[Any, ...]):
    """The key of one item of a list; what it names is gone when its owner leaves it out."""


def apply(live: Object | None, owners: Owners, body: Mapping[str, Any], manager: str) -> tuple[Object, Owners]:
    """The object and the owners after `manager` has applied `body` with force. Inputs stay as they are."""
    fields = dict(_leaves(_keyed(body)))
    mine = frozenset(fields)
    result = _keyed(live or {})
    after = {name: held for name, held in owners.items() if name != manager}
    for path in sorted(owners.get(manager, frozenset()) - mine, key=len):
        if not any(other[: len(path)] == path for held in after.values() for other in held):
            result = _without(result, path)
    for path, value in fields.items():
        before = _find(result, path)
        if isinstance(path[-1], Item):
            result = result if before is not None else _with(result, path, {})
        elif before != value:
            result = _with(result, path, value)
            after = {name: held - {path} for name, held in after.items()}
    after[manager] = mine
    return _plain(result), {name: held for name, held in after.items() if held}


def _keyed(value: Any, name: str = "") -> Any:
    """With maps in place of the lists whose items have keys."""
    if isinstance(value, Mapping):
        return {key: _keyed(inner, key) for key, inner in value.items()}
    if isinstance(value, list) and name in KEYS and value:
        return {
            Item(item.get(key, "TCP") for key in KEYS[name] if key in item or key == "protocol"): _keyed(item)
            for item in value
        }
    return value


def _plain(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    if value and all(isinstance(key, Item) for key in value):
        return [_plain(item) for item in value.values()]
    return {key: _plain(inner) for key, inner in value.items()}


def _leaves(value: Mapping[Any, Any], at: Path = ()) -> Iterator[tuple[Path, Any]]:
    for key, inner in value.items():
        path = (*at, key)
        if len(path) == 1 and key in _IDENTITY:
            continue
        if path in (("metadata", "name"), ("metadata", "namespace")):
            continue
        if isinstance(key, Item):
            yield path, {}
        if isinstance(inner, Mapping) and inner:
            yield from _leaves(inner, path)
        elif not isinstance(key, Item):
            yield path, inner


def _find(value: Any, path: Path) -> Any:
    for key in path:
        if not isinstance(value, Mapping) or key not in value:
            return None
        value = value[key]
    return value


def _with(value: Any, path: Path, new: Any) -> Object:
    held = dict(value) if isinstance(value, Mapping) else {}
    held[path[0]] = new if len(path) == 1 else _with(held.get(path[0]), path[1:], new)
    return held


def _without(value: Object, path: Path) -> Object:
    if path[0] not in value:
        return value
    held = dict(value)
    if len(path) == 1:
        del held[path[0]]
    else:
        held[path[0]] = _without(held[path[0]], path[1:])
    return held

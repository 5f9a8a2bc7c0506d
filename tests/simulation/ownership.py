"""Server-side apply, as far as the operator needs it: who owns which field, and what an apply makes of an object.

Maps are merged key by key; lists are replaced whole, `metadata.ownerReferences` merged by uid. Every apply of the
operator forces: a field that it sets to another value belongs to it alone afterwards, a field that it set before and
leaves out now goes, unless somebody else owns it too.
"""

from collections.abc import Iterator, Mapping
from typing import Any

Object = dict[str, Any]
Path = tuple[str, ...]
Owners = dict[str, frozenset[Path]]

_IDENTITY = frozenset(("apiVersion", "kind"))


def apply(live: Object | None, owners: Owners, body: Mapping[str, Any], manager: str) -> tuple[Object, Owners]:
    """The object and the owners after `manager` has applied `body` with force. Inputs stay as they are."""
    fields = dict(_leaves(body))
    mine = frozenset(fields)
    result = dict(live or {})
    after = {name: held for name, held in owners.items() if name != manager}
    for path in owners.get(manager, frozenset()) - mine:
        if not any(path in held for held in after.values()):
            result = _without(result, path)
    for path, value in fields.items():
        before = _find(result, path)
        if path == ("metadata", "ownerReferences"):
            value = _by_uid(before or [], value)
        if before != value:
            result = _with(result, path, value)
            after = {name: held - {path} for name, held in after.items()}
    after[manager] = mine
    return result, {name: held for name, held in after.items() if held}


def _leaves(value: Mapping[str, Any], at: Path = ()) -> Iterator[tuple[Path, Any]]:
    for key, inner in value.items():
        path = (*at, key)
        if len(path) == 1 and key in _IDENTITY:
            continue
        if path in (("metadata", "name"), ("metadata", "namespace")):
            continue
        if isinstance(inner, Mapping) and inner:
            yield from _leaves(inner, path)
        else:
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


def _by_uid(live: list[Object], wanted: list[Object]) -> list[Object]:
    named = {reference["uid"] for reference in wanted}
    return [reference for reference in live if reference["uid"] not in named] + list(wanted)

"""What the operator has last seen of each object, kept by kind and namespace.

Watches fill it, and so does the answer to every write of the operator's own, so that it never decides on a state from
before its own write. An object older than the one held is dropped: kopf may replay, and its watches are independent.

resourceVersions are compared as numbers. Kubernetes calls them opaque; they are etcd's revisions, and since 1.35
(KEP-5504) comparing them within a resource is documented.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from . import project
from .port import Kind, Object

Key = tuple[str, str]


class Store:
    """Objects as JSON has them, trimmed; `changed` is called with (kind, object) on every news."""

    def __init__(self, changed: Callable[[Kind, Object], None]) -> None:
        self._changed = changed
        self._objects: dict[Kind, dict[Key, Object]] = {}
        self._gone: dict[str, int] = {}

    def put(self, kind: Kind, raw: Object) -> None:
        raw = project.trim(kind, raw)
        meta = raw["metadata"]
        uid = str(meta.get("uid", ""))
        if uid in self._gone:
            return
        key = (meta.get("namespace") or "", meta["name"])
        held = self._objects.setdefault(kind, {}).get(key)
        if held is not None and held["metadata"]["uid"] == uid and _version(held) >= _version(raw):
            return
        self._objects[kind][key] = raw
        self._changed(kind, raw)

    def remove(self, kind: Kind, raw: Object) -> None:
        meta = raw.get("metadata") or {}
        key = (meta.get("namespace") or "", meta["name"])
        held = self._objects.get(kind, {}).get(key)
        uid = str(meta.get("uid", ""))
        # A late event of a deleted object must not bring it back; uids are never used again.
        self._gone[uid] = len(self._gone)
        if len(self._gone) > 20_000:
            for old in list(self._gone)[:10_000]:
                del self._gone[old]
        if held is not None and held["metadata"].get("uid") == uid:
            del self._objects[kind][key]
            self._changed(kind, raw)

    def replace(self, kind: Kind, listed: Iterable[Object], version: str, namespace: str | None = None) -> int:
        """Take over a LIST; what it lacks and is not newer than it is dropped. Returns how many ghosts there were."""
        seen = set()
        for raw in listed:
            seen.add(raw["metadata"]["uid"])
            self.put(kind, raw)
        limit = int(version) if version.isdigit() else 0
        ghosts = [
            raw
            for (space, _), raw in self._objects.get(kind, {}).items()
            if raw["metadata"]["uid"] not in seen
            and _version(raw) <= limit
            and (namespace is None or space == namespace)
        ]
        for raw in ghosts:
            self.remove(kind, raw)
        return len(ghosts)

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        return self._objects.get(kind, {}).get((namespace, name))

    def select(self, kind: Kind, namespace: str, labels: dict[str, str] | None = None) -> Iterator[Object]:
        for (space, _), raw in list(self._objects.get(kind, {}).items()):
            if space == namespace and _matches(raw, labels or {}):
                yield raw

    def all(self, kind: Kind) -> Iterator[Object]:
        return iter(list(self._objects.get(kind, {}).values()))


def _matches(raw: Object, labels: dict[str, str]) -> bool:
    have: dict[str, Any] = raw["metadata"].get("labels") or {}
    return all(have.get(key) == value for key, value in labels.items())


def _version(raw: Object) -> int:
    text = str(raw["metadata"].get("resourceVersion", "0"))
    return int(text) if text.isdigit() else 0

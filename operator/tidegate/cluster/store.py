"""What the operator has last seen of each object, kept by kind and namespace.

Watches fill it, and so does the answer to every write of the operator's own, so that it never decides on a state from
before its own write. An object older than the one held is dropped: kopf may replay, and its watches are independent.

resourceVersions are compared as numbers. Kubernetes calls them opaque; they are etcd's revisions, and since 1.35
(KEP-5504) comparing them within a resource is documented.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

from . import project
from .port import PDBS, Kind, Object

T = TypeVar("T")
MOST_GONE: Final = 20_000
"""Deletions remembered; older ones can be late no more."""


class Store:
    """Objects as JSON has them, trimmed."""

    def __init__(self) -> None:
        self._handlers: list[Callable[[Kind, Object], None]] = []
        self._objects: dict[Kind, dict[str, dict[str, Object]]] = {}
        self._gone: dict[str, int] = {}
        self._projected: dict[str, tuple[Object, Any]] = {}

    def subscribe(self, changed: Callable[[Kind, Object], None]) -> None:
        """Call `changed` with the kind and the object on every news from now on."""
        self._handlers.append(changed)

    def put(self, kind: Kind, raw: Object) -> None:
        """Hold an object, unless a newer state of it is held, or it is known to be gone."""
        raw = project.trim(kind, raw)
        meta = raw["metadata"]
        # A late event of a deleted object must not bring it back; one that only left the selector may return.
        if self._gone.get(str(meta.get("uid", "")), -1) >= _version(raw):
            return
        space = self._objects.setdefault(kind, {}).setdefault(meta.get("namespace") or "", {})
        held = space.get(meta["name"])
        if held is not None and _version(held) >= _version(raw):
            return
        if held is not None:
            self._projected.pop(held["metadata"].get("uid", ""), None)
        space[meta["name"]] = raw
        # A newer version of what is not kept is no news.
        if held is None or kind is not PDBS or _content(held) != _content(raw):
            self._changed(kind, raw)

    def remove(self, kind: Kind, raw: Object) -> None:
        """An object was deleted, `raw` being the last of it."""
        meta = raw.get("metadata") or {}
        space = self._objects.get(kind, {}).get(meta.get("namespace") or "", {})
        held = space.get(meta["name"])
        uid = str(meta.get("uid", ""))
        self._gone[uid] = max(_version(raw), _version(held) if held is not None else 0)
        if len(self._gone) > MOST_GONE:
            for old in list(self._gone)[: MOST_GONE // 2]:
                del self._gone[old]
        if held is not None and held["metadata"].get("uid") == uid:
            del space[meta["name"]]
            self._projected.pop(uid, None)
            self._changed(kind, raw)

    def replace(self, kind: Kind, listed: Iterable[Object], version: str) -> int:
        """Take over a LIST; what it lacks and is not newer than it is dropped. Returns how many ghosts there were."""
        seen = set()
        for raw in listed:
            seen.add(raw["metadata"]["uid"])
            self.put(kind, raw)
        limit = int(version) if version.isdigit() else 0
        ghosts = [raw for raw in self.all(kind) if raw["metadata"]["uid"] not in seen and _version(raw) <= limit]
        for raw in ghosts:
            self.remove(kind, raw)
        return len(ghosts)

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """The object of that name; `namespace` is empty for kinds without one."""
        return self._objects.get(kind, {}).get(namespace, {}).get(name)

    def select(self, kind: Kind, namespace: str, labels: dict[str, str] | None = None) -> Iterator[Object]:
        """The objects of a namespace that have all these labels."""
        for raw in list(self._objects.get(kind, {}).get(namespace, {}).values()):
            if _matches(raw, labels or {}):
                yield raw

    def projected(self, raw: Object, project: Callable[[Object], T]) -> T:
        """What `project` makes of an object that is held, once per version: each pass looks at every pod again."""
        uid = raw["metadata"]["uid"]
        known = self._projected.get(uid)
        if known is None or known[0] is not raw:
            known = self._projected[uid] = (raw, project(raw))
        return known[1]

    def all(self, kind: Kind) -> Iterator[Object]:
        """The objects of a kind in all namespaces."""
        for space in list(self._objects.get(kind, {}).values()):
            yield from list(space.values())

    def _changed(self, kind: Kind, raw: Object) -> None:
        for handler in self._handlers:
            handler(kind, raw)


def _matches(raw: Object, labels: dict[str, str]) -> bool:
    have: dict[str, Any] = raw["metadata"].get("labels") or {}
    return all(have.get(key) == value for key, value in labels.items())


def _content(raw: Object) -> Object:
    """The object without the number that every write changes."""
    return {**raw, "metadata": {**raw["metadata"], "resourceVersion": ""}}


def _version(raw: Object) -> int:
    text = str(raw["metadata"].get("resourceVersion", "0"))
    return int(text) if text.isdigit() else 0

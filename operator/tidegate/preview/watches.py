"""The watches of one operator: what has changed at the API server in memory reaches its store."""

from typing import Protocol

from tidegate.cluster.port import Kind, Object
from tidegate.controller.runtime import WATCHED
from tidegate.preview.apiserver import Server


class Receives(Protocol):
    """Where watches end, as `cluster.store.Store` is."""

    def put(self, kind: Kind, raw: Object) -> None:
        """The object was made or has changed."""

    def remove(self, kind: Kind, raw: Object) -> None:
        """The object is gone."""


class Watches:
    """Of each kind that the operator watches, from the list of what is there on; `arrive` decides when it is told."""

    def __init__(self, server: Server, store: Receives) -> None:
        self._server, self._store = server, store
        self._open = True
        self._labels = {kind: labels.partition("=") for kind, labels in WATCHED}
        server.watchers.append(self._event)
        for kind in self._labels:
            for raw in server.all(kind):
                self._event("ADDED", kind, raw)

    def close(self) -> None:
        """Nothing arrives any more."""
        self._open = False
        self._server.watchers.remove(self._event)

    def arrive(self, event: str, kind: Kind, raw: Object) -> None:
        """An object that is watched has changed: tell it at once."""
        self.deliver(event, kind, raw)

    def deliver(self, event: str, kind: Kind, raw: Object) -> None:
        """Put it into the store."""
        if not self._open:
            return
        if event == "DELETED":
            self._store.remove(kind, raw)
        else:
            self._store.put(kind, raw)

    def _event(self, event: str, kind: Kind, raw: Object) -> None:
        selector = self._labels.get(kind)
        if selector is None:
            return
        label, equal, value = selector
        have = raw["metadata"].get("labels") or {}
        if not label or (have.get(label) == value if equal else label in have):
            self.arrive(event, kind, raw)

"""Proof that nobody changes an object in place that the API server in memory has stored."""

import json

from tidegate.cluster.port import Kind, Object
from tidegate.preview.apiserver import Server


class Paranoia:
    """Remembers how each stored object read, to find out who changes one in place."""

    def __init__(self, server: Server) -> None:
        self._seen: list[tuple[Object, str]] = []
        server.watchers.append(self._remember)

    def _remember(self, event: str, kind: Kind, raw: Object) -> None:
        self._seen.append((raw, json.dumps(raw, sort_keys=True)))

    def check(self) -> None:
        for raw, text in self._seen:
            assert json.dumps(raw, sort_keys=True) == text, "somebody changed a stored object in place"

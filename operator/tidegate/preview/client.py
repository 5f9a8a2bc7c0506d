"""The operator's port to the API server in memory."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from tidegate.cluster.port import Kind, Object
from tidegate.preview.apiserver import Server

T = TypeVar("T")


class MemoryCluster:
    """The port `tidegate.cluster.port.Cluster` over a `Server`; each call is answered at once."""

    def __init__(self, server: Server, name: str) -> None:
        self._server, self._name = server, name

    # -- the port

    async def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: str = "",
        chunk: int = 500,  # noqa: ARG002
    ) -> tuple[list[Object], str]:
        """As the port."""
        wanted = [part.partition("=") for part in labels.split(",")] if labels else []

        def do() -> tuple[list[Object], str]:
            found = []
            for raw in self._server.all(kind):
                meta = raw["metadata"]
                have = meta.get("labels") or {}
                if namespace in (None, meta.get("namespace")) and all(
                    have.get(k) == v if equal else k in have for k, equal, v in wanted
                ):
                    found.append(raw)
            return found, str(self._server.version)

        return await self.call("list", kind, do)

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        """As the port."""
        return await self.call("get", kind, lambda: self._server.get(kind, namespace or "", name))

    async def create(self, kind: Kind, namespace: str, body: Mapping[str, Any]) -> Object:  # noqa: ARG002
        """As the port."""
        name, detail = body["metadata"]["name"], body.get("reason", "")
        return await self.call("create", kind, lambda: self._server.create(kind, body), name, detail)

    async def apply(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        body: Mapping[str, Any],
        *,
        manager: str,
        dry_run: bool = False,
    ) -> Object:
        """As the port."""
        spec = body["spec"]
        detail = {"manager": manager, "replicas": spec.get("replicas", spec.get("minAvailable")), "dryRun": dry_run}

        def do() -> Object:
            return self._server.apply(kind, namespace, name, body, manager, dry_run)

        return await self.call("get" if dry_run else "apply", kind, do, "" if dry_run else name, detail)

    async def patch_status(
        self, kind: Kind, namespace: str, name: str, operations: Sequence[Mapping[str, Any]]
    ) -> Object:
        """As the port."""

        def do() -> Object:
            return self._server.patch(kind, namespace, name, operations, "status")

        return await self.call("status", kind, do, name, sorted(o["path"] for o in operations if o["op"] != "test"))

    async def patch(self, kind: Kind, namespace: str, name: str, operations: Sequence[Mapping[str, Any]]) -> Object:
        """As the port."""
        detail = [o.get("value") for o in operations if o["op"] in ("add", "replace")]
        return await self.call(
            "patch", kind, lambda: self._server.patch(kind, namespace, name, operations), name, detail
        )

    async def delete(self, kind: Kind, namespace: str, name: str, *, uid: str) -> None:
        """As the port."""
        options = {"preconditions": {"uid": uid}}
        await self.call("delete", kind, lambda: self._server.delete(kind, namespace, name, options), name, uid)

    async def call(self, verb: str, kind: Kind, do: Callable[[], T], name: str = "", detail: Any = None) -> T:  # noqa: ARG002
        """One call, made by `do`; `name` is that of the object where it is a write, and `detail` says more of it.

        Whoever wants latency, faults, or a record of the calls overrides this.
        """
        await asyncio.sleep(0)
        return self.make(do)

    def make(self, do: Callable[[], T]) -> T:
        """Do it under the operator's name."""
        self._server.writer = self._name
        try:
            return do()
        finally:
            self._server.writer = "system"

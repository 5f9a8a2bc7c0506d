"""The drain keys: one Secret per service, read by name, made once, never logged and never in a plan."""

import base64
import contextlib
import hashlib
import hmac
import secrets
from typing import Final

from tidegate.api.errors import Conflict, NotFound
from tidegate.core import render

from .port import SECRETS, Cluster, Object

KEY_BYTES: Final = 32
TRUSTED_SECONDS: Final = 600.0


class DrainKeys:
    """Keys in memory, by service key; the Secret is the truth."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._held: dict[str, tuple[str, ...]] = {}
        self._read_at: dict[str, float] = {}

    def known(self, key: str, now: float) -> bool:
        """Whether the Secret was there lately; it is looked at again now and then, since nobody watches Secrets."""
        return key in self._held and now - self._read_at.get(key, 0.0) < TRUSTED_SECONDS

    async def refresh(self, key: str, now: float) -> bool:
        """Read the Secret; whether it is there. Raises `ClusterError`."""
        self._read_at[key] = now
        return bool(await self.keys(key, fresh=True))

    def forget(self, key: str) -> None:
        self._held.pop(key, None)
        self._read_at.pop(key, None)

    async def keys(self, key: str, fresh: bool = False) -> tuple[str, ...]:
        """`current`, then `previous` where there is one; empty when there is no Secret. Raises `ClusterError`."""
        if fresh or key not in self._held:
            namespace, name = key.split("/", 1)
            try:
                found = _decode(await self._cluster.get(SECRETS, namespace, render.secret_name(name)))
            except NotFound:
                found = ()
            if not found:
                return ()
            self._held[key] = found
        return self._held[key]

    async def ensure(self, owner: render.Owner) -> None:
        """Create the Secret unless it is there; who comes second takes the first one's key.

        One that was deleted comes back with the key it had: running pods still hold it.
        """
        key = f"{owner.namespace}/{owner.name}"
        if await self.keys(key, fresh=True):
            return
        current = self._held.get(key, (secrets.token_urlsafe(KEY_BYTES),))[0]
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": owner.metadata(render.secret_name(owner.name)),
            "type": "Opaque",
            "data": {"current": base64.b64encode(current.encode()).decode()},
        }
        with contextlib.suppress(Conflict):
            await self._cluster.create(SECRETS, owner.namespace, body)
        await self.keys(key, fresh=True)

    async def prestop_key(self, owner: render.Owner, revision: str) -> str:
        """A key of one revision, good for prestop alone: it stands literally in the template, the drain key does not.

        Derived, so that a repeated creation renders the same template; not reversible.
        """
        keys = await self.keys(f"{owner.namespace}/{owner.name}")
        return hmac.new(keys[0].encode(), f"prestop/{revision}".encode(), hashlib.sha256).hexdigest()[:40]


def _decode(raw: Object) -> tuple[str, ...]:
    data = raw.get("data") or {}
    found = []
    for name in ("current", "previous"):
        if data.get(name):
            found.append(base64.b64decode(data[name]).decode("utf-8", "replace").strip())
    return tuple(found)

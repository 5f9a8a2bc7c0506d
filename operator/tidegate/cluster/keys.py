"""The drain keys: one Secret per service, read by name, made once, never logged and never in a plan."""

import base64
import binascii
import contextlib
import hashlib
import hmac
import secrets
from typing import Final

from tidegate.api.errors import Conflict, NotFound
from tidegate.core.render import objects
from tidegate.core.state import snapshot

from . import gather
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
        return key in self._held and now - self._read_at.get(key, float("-inf")) < TRUSTED_SECONDS

    def forget(self, key: str) -> None:
        self._held.pop(key, None)
        self._read_at.pop(key, None)

    async def refresh(self, owner: objects.Owner, now: float) -> tuple[bool, snapshot.Conflict | None]:
        """Read the Secret: whether it is there and stays, and what stands in the way. Raises `ClusterError`.

        A Secret that a user made, with a key of the user's, is used as it is.
        """
        key = f"{owner.namespace}/{owner.name}"
        self._read_at.pop(key, None)
        raw = await self._read(key)
        if raw is None:
            return False, None
        name = raw["metadata"]["name"]
        trouble = gather.foreign(raw, owner, "Secret") if gather.controlled(raw) else None
        if trouble is None and not _decode(raw):
            text = (
                f"Secret {name} has no key `current` of printable ASCII characters in it, which a header could carry; "
                "put one there, or delete the Secret to get a new one"
            )
            trouble = snapshot.Conflict("Secret", name, text)
        if trouble is not None or gather.orphaned(raw):
            return False, trouble
        self._read_at[key] = now
        return True, None

    async def keys(self, key: str, fresh: bool = False) -> tuple[str, ...]:
        """`current`, then `previous` where there is one; empty when there is no Secret. Raises `ClusterError`."""
        if fresh or key not in self._held:
            raw = await self._read(key)
            return () if raw is None else _decode(raw)
        return self._held[key]

    async def ensure(self, owner: objects.Owner) -> None:
        """Create the Secret unless it is there; who comes second takes the first one's key.

        One that was deleted comes back with the key it had: running pods still hold it. One that was orphaned is
        adopted.
        """
        key = f"{owner.namespace}/{owner.name}"
        raw = await self._read(key)
        if raw is not None:
            if gather.orphaned(raw):
                name = raw["metadata"]["name"]
                await self._cluster.patch(SECRETS, owner.namespace, name, gather.adoption(raw, owner))
            return
        current = self._held.get(key, (secrets.token_urlsafe(KEY_BYTES),))[0]
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": owner.metadata(objects.secret_name(owner.name)),
            "type": "Opaque",
            "data": {"current": base64.b64encode(current.encode()).decode()},
        }
        with contextlib.suppress(Conflict):
            await self._cluster.create(SECRETS, owner.namespace, body)
        await self._read(key)

    async def prestop_key(self, owner: objects.Owner, revision: str) -> str:
        """A key of one revision, good for prestop alone: it stands literally in the template, the drain key does not.

        Derived, so that a repeated creation renders the same template; not reversible. Raises `Conflict` when the
        Secret went away in the meantime.
        """
        keys = await self.keys(f"{owner.namespace}/{owner.name}")
        if not keys:
            raise Conflict(f"Secret {objects.secret_name(owner.name)} is not there")
        return hmac.new(keys[0].encode(), f"prestop/{revision}".encode(), hashlib.sha256).hexdigest()[:40]

    async def _read(self, key: str) -> Object | None:
        """The Secret from the API server, its keys kept; what is held stays when it is gone."""
        namespace, name = key.split("/", 1)
        try:
            raw = await self._cluster.get(SECRETS, namespace, objects.secret_name(name))
        except NotFound:
            return None
        found = _decode(raw)
        if found:
            self._held[key] = found
        return raw


def _decode(raw: Object) -> tuple[str, ...]:
    """The keys in order; none when `current` is missing, or one is not what a header can carry."""
    data = raw.get("data") or {}
    try:
        found = [base64.b64decode(data[name]).decode().strip() for name in ("current", "previous") if data.get(name)]
    except (binascii.Error, UnicodeDecodeError):
        return ()
    sound = all(key.isascii() and key.isprintable() and key for key in found)
    return tuple(found) if data.get("current") and sound else ()

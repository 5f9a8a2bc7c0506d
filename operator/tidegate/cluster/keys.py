"""The drain keys: one Secret per service, read by name, made once, never logged and never in a plan."""

import base64
import binascii
import contextlib
import hashlib
import hmac
import logging
import secrets
from dataclasses import dataclass
from typing import Final

from tidegate.api.errors import ClusterError, Conflict, Denied, NotFound
from tidegate.core.render import objects
from tidegate.core.report import conflicts
from tidegate.core.state import snapshot

from . import gather
from .port import SECRETS, Cluster, Object

KEY_BYTES: Final = 32
TRUSTED_SECONDS: Final = 600.0
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SecretState:
    """Whether the Secret of a service is there and stays, and if not, why."""

    present: bool
    conflict: snapshot.Conflict | None = None
    """What stands in its way."""
    denied: str = ""
    """Why it may not be read; empty when it may."""


class DrainKeys:
    """Keys in memory, by service key; the Secret is the truth."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._held: dict[str, tuple[str, ...]] = {}
        self._read_at: dict[str, float] = {}

    def forget(self, key: str) -> None:
        """Service `key` is gone, or is another one of the same name."""
        self._held.pop(key, None)
        self._read_at.pop(key, None)

    async def check(self, owner: objects.Owner, now: float) -> SecretState:
        """Whether the Secret is there; raises `ClusterError`, but not for a refusal, which a person has to mend.

        It is read again now and then alone, since nobody watches Secrets. One that a user made, with a key of the
        user's, is used as it is.
        """
        key = f"{owner.namespace}/{owner.name}"
        if key in self._held and now - self._read_at.get(key, float("-inf")) < TRUSTED_SECONDS:
            return SecretState(True)
        self._read_at.pop(key, None)
        try:
            raw = await self._read(key)
        except Denied as error:
            return SecretState(False, denied=str(error))
        if raw is None:
            return SecretState(False)
        name = raw["metadata"]["name"]
        trouble = gather.conflict_over(raw, owner, "Secret") if gather.controlled(raw) else None
        if trouble is None and not _decode(raw):
            trouble = snapshot.Conflict("Secret", name, conflicts.without_key(name))
        if trouble is not None or gather.orphaned(raw):
            return SecretState(False, trouble)
        self._read_at[key] = now
        return SecretState(True)

    async def keys(self, key: str, fresh: bool = False) -> tuple[str, ...]:
        """`current`, then `previous` where there is one; empty when there is no Secret. Raises `ClusterError`."""
        if fresh or key not in self._held:
            raw = await self._read(key)
            return () if raw is None else _decode(raw)
        return self._held[key]

    async def for_call(self, key: str, fresh: bool) -> tuple[str, ...]:
        """As `keys`, for a call to a pod: none when they cannot be read, which whoever calls then reports."""
        try:
            return await self.keys(key, fresh)
        except ClusterError as error:
            log.warning("drain key of %s cannot be read: %s", key, error)
            return ()

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

"""The ConfigMap NAME-drain-times of each service: read by name, written once per drain, never overwritten unread.

The operator does not watch ConfigMaps, since a cluster has many. It reads this one when it first needs it and every 10
minutes after that. Each write tests the version that was read, so that two operators cannot count the same drain.
"""

from dataclasses import dataclass, field, replace
from typing import Final

from tidegate.api.errors import Conflict, Denied, NotFound, Rejected
from tidegate.core.drain_time import drain_times
from tidegate.core.drain_time.drain_times import DrainTimes
from tidegate.core.render import objects
from tidegate.core.report import conflicts

from . import gather
from .port import CONFIG_MAPS, Cluster, Object

KEY: Final = "drain-times.json"
TRUSTED_SECONDS: Final = 600.0
"""Seconds after which the ConfigMap is read again."""
TROUBLED_SECONDS: Final = 30.0
"""The same for content that could not be used."""


def name_of(service: str) -> str:
    """The ConfigMap's name."""
    return f"{service}-drain-times"


@dataclass(frozen=True, slots=True)
class Kept:
    """The ConfigMap when it was last read or written."""

    times: DrainTimes = field(default_factory=DrainTimes)
    trouble: str = ""
    """Why its content is not used, and what to do; empty if it is used."""
    uid: str = ""
    """Empty if the ConfigMap does not exist."""
    version: str = ""
    read_at: float = 0.0


class DrainTimesKeeper:
    """A cache of the ConfigMaps, by service key."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._held: dict[str, Kept] = {}

    def forget(self, key: str) -> None:
        """Drop the cached ConfigMap of service `key`."""
        self._held.pop(key, None)

    async def read(self, owner: objects.Owner, now: float) -> Kept:
        """The drain times of this service. `now` is Unix time.

        Raises `ClusterError`, but not for what a user has to fix: that is in `trouble`.
        """
        key = f"{owner.namespace}/{owner.name}"
        held = self._held.get(key)
        if held is not None and now - held.read_at < (TROUBLED_SECONDS if held.trouble else TRUSTED_SECONDS):
            return held
        name = name_of(owner.name)
        try:
            raw = await self._cluster.get(CONFIG_MAPS, owner.namespace, name)
            if gather.orphaned(raw) and gather.conflict_over(raw, owner, CONFIG_MAPS.kind) is None:
                raw = await self._cluster.patch(CONFIG_MAPS, owner.namespace, name, gather.adoption(raw, owner))
            found = _kept(raw, owner)
        except NotFound:
            found = Kept()
        except Denied as error:
            found = Kept(trouble=conflicts.drain_times_refused(name, str(error)))
        if held is not None and (held.uid, held.version) == (found.uid, found.version) and not found.trouble:
            # An unchanged document stays the same object, so that its estimates are not computed again.
            found = held
        self._held[key] = replace(found, read_at=now)
        return self._held[key]

    async def write(self, owner: objects.Owner, times: DrainTimes, now: float) -> None:
        """Write `times`, which were computed from the last `read`. `now` is Unix time. Raises `ClusterError`.

        After a Conflict, the next `read` gets the current content. A refusal stays in `trouble`, since a retry is
        useless.
        """
        key = f"{owner.namespace}/{owner.name}"
        held = self._held.pop(key, Kept())
        name, text = name_of(owner.name), times.dump()
        try:
            if held.uid:
                raw = await self._cluster.patch(CONFIG_MAPS, owner.namespace, name, _change(held, text))
            else:
                raw = await self._cluster.create(CONFIG_MAPS, owner.namespace, _body(owner, text))
        except NotFound as error:
            raise Conflict(f"ConfigMap {name} was deleted in the meantime") from error
        except (Denied, Rejected) as error:
            self._held[key] = replace(held, trouble=conflicts.drain_times_refused(name, str(error)), read_at=now)
            raise
        self._held[key] = replace(_kept(raw, owner), read_at=now)


def _body(owner: objects.Owner, text: str) -> Object:
    return {
        "apiVersion": CONFIG_MAPS.api_version,
        "kind": CONFIG_MAPS.kind,
        "metadata": owner.metadata(name_of(owner.name)),
        "data": {KEY: text},
    }


def _change(held: Kept, text: str) -> list[dict[str, object]]:
    return [
        {"op": "test", "path": "/metadata/uid", "value": held.uid},
        {"op": "test", "path": "/metadata/resourceVersion", "value": held.version},
        {"op": "replace", "path": f"/data/{KEY}", "value": text},
    ]


def _kept(raw: Object, owner: objects.Owner) -> Kept:
    meta = raw["metadata"]
    known = Kept(uid=meta["uid"], version=meta["resourceVersion"])
    clash = gather.conflict_over(raw, owner, CONFIG_MAPS.kind)
    if clash is not None:
        return replace(known, trouble=conflicts.drain_times_unusable(clash.detail))
    try:
        return replace(known, times=drain_times.load(str((raw.get("data") or {})[KEY])))
    except KeyError:
        reason = f"it has no key {KEY}"
    except drain_times.Unreadable as error:
        reason = str(error)
    return replace(known, trouble=conflicts.drain_times_ignored(meta["name"], reason))

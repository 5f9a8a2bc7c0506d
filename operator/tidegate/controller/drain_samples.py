"""The samples of drains and teardowns, on their way into the ConfigMap of drain times."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tidegate.api.errors import ClusterError, Denied, Rejected
from tidegate.cluster.drain_times import DrainTimesKeeper
from tidegate.core.drain_time.drain_times import DrainTimes
from tidegate.core.drain_time.histogram import Sample
from tidegate.core.planner import samples
from tidegate.core.render.objects import Owner
from tidegate.core.state.snapshot import Snapshot

log = logging.getLogger(__name__)

UNCOUNTED_SECONDS: Final = 30.0
"""How long a rollout waits for the API server to take a drain time."""


@dataclass(slots=True)
class _Pending:
    failing_since: float | None = None
    teardowns: dict[str, Sample] = field(default_factory=dict)


class DrainSamples:
    """By service key, what is not in the ConfigMap yet."""

    def __init__(self, keeper: DrainTimesKeeper) -> None:
        self._keeper = keeper
        self._pending: dict[str, _Pending] = {}

    def forget(self, key: str) -> None:
        """Service `key` is gone, or is another one of the same name."""
        self._keeper.forget(key)
        self._pending.pop(key, None)

    def teardowns(self, key: str, snapshot: Snapshot) -> Mapping[str, Sample]:
        """By pod, the teardowns that were watched up to now; they are kept with the next drain that is counted."""
        held = self._pending.setdefault(key, _Pending()).teardowns
        for pod in snapshot.pods:
            sample = samples.teardown(pod)
            if sample is not None and pod.name not in snapshot.drain_times.teardown_counted:
                held[pod.name] = sample
        return dict(held)

    async def keep(self, key: str, snapshot: Snapshot, learnt: DrainTimes) -> bool:
        """Count drains, before their pods can be gone; whether that was done. Raises `ClusterError`.

        What cannot be counted for `UNCOUNTED_SECONDS`, or at all, does not hold up the rollout: its samples are lost.
        """
        pending = self._pending.setdefault(key, _Pending())
        try:
            await self._keeper.write(Owner(snapshot.namespace, snapshot.name, snapshot.uid), learnt, snapshot.now)
        except (Denied, Rejected) as error:
            log.warning("drain times of %s are not kept: %s", key, error)
            return False
        except ClusterError as error:
            pending.failing_since = snapshot.now if pending.failing_since is None else pending.failing_since
            if snapshot.now - pending.failing_since < UNCOUNTED_SECONDS:
                raise
            log.warning("drain times of %s are not kept, going on: %s", key, error)
            return False
        pending.failing_since = None
        pending.teardowns = {
            pod: sample for pod, sample in pending.teardowns.items() if pod not in learnt.teardown_counted
        }
        return True

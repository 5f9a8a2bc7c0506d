"""What calls of a foreign drain endpoint need from the API server, read by name when it is needed."""

import base64
import binascii

from tidegate.api.errors import ClusterError, NotFound, PodTrouble
from tidegate.api.foreign import SecretKeyRef

from . import project
from .port import PODS, SECRETS, Cluster


class Lookups:
    """Reads that are too rare for a watch. Every method raises `PodTrouble` and nothing else."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def secret_value(self, namespace: str, ref: SecretKeyRef) -> str:
        """The value of one key of a Secret. It never appears in logs or errors."""
        try:
            raw = await self._cluster.get(SECRETS, namespace, ref.name)
        except NotFound as error:
            raise PodTrouble("no-header", f"Secret {ref.name} does not exist: create it") from error
        except ClusterError as error:
            raise PodTrouble("no-header", f"Secret {ref.name} cannot be read") from error
        encoded = (raw.get("data") or {}).get(ref.key)
        if not encoded:
            raise PodTrouble("no-header", f"Secret {ref.name} has no key {ref.key}: add it")
        try:
            return base64.b64decode(encoded).decode().strip()
        except (binascii.Error, UnicodeDecodeError):
            # Without the cause, which contains the value.
            raise PodTrouble("no-header", f"key {ref.key} of Secret {ref.name} is not text") from None

    async def container_run(self, namespace: str, pod: str, uid: str) -> str:
        """Identifies the current run of the serving container of this pod; empty if it is not running, or gone."""
        try:
            raw = await self._cluster.get(PODS, namespace, pod)
        except NotFound:
            return ""
        except ClusterError as error:
            raise PodTrouble("unknown", "the API server did not answer whether its container has restarted") from error
        return project.pod(raw).container.run if raw["metadata"]["uid"] == uid else ""

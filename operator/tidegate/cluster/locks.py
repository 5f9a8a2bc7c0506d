"""Whether the admission policies that protect undrained pods are in force."""

import logging
from typing import Final

from tidegate.api.errors import Denied, NotFound

from .port import POLICIES, POLICY_BINDINGS, Cluster

log = logging.getLogger(__name__)

EXPECTED: Final = (
    "tidegate-pod-delete",
    "tidegate-pod-labels",
    "tidegate-deployment",
    "tidegate-replicaset",
    "tidegate-scale",
    "tidegate-child-delete",
)


async def missing(cluster: Cluster) -> tuple[str, ...]:
    """Names of the policies of manifests/cluster that are missing, or that no binding with action Deny enforces.

    Raises `ClusterError` if the API server does not answer. If it refuses, all policies count as missing.
    """
    try:
        policies, _ = await cluster.list(POLICIES)
        bindings, _ = await cluster.list(POLICY_BINDINGS)
    except (Denied, NotFound) as error:
        log.warning("admission policies cannot be read, so all count as missing: %s", error)
        return EXPECTED
    there = {p["metadata"]["name"] for p in policies}
    denying = {b["spec"].get("policyName") for b in bindings if "Deny" in (b["spec"].get("validationActions") or [])}
    return tuple(name for name in EXPECTED if name not in there or name not in denying)

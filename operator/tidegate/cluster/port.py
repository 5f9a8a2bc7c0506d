"""The interface through which everything calls the API server.

Objects are plain dicts, as in JSON. There are two implementations: `client.ApiCluster` over HTTP, and the in-memory API
server of the simulation. Every call has a timeout. None retries by itself: the queue does. The errors are the
subclasses of `ClusterError` in `api.errors`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """One API resource: its group, version and names."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """`apiVersion` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The URL path below the server's address."""
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


LLM_SERVICES = Kind("tidegate.dev", "v1alpha1", "llmservices", "LLMService")
DEPLOYMENTS = Kind("apps", "v1", "deployments", "Deployment")
REPLICASETS = Kind("apps", "v1", "replicasets", "ReplicaSet")
PODS = Kind("", "v1", "pods", "Pod")
SERVICES = Kind("", "v1", "services", "Service")
SECRETS = Kind("", "v1", "secrets", "Secret")
CONFIG_MAPS = Kind("", "v1", "configmaps", "ConfigMap")
EVENTS = Kind("", "v1", "events", "Event")
NAMESPACES = Kind("", "v1", "namespaces", "Namespace", False)
PDBS = Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
ENDPOINT_SLICES = Kind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
POLICIES = Kind("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", False)
POLICY_BINDINGS = Kind(
    "admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", False
)
KINDS = (
    LLM_SERVICES,
    DEPLOYMENTS,
    REPLICASETS,
    PODS,
    SERVICES,
    SECRETS,
    CONFIG_MAPS,
    EVENTS,
    NAMESPACES,
    PDBS,
    ENDPOINT_SLICES,
    POLICIES,
    POLICY_BINDINGS,
)


class Cluster(Protocol):
    """What Tidegate needs from an API server. All methods raise `ClusterError` and nothing else."""

    async def list(
        self, kind: Kind, namespace: str | None = None, *, labels: str = "", chunk: int = 500
    ) -> tuple[list[Object], str]:
        """All objects that `labels`, a label selector, selects, and the resourceVersion of the list."""

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        """The object; `NotFound` if there is none."""

    async def create(self, kind: Kind, namespace: str, body: Mapping[str, Any]) -> Object:
        """Create; `Conflict` if an object of that name exists."""

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
        """Server-side apply with force: `manager` owns the fields of the body afterwards."""

    async def patch_status(
        self, kind: Kind, namespace: str, name: str, operations: Sequence[Mapping[str, Any]]
    ) -> Object:
        """`patch` of the status subresource."""

    async def patch(self, kind: Kind, namespace: str, name: str, operations: Sequence[Mapping[str, Any]]) -> Object:
        """JSON patch. A failed `test` operation raises `Conflict`, whatever status code the server answers."""

    async def delete(self, kind: Kind, namespace: str, name: str, *, uid: str) -> None:
        """Delete if the object has this uid; `NotFound` or `Conflict` if not."""

"""A real cluster as the conformance rows need it, through the operator's own client."""

import asyncio
import json
import secrets
from collections.abc import Mapping
from typing import Any, Literal

from conformance.kubernetes import Conduct, Heard, eventually
from tidegate.cluster.client import ApiCluster
from tidegate.cluster.port import NAMESPACES, PODS, Kind, Object
from tidegate.controller.runtime import WATCHED

from .service import IMAGE, pod_template

MERGE = "application/merge-patch+json"
TOLD = {"well": "", "not-ready": "never-ready", "crash": "crash-at-start"}
ENVIRONMENT: dict[str, dict[str, str]] = {
    "never-ready": {"MISBEHAVE": "never-ready"},
    "unstarted": {"ADMIN_PORT": "9999"},
    "crashing": {"MISBEHAVE": "crash-at-start"},
}


class RealKubernetes:
    """`conformance.kubernetes.Kubernetes` over a real API server."""

    def __init__(self, cluster: ApiCluster, namespace: str, name: str, made: list[str]) -> None:
        self.cluster, self.namespace, self.name = cluster, namespace, name
        self._made = made
        """Namespaces of all rows, for whoever cleans up."""
        self._watches: list[asyncio.Task[None]] = []

    async def create(self, kind: Kind, body: Mapping[str, Any]) -> Object:
        whole = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        return await self.cluster._call("create", kind.plural, kind.path(self._space(kind)), body=whole)

    async def merge(self, kind: Kind, name: str, change: Mapping[str, Any], subresource: str = "") -> Object:
        path = kind.path(self._space(kind), name, subresource or None)
        return await self.cluster._call("patch", kind.plural, path, body=dict(change), content_type=MERGE)

    async def delete(self, kind: Kind, name: str, **options: Any) -> None:
        body = {"apiVersion": "v1", "kind": "DeleteOptions", **options}
        await self.cluster._call("delete", kind.plural, kind.path(self._space(kind), name), body=body)

    async def evict(self, pod: str) -> None:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": self.namespace}}
        await self.cluster._call("create", "pods", PODS.path(self.namespace, pod, "eviction"), body=body)

    async def read(self, kind: Kind, name: str) -> Object:
        return await self.cluster.get(kind, self._space(kind), name)

    async def find(self, kind: Kind, labels: str = "") -> list[Object]:
        found, _ = await self.cluster.list(kind, self._space(kind), labels=labels)
        return found

    async def watch(self, kind: Kind) -> Heard:
        heard = Heard()
        query = {"watch": "true", "labelSelector": dict(WATCHED)[kind]}
        _, query["resourceVersion"] = await self.cluster.list(kind, labels=query["labelSelector"])
        self._watches.append(asyncio.create_task(self._listen(kind, query, heard)))
        return heard

    async def _listen(self, kind: Kind, query: dict[str, str], heard: Heard) -> None:
        api = self.cluster._api
        _, url, headers, _, _ = await api.param_serialize(
            "GET", kind.path(), query_params=list(query.items()), auth_settings=["BearerToken"]
        )
        async with api.rest_client.pool_manager.get(url, headers=headers, timeout=None) as answer:
            async for line in answer.content:
                event = json.loads(line)
                told = "DELETED" if event["type"] == "DELETED" else "SEEN"
                heard.events.append((told, event["object"]))

    def template(self, conduct: Conduct) -> Object:
        template = pod_template("/", "v1", ENVIRONMENT.get(conduct, {}), {})
        spec = template["spec"]
        del spec["volumes"], spec["containers"][0]["volumeMounts"]
        env = spec["containers"][0]["env"]
        spec["containers"][0]["env"] = [item for item in env if item["name"] != "LOG_DIR"]
        if conduct == "still":
            spec["schedulerName"] = "nobody"
        if conduct == "homeless":
            spec["nodeSelector"] = {"no-node": "has-this"}
        if conduct == "alone":
            template["metadata"]["labels"]["alone"] = self.name
            others = {"labelSelector": {"matchLabels": {"alone": self.name}}, "topologyKey": "kubernetes.io/os"}
            spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [others]}}
        if conduct == "no-image":
            spec["containers"][0]["image"] = f"{IMAGE}:never-made"
        return template

    async def behave(self, pod: str, conduct: Literal["well", "not-ready", "crash"]) -> None:
        path = f"{PODS.path(self.namespace)}/{pod}:9901/proxy/misbehave"
        await self.cluster._call("create", "pods", path, body=TOLD[conduct], content_type="text/plain")

    async def forbid_pods(self) -> None:
        kind = Kind("", "v1", "resourcequotas", "ResourceQuota")
        await self.create(kind, {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}})

        async def counted() -> bool:
            found = await self.cluster.get(kind, self.namespace, "none")
            return bool((found.get("status") or {}).get("hard"))

        await eventually("the quota counts", counted)

    async def elsewhere(self) -> "RealKubernetes":
        name = f"conformance-{secrets.token_hex(4)}"
        self._made.append(name)
        await self.create(NAMESPACES, {"metadata": {"name": name}})
        return RealKubernetes(self.cluster, name, self.name, self._made)

    def close(self) -> None:
        for task in self._watches:
            task.cancel()

    def _space(self, kind: Kind) -> str | None:
        return self.namespace if kind.namespaced else None

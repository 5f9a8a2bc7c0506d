"""The port over HTTP: one `kubernetes.aio` client, raw JSON bodies, no models, no hidden retries.

Typed models take about 2 ms per pod to decode, and drop fields that they do not know. So it uses dicts.
"""

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import aiohttp
import yaml
from kubernetes.aio import config as kube_config
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.client.exceptions import ApiException

from tidegate.api import names
from tidegate.api.errors import ClusterError, Conflict, Denied, NotFound, Rejected, Unavailable

from .port import Kind, Object

_TIMEOUT: Final = aiohttp.ClientTimeout(total=30, connect=5)
_JSON: Final = "application/json"
_APPLY: Final = "application/apply-patch+yaml"
_JSON_PATCH: Final = "application/json-patch+json"
_METHODS: Final = {"list": "GET", "get": "GET", "create": "POST", "patch": "PATCH", "delete": "DELETE"}
Seen = Callable[[str, str, str], None]
"""Called with (verb, resource, code) of each call: verb and resource as in RBAC, code `none` if there is no answer."""
_UNTYPED: Final = re.compile(r"failed to create typed patch object \(.*?\): (?:errors:)?")
"""Server-side apply answers unknown fields and fields of a wrong type with 500 and this text, not with a 4xx."""


async def connect(user_agent: str, seen: Seen | None = None) -> "ApiCluster":
    """A client that uses the pod's ServiceAccount, else KUBECONFIG or ~/.kube/config.

    Raises `ClusterError` with the remedy if there is none.
    """
    configuration = Configuration()
    try:
        if os.environ.get("KUBERNETES_SERVICE_HOST") and "KUBECONFIG" not in os.environ:
            kube_config.load_incluster_config(client_configuration=configuration)
        else:
            await kube_config.load_kube_config(client_configuration=configuration)
    except (kube_config.ConfigException, OSError) as error:
        raise ClusterError(
            f"no access to a cluster: {error}. Run inside a cluster with a ServiceAccount, or set KUBECONFIG"
        ) from error
    except (yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError) as error:
        # The library raises any of these for a file that is not a kubeconfig.
        raise ClusterError(
            "no access to a cluster: the kubeconfig is invalid or truncated. Set KUBECONFIG to a valid one"
        ) from error
    configuration.connection_pool_maxsize = 50
    api = ApiClient(configuration=configuration)
    api.user_agent = user_agent
    return ApiCluster(api, seen)


class ApiCluster:
    """Implements `Cluster` with a real API server. Close it after use."""

    def __init__(self, api: ApiClient, seen: Seen | None = None) -> None:
        self._api, self._seen = api, seen or (lambda *_: None)

    async def close(self) -> None:
        """Close all connections."""
        await self._api.close()

    async def list(
        self, kind: Kind, namespace: str | None = None, *, labels: str = "", chunk: int = 500
    ) -> tuple[list[Object], str]:
        """LIST, in pages of `chunk` objects."""
        items: list[Object] = []
        query = {"limit": str(chunk)}
        if labels:
            query["labelSelector"] = labels
        while True:
            page = await self._call("list", kind.plural, kind.path(namespace), query=query)
            for item in page.get("items") or []:
                # The items of a list lack both; the code that uses them relies on both.
                item.setdefault("apiVersion", kind.api_version)
                item.setdefault("kind", kind.kind)
                items.append(item)
            meta = page.get("metadata") or {}
            if not meta.get("continue"):
                return items, str(meta.get("resourceVersion", ""))
            query["continue"] = meta["continue"]

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        """GET by name."""
        return await self._call("get", kind.plural, kind.path(namespace, name))

    async def create(self, kind: Kind, namespace: str, body: Mapping[str, Any]) -> Object:
        """POST."""
        return await self._call("create", kind.plural, kind.path(namespace), body=body)

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
        """PATCH as server-side apply, with force."""
        query = {"fieldManager": manager, "force": "true"}
        if dry_run:
            query["dryRun"] = "All"
        path = kind.path(namespace, name)
        return await self._call("patch", kind.plural, path, query=query, body=body, content_type=_APPLY)

    async def patch_status(
        self, kind: Kind, namespace: str, name: str, operations: Sequence[Mapping[str, Any]]
    ) -> Object:
        """PATCH of the status subresource, as a JSON patch.

        Not server-side apply: it refuses fields that an older CRD lacks, which a JSON patch prunes. Not a merge patch:
        the status of a custom resource ignores the uid in it.
        """
        query = {"fieldManager": names.FIELD_MANAGER_STATUS}
        return await self._patch(f"{kind.plural}/status", kind.path(namespace, name, "status"), operations, query)

    async def patch(self, kind: Kind, namespace: str, name: str, operations: Sequence[Mapping[str, Any]]) -> Object:
        """PATCH as a JSON patch."""
        return await self._patch(kind.plural, kind.path(namespace, name), operations)

    async def _patch(
        self,
        resource: str,
        path: str,
        operations: Sequence[Mapping[str, Any]],
        query: Mapping[str, str] | None = None,
    ) -> Object:
        try:
            return await self._call(
                "patch", resource, path, query=query, body=list(operations), content_type=_JSON_PATCH
            )
        except Rejected as error:
            # A failed `test` is answered with 422 "the server rejected our request due to an error in our request"
            # without causes; for an invalid result the causes name fields.
            if error.causes:
                raise
            raise Conflict(f"{path} changed in the meantime: {error}") from error

    async def delete(self, kind: Kind, namespace: str, name: str, *, uid: str) -> None:
        """DELETE with the uid as precondition."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        await self._call("delete", kind.plural, kind.path(namespace, name), body=body)

    async def _call(
        self,
        verb: str,
        resource: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = _JSON,
    ) -> Object:
        try:
            status, data, headers = await self._exchange(_METHODS[verb], path, query or {}, body, content_type)
        except Unavailable:
            self._seen(verb, resource, "none")
            raise
        self._seen(verb, resource, str(status))
        if status >= 400:
            raise _error(status, data, headers)
        try:
            return dict(json.loads(data)) if data else {}
        except (ValueError, TypeError) as error:
            raise Unavailable("the API server's answer is not a JSON object") from error

    async def _exchange(
        self, method: str, path: str, query: Mapping[str, str], body: Any, content_type: str
    ) -> tuple[int, Any, Mapping[str, str] | None]:
        """Status, body and headers of any answer. Raises `Unavailable` if there is none."""
        headers = {"Accept": _JSON, "Content-Type": content_type}
        try:
            method, url, headers, body, _ = await self._api.param_serialize(
                method,
                path,
                query_params=list(query.items()),
                header_params=headers,
                body=body,
                auth_settings=["BearerToken"],
            )
            response = await self._api.rest_client.request(
                method, url, headers=headers, body=body, _request_timeout=_TIMEOUT
            )
            return response.status, await response.read(), response.headers
        except ApiException as error:
            if not error.status:
                raise Unavailable("no answer from the API server") from error
            return int(error.status), error.body, error.headers
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise Unavailable(f"no answer from the API server: {type(error).__name__}") from error


def _error(status: int, body: Any, headers: Mapping[str, str] | None) -> ClusterError:
    try:
        document = json.loads(body) if body else {}
    except ValueError:
        document = {}
    document = document if isinstance(document, dict) else {}
    message = str(document.get("message") or f"HTTP {status}")
    if status == 404:
        return NotFound(message)
    if status == 409:
        return Conflict(message)
    if status in (401, 403):
        return Denied(message)
    if status in (400, 413, 422):
        details = document.get("details") or {}
        causes = [(str(c.get("field", "")), str(c.get("message", ""))) for c in details.get("causes") or []]
        return Rejected(message, causes)
    untyped = _UNTYPED.match(message)
    if untyped is not None:
        return Rejected(message, _untyped_causes(message[untyped.end() :]))
    wait = (headers or {}).get("Retry-After")
    return Unavailable(message, float(wait) if wait and wait.isdigit() else None)


def _untyped_causes(text: str) -> list[tuple[str, str]]:
    """(field, message) of each line like `.spec.template.spec.volumez: field not declared in schema`."""
    lines = (line.strip() for line in text.splitlines())
    found = (line.lstrip(".").partition(": ") for line in lines if line)
    # What follows "got" is the value in the Go syntax of the API server.
    return [(field, message.partition(", got &value")[0]) for field, _, message in found]

"""A real API server for tests: plain JSON calls, kubectl, and waiting for what must come.

KUBECTL says how to reach the cluster (absent: `dev/cluster kubectl`).
"""

import os
import secrets
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx

from tidegate.api.names import SERVICE

CHECKOUT = Path(__file__).resolve().parents[1]
KUBECTL = shlex.split(os.environ.get("KUBECTL", f"{CHECKOUT}/dev/cluster kubectl"))
IMAGE = os.environ.get("TIDEGATE_TEST_IMAGE", "tidegate.dev/pause:1")
"""An image that runs until SIGTERM."""
PATIENCE_SECONDS = 120  # until a condition must hold; a bound for a hung cluster, no claim about speed
PODS = "api/v1/namespaces/{}/pods"
DEPLOYMENTS = "apis/apps/v1/namespaces/{}/deployments"
REPLICASETS = "apis/apps/v1/namespaces/{}/replicasets"
BUDGETS = "apis/policy/v1/namespaces/{}/poddisruptionbudgets"
CONFIGMAPS = "api/v1/namespaces/{}/configmaps"
POLICIES = "apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
COLLECTIONS = {"Pod": PODS, "Deployment": DEPLOYMENTS, "ReplicaSet": REPLICASETS}
Object = dict[str, Any]


def kubectl(*args: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*KUBECTL, *args], input=stdin, capture_output=True, text=True, timeout=PATIENCE_SECONDS)


class Api:
    """JSON over `kubectl proxy` on a unix socket: no credentials to parse, and the cluster may be in any network."""

    def __init__(self, socket: str) -> None:
        self._http = httpx.Client(transport=httpx.HTTPTransport(uds=socket), base_url="http://localhost", timeout=60)

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> httpx.Response:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        return self._http.request(method, f"/{path}", json=body, headers={"Content-Type": kind})

    def must(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Object:
        answer = self.call(method, path, body)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return dict(answer.json())

    def exists(self, path: str) -> bool:
        return self.call("GET", path).status_code != httpx.codes.NOT_FOUND

    def close(self) -> None:
        self._http.close()


def eventually(what: str, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited {PATIENCE_SECONDS} s in vain: {what}"
        time.sleep(0.2)


def new_namespace(api: Api) -> str:
    name = f"policies-{secrets.token_hex(4)}"
    api.must("POST", "api/v1/namespaces", {"metadata": {"name": name}})
    eventually("the default ServiceAccount", lambda: api.exists(f"api/v1/namespaces/{name}/serviceaccounts/default"))
    return name


def in_force(api: Api, namespace: str) -> bool:
    """Whether the API server has taken up the policies, about a second after they were applied.

    Tried on the scale policy: its binding is applied last, and a watch keeps the order.
    """
    labels = {SERVICE: "probe"}
    template = {"metadata": {"labels": labels}, "spec": pod_spec()}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    path = DEPLOYMENTS.format(namespace)
    if not api.exists(f"{path}/probe"):
        api.must("POST", path, {"metadata": {"name": "probe", "labels": labels}, "spec": spec})
    answer = api.call("PATCH", f"{path}/probe/scale?dryRun=All", {"spec": {"replicas": 1}})
    return answer.status_code == httpx.codes.FORBIDDEN


def pod_spec(**container: Any) -> Object:
    return {
        "terminationGracePeriodSeconds": 5,
        "containers": [{"name": "server", "image": IMAGE, "imagePullPolicy": "IfNotPresent", **container}],
    }

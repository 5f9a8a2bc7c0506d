"""The admission policies on a real API server: the decision table row by row, then the commands and controllers
that meet them in life.

KUBECTL says how to reach the cluster (absent: `dev/cluster kubectl`), TIDEGATE_TEST_IMAGE names an image that runs
until SIGTERM. Everything happens in namespaces of this module's own, which go in the end.
"""

import json
import os
import secrets
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pytest

from policy_table import TABLE, UID, Delete, Row
from tidegate.api.names import (
    SERVICE,
    SERVING,
    STATE,
)

CHECKOUT = Path(__file__).resolve().parents[2]
KUBECTL = shlex.split(os.environ.get("KUBECTL", f"{CHECKOUT}/dev/cluster kubectl"))
IMAGE = os.environ.get("TIDEGATE_TEST_IMAGE", "tidegate/pause:1")
PATIENCE_SECONDS = 120  # until a condition must hold; a bound for a hung cluster, no claim about speed
PODS = "api/v1/namespaces/{}/pods"
DEPLOYMENTS = "apis/apps/v1/namespaces/{}/deployments"
REPLICASETS = "apis/apps/v1/namespaces/{}/replicasets"
BUDGETS = "apis/policy/v1/namespaces/{}/poddisruptionbudgets"
CONFIGMAPS = "api/v1/namespaces/{}/configmaps"
POLICIES = "apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
COLLECTIONS = {"Pod": PODS, "Deployment": DEPLOYMENTS, "ReplicaSet": REPLICASETS}
FINALIZER = "tidegate.dev/test"
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


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    with TemporaryDirectory() as directory:
        socket = f"{directory}/api.sock"
        proxy = subprocess.Popen([*KUBECTL, "proxy", f"--unix-socket={socket}"], stdout=subprocess.DEVNULL)
        try:
            eventually("kubectl proxy", lambda: proxy.poll() is not None or Path(socket).exists())
            assert proxy.poll() is None, "kubectl proxy ended: is there a cluster? dev/cluster up"
            client = Api(socket)
            yield client
            client.close()
        finally:
            proxy.terminate()
            proxy.wait(timeout=30)


@pytest.fixture(scope="module", autouse=True)
def policies(api: Api) -> None:
    """The shipped policies, in force: the API server has seen their present generation and refuses something."""
    applied = kubectl("apply", "--server-side", "--force-conflicts", "-k", str(CHECKOUT / "manifests/cluster"))
    assert applied.returncode == 0, applied.stderr


def _new_namespace(api: Api) -> str:
    name = f"policies-{secrets.token_hex(4)}"
    api.must("POST", "api/v1/namespaces", {"metadata": {"name": name}})
    eventually("the default ServiceAccount", lambda: api.exists(f"api/v1/namespaces/{name}/serviceaccounts/default"))
    return name


def _in_force(api: Api, namespace: str) -> bool:
    """Whether a pod that must be held is: a policy takes about a second from its creation until it counts."""
    template = {"metadata": {"name": "probe", "labels": {SERVICE: "probe", STATE: "drained"}}, "spec": _spec()}
    path = PODS.format(namespace)
    if not api.exists(f"{path}/probe"):
        api.must("POST", path, template)
    body = {"metadata": {"labels": {STATE: SERVING}}}
    return api.call("PATCH", f"{path}/probe?dryRun=All", body).status_code == httpx.codes.FORBIDDEN


@pytest.fixture(scope="module")
def namespace(api: Api, policies: None) -> Iterator[str]:
    name = _new_namespace(api)
    try:
        eventually("the policies in force", lambda: _in_force(api, name))
        yield name
    finally:
        api.call("DELETE", f"api/v1/namespaces/{name}")
        eventually(f"namespace {name} gone", lambda: not api.exists(f"api/v1/namespaces/{name}"))


# -- the table


@dataclass(frozen=True, slots=True)
class Placed:
    """An object of the table as it stands in the API server."""

    path: str
    uid: str


def _own(given: Mapping[str, Any], row: Row) -> Object:
    """The object with a label of its own in every selector, so that no controller adopts another row's pods."""
    own = deepcopy(dict(given))
    mark = {"row": f"r{TABLE.index(row)}"}
    own["metadata"] |= {"name": f"row-{TABLE.index(row)}"} | ({"finalizers": [FINALIZER]} if row.terminating else {})
    if "template" in own["spec"]:
        own["spec"]["selector"]["matchLabels"] |= mark
        own["spec"]["template"]["metadata"]["labels"] |= mark
        own["metadata"]["labels"] |= mark
    return own


def _place(api: Api, namespace: str, row: Row) -> Placed:
    own = _own(row.given, row)
    status = own.pop("status", None)
    collection = COLLECTIONS[own["kind"]].format(namespace)
    stored = api.must("POST", collection, own)
    placed = Placed(f"{collection}/{stored['metadata']['name']}", stored["metadata"]["uid"])
    if status:
        # A DisruptionTarget older than two minutes is reset by the disruption controller, and no time at all is older.
        for condition in status.get("conditions", []):
            condition["lastTransitionTime"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        api.must("PATCH", f"{placed.path}/status", {"status": status})
    if row.terminating:
        # As the garbage collector deletes: the one form that passes for every row.
        options = {"propagationPolicy": "Background", "preconditions": {"uid": placed.uid}}
        api.must("DELETE", placed.path, options)
        assert "deletionTimestamp" in api.must("GET", placed.path)["metadata"]
    return placed


def _send(api: Api, placed: Placed, row: Row) -> httpx.Response:
    if isinstance(row.request, Delete):
        options = json.loads(json.dumps(dict(row.request.options)).replace(UID, placed.uid))
        return api.call("DELETE", placed.path, options)
    path = f"{placed.path}/{row.request.subresource}" if row.request.subresource else placed.path
    return api.call("PATCH", path, row.request.body)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.policy}: {row.name}")
def test_table(api: Api, namespace: str, row: Row) -> None:
    placed = _place(api, namespace, row)
    try:
        answer = _send(api, placed, row)
        if row.refused is None:
            assert answer.is_success, answer.text
        else:
            assert answer.status_code == httpx.codes.FORBIDDEN, answer.text
            message = answer.json()["message"]
            assert f"'{row.policy}'" in message
            assert row.refused in message
    finally:
        if row.terminating:
            api.must("PATCH", placed.path, {"metadata": {"finalizers": None}})


def test_policies_type_check(api: Api) -> None:
    """A misspelt field would otherwise show only as a refusal of everything, at the first use."""
    policies = [item for item in api.must("GET", POLICIES)["items"] if item["metadata"]["name"].startswith("tidegate-")]
    assert {item["metadata"]["name"] for item in policies} == {row.policy for row in TABLE}
    for policy in policies:
        name = policy["metadata"]["name"]
        eventually(
            f"type check of {name}",
            lambda name=name: "typeChecking" in api.must("GET", f"{POLICIES}/{name}").get("status", {}),
        )
        assert api.must("GET", f"{POLICIES}/{name}")["status"]["typeChecking"] == {}


# -- life: a revision's Deployment with running pods


def _spec() -> Object:
    return {
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "server", "image": IMAGE, "imagePullPolicy": "IfNotPresent"}],
    }

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
    CONTAINER,
    DELETION_COST,
    DRAINED,
    LOWEST_COST,
    RELEASE,
    REPLICAS,
    REVISION,
    SERVICE,
    SERVING,
    SOURCE,
    STATE,
)

CHECKOUT = Path(__file__).resolve().parents[2]
KUBECTL = shlex.split(os.environ.get("KUBECTL", f"{CHECKOUT}/dev/cluster kubectl"))
IMAGE = os.environ.get("TIDEGATE_TEST_IMAGE", "tidegate.dev/pause:1")
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


@dataclass(frozen=True, slots=True)
class Revision:
    """A child Deployment as the operator keeps it, with all its pods running."""

    api: Api
    namespace: str
    service: str

    @property
    def path(self) -> str:
        return f"{DEPLOYMENTS.format(self.namespace)}/{self.service}"

    def pods(self) -> list[Object]:
        selector = f"labelSelector={SERVICE}%3D{self.service}"
        found = self.api.must("GET", f"{PODS.format(self.namespace)}?{selector}")["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def names(self) -> set[str]:
        return {pod["metadata"]["name"] for pod in self.pods()}

    def replicaset(self) -> Object:
        selector = f"labelSelector={SERVICE}%3D{self.service}"
        (only,) = self.api.must("GET", f"{REPLICASETS.format(self.namespace)}?{selector}")["items"]
        return dict(only)

    def pod_path(self, name: str) -> str:
        return f"{PODS.format(self.namespace)}/{name}"

    def count(self, replicas: int) -> None:
        """Set the replicas as the operator does, in both places."""
        annotations = {REPLICAS: str(replicas)}
        self.api.must("PATCH", self.path, {"spec": {"replicas": replicas}, "metadata": {"annotations": annotations}})

    def label(self, name: str, state: str) -> None:
        body = {"metadata": {"labels": {STATE: state}, "annotations": {DELETION_COST: LOWEST_COST}}}
        self.api.must("PATCH", self.pod_path(name), body)

    def kubectl(self, *args: str) -> subprocess.CompletedProcess[str]:
        return kubectl("-n", self.namespace, *args)


def _spec(**container: Any) -> Object:
    return {
        "terminationGracePeriodSeconds": 5,
        "containers": [{"name": "server", "image": IMAGE, "imagePullPolicy": "IfNotPresent", **container}],
    }


def _deployment(service: str, replicas: int, owners: list[Object], **container: Any) -> Object:
    labels = {SERVICE: service, REVISION: "0123456789"}
    template = {
        "metadata": {"labels": labels | {STATE: SERVING}, "annotations": {CONTAINER: "server"}},
        "spec": _spec(**container),
    }
    annotations = {REPLICAS: str(replicas), SOURCE: "{}"}
    return {
        "metadata": {"name": service, "labels": labels, "annotations": annotations, "ownerReferences": owners},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


def _launch(api: Api, namespace: str, service: str, replicas: int, **more: Any) -> Revision:
    api.must("POST", DEPLOYMENTS.format(namespace), _deployment(service, replicas, more.pop("owners", []), **more))
    revision = Revision(api, namespace, service)
    eventually(f"{replicas} pods of {service}", lambda: len(revision.pods()) == replicas)
    return revision


def _running(revision: Revision) -> Revision:
    eventually(f"pods of {revision.service} started", lambda: all(_started(pod) for pod in revision.pods()))
    return revision


def _started(pod: Object) -> bool:
    statuses = pod["status"].get("containerStatuses", [])
    return pod["status"]["phase"] == "Running" and any(status.get("started") for status in statuses)


@pytest.fixture(scope="module")
def held(api: Api, namespace: str) -> Revision:
    """Two running pods that every test leaves as they are."""
    return _running(_launch(api, namespace, "held", 2))


FORBIDDEN_COMMANDS = {
    "delete pod": ("delete pod {pod}", "kubectl annotate pod {pod} tidegate.dev/release='your reason'"),
    "delete pod by force": ("delete pod {pod} --force --grace-period=0", "may hold requests"),
    "delete all pods of the service": ("delete pods -l tidegate.dev/service=held", "may hold requests"),
    "scale": ("scale deployment held --replicas=1", "kubectl scale llmservice held --replicas=N"),
    "scale the ReplicaSet": ("scale replicaset {rs} --replicas=1", "kubectl scale llmservice held --replicas=N"),
    "patch replicas": ('patch deployment held -p {{"spec":{{"replicas":1}}}}', "kubectl scale llmservice held"),
    "annotate replicas": ("annotate deployment held tidegate.dev/replicas=9 --overwrite", "kubectl scale llmservice"),
    "patch the ReplicaSet": ('patch replicaset {rs} -p {{"spec":{{"replicas":1}}}}', "kubectl scale llmservice held"),
    "set image": ("set image deployment held server=other:2", "Edit spec.template of LLMService held"),
    "set env": ("set env deployment held A=b", "Edit spec.template of LLMService held"),
    "set image of the ReplicaSet": (
        "set image replicaset {rs} server=other:2",
        "Edit spec.template of LLMService held",
    ),
    "rollout restart": ("rollout restart deployment held", "set spec.rollout.restartedAt there"),
    "delete the Deployment": ("delete deployment held", "kubectl delete llmservice held"),
    "delete the Deployment, orphaning": ("delete deployment held --cascade=orphan", "kubectl delete llmservice held"),
    "delete the Deployment in the foreground": (
        "delete deployment held --cascade=foreground",
        "delete llmservice held",
    ),
    "delete the ReplicaSet": ("delete replicaset {rs}", "kubectl delete llmservice held"),
    "take a pod out": ("label pod {pod} tidegate.dev/revision-", "stay as they are"),
    "unlock a pod": ("label pod {pod} tidegate.dev/state-", "serving, draining or drained"),
    "unlabel the Deployment": ("label deployment held tidegate.dev/service-", "stay as they are"),
}


@pytest.mark.parametrize("command", FORBIDDEN_COMMANDS)
def test_commands_are_refused_with_the_remedy(held: Revision, command: str) -> None:
    before = {pod["metadata"]["uid"] for pod in held.pods()}
    names = {"pod": sorted(held.names())[0], "rs": held.replicaset()["metadata"]["name"]}
    line, remedy = (text.format(**names) for text in FORBIDDEN_COMMANDS[command])
    done = held.kubectl(*line.split())
    assert done.returncode != 0, done.stdout
    assert "forbidden" in done.stderr.lower()
    assert remedy in done.stderr
    assert {pod["metadata"]["uid"] for pod in held.pods()} == before


def test_rollout_undo_finds_nothing_to_undo(held: Revision) -> None:
    """One revision's Deployment has one ReplicaSet: kubectl itself ends before it would write."""
    done = held.kubectl("rollout", "undo", "deployment", "held")
    assert done.returncode != 0
    assert "no rollout history" in done.stderr


def test_harmless_commands_pass(held: Revision) -> None:
    name = sorted(held.names())[0]
    for line in (f"label pod {name} note=x", f"annotate pod {name} note=x", "annotate deployment held note=x"):
        done = held.kubectl(*line.split())
        assert done.returncode == 0, done.stderr


def test_replicaset_deletes_the_drained_pod_and_no_other(api: Api, namespace: str) -> None:
    revision = _running(_launch(api, namespace, "lowered", 3))
    before = revision.names()
    revision.count(2)

    def denied() -> bool:
        conditions = revision.replicaset()["status"].get("conditions", [])
        return any(c["type"] == "ReplicaFailure" and "may hold requests" in c["message"] for c in conditions)

    eventually("the ReplicaSet's own delete refused", denied)
    assert revision.names() == before
    victim = sorted(before)[1]
    revision.label(victim, DRAINED)
    eventually("the drained pod deleted", lambda: victim not in revision.names())
    eventually("two pods counted", lambda: revision.replicaset()["status"]["replicas"] == 2)
    assert revision.names() == before - {victim}


def test_eviction_is_the_budgets_matter(api: Api, namespace: str) -> None:
    """Held by the budget until the label says drained; a budget that allows it lets a serving pod be evicted."""
    revision = _running(_launch(api, namespace, "evicted", 2))
    undrained = {"key": STATE, "operator": "In", "values": ["serving", "draining"]}
    selector = {"matchLabels": {SERVICE: "evicted"}, "matchExpressions": [undrained]}
    budget = f"{BUDGETS.format(namespace)}/evicted"
    api.must(
        "POST",
        BUDGETS.format(namespace),
        {"metadata": {"name": "evicted"}, "spec": {"minAvailable": 2147483647, "selector": selector}},
    )

    def observed() -> bool:
        found = api.must("GET", budget)
        status = found.get("status", {})
        return bool(status.get("observedGeneration") == found["metadata"]["generation"] and status["expectedPods"] == 2)

    def evict(name: str) -> int:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
        return api.call("POST", f"{revision.pod_path(name)}/eviction", body).status_code

    eventually("the budget observed", observed)
    eventually("both pods Ready", lambda: api.must("GET", budget)["status"]["currentHealthy"] == 2)
    first, second = sorted(revision.names())
    assert evict(first) == evict(second) == httpx.codes.TOO_MANY_REQUESTS
    revision.label(first, DRAINED)
    assert evict(second) == httpx.codes.TOO_MANY_REQUESTS
    assert evict(first) == httpx.codes.CREATED
    eventually("a replacement", lambda: len(revision.pods()) == 2 and first not in revision.names())
    _running(revision)
    api.must("PATCH", budget, {"spec": {"minAvailable": 1}})
    eventually("one disruption allowed", lambda: api.must("GET", budget)["status"]["disruptionsAllowed"] == 1)
    assert evict(second) == httpx.codes.CREATED


def test_unstarted_pod_goes(api: Api, namespace: str) -> None:
    """A startup probe that never succeeds: the container runs, and nothing can have been sent to it."""
    probe = {"httpGet": {"path": "/", "port": 9}, "periodSeconds": 1, "failureThreshold": 10000}
    revision = _launch(api, namespace, "starting", 1, startupProbe=probe)
    (name,) = revision.names()
    eventually("the pod Running", lambda: api.must("GET", revision.pod_path(name))["status"]["phase"] == "Running")
    done = revision.kubectl("delete", "pod", name, "--wait=false")
    assert done.returncode == 0, done.stderr
    eventually("a replacement", lambda: len(revision.pods()) == 1 and name not in revision.names())


def test_released_pod_goes(api: Api, namespace: str) -> None:
    revision = _running(_launch(api, namespace, "released", 1))
    (name,) = revision.names()
    assert revision.kubectl("delete", "pod", name, "--wait=false").returncode != 0
    assert revision.kubectl("annotate", "pod", name, f"{RELEASE}=node is burning").returncode == 0
    done = revision.kubectl("delete", "pod", name, "--wait=false")
    assert done.returncode == 0, done.stderr
    eventually("a replacement", lambda: len(revision.pods()) == 1 and name not in revision.names())


def test_garbage_collector_passes(api: Api, namespace: str) -> None:
    """The owner stands for the LLMService: when it is deleted, its Deployment, ReplicaSet and pods go, undrained."""
    metadata = api.must("POST", CONFIGMAPS.format(namespace), {"metadata": {"name": "owner"}})["metadata"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": metadata["uid"], "controller": True}
    revision = _running(_launch(api, namespace, "owned", 2, owners=[owner]))
    replicaset = f"{REPLICASETS.format(namespace)}/{revision.replicaset()['metadata']['name']}"
    api.must("DELETE", f"{CONFIGMAPS.format(namespace)}/owner", {"propagationPolicy": "Background"})
    eventually("the Deployment gone", lambda: not api.exists(revision.path))
    eventually("the ReplicaSet gone", lambda: not api.exists(replicaset))
    eventually("the pods gone", lambda: revision.names() == set())


def test_namespace_goes(api: Api, policies: None) -> None:
    """Deleted at once, with pods that nobody drains: the namespace's deletion is not stuck on a lock."""
    name = _new_namespace(api)
    try:
        eventually("the policies in force", lambda: _in_force(api, name))
        revision = _running(_launch(api, name, "doomed", 2))
        assert revision.kubectl("delete", "pods", "--all", "--wait=false").returncode != 0
    finally:
        api.must("DELETE", f"api/v1/namespaces/{name}")
        eventually("the namespace gone", lambda: not api.exists(f"api/v1/namespaces/{name}"))

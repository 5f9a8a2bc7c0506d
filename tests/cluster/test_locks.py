"""The locks among the commands and controllers of a real cluster: what they stop, and what has to get past them."""

import subprocess
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from cluster.harness import policies
from cluster.harness.kube import BUDGETS, CONFIGMAPS, DEPLOYMENTS, PODS, REPLICASETS, Kube, Object, eventually
from tidegate.api.conditions import PodState
from tidegate.api.names import (
    CONTAINER,
    DELETION_COST,
    LOWEST_COST,
    RELEASE,
    REPLICAS,
    REVISION,
    SERVICE,
    SOURCE,
    STATE,
)

SERVING, DRAINED = PodState.SERVING.value, PodState.DRAINED.value


@dataclass(frozen=True, slots=True)
class Revision:
    """A child Deployment as the operator keeps it, with all its pods running."""

    kube: Kube
    namespace: str
    service: str

    @property
    def path(self) -> str:
        return f"{DEPLOYMENTS.format(self.namespace)}/{self.service}"

    @property
    def selector(self) -> str:
        return f"{SERVICE}={self.service}"

    def pods(self) -> list[Object]:
        found = self.kube.items(PODS.format(self.namespace), labelSelector=self.selector)
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def names(self) -> set[str]:
        return {pod["metadata"]["name"] for pod in self.pods()}

    def replicaset(self) -> Object:
        (only,) = self.kube.items(REPLICASETS.format(self.namespace), labelSelector=self.selector)
        return only

    def pod_path(self, name: str) -> str:
        return f"{PODS.format(self.namespace)}/{name}"

    def count(self, replicas: int) -> None:
        """Set the replicas as the operator does, in both places."""
        annotations = {REPLICAS: str(replicas)}
        self.kube.request(
            "PATCH", self.path, {"spec": {"replicas": replicas}, "metadata": {"annotations": annotations}}
        )

    def label(self, name: str, state: str) -> None:
        body = {"metadata": {"labels": {STATE: state}, "annotations": {DELETION_COST: LOWEST_COST}}}
        self.kube.request("PATCH", self.pod_path(name), body)

    def kubectl(self, *args: str) -> subprocess.CompletedProcess[str]:
        return self.kube.kubectl("-n", self.namespace, *args)


def _deployment(service: str, replicas: int, owners: list[Object], **container: Any) -> Object:
    labels = {SERVICE: service, REVISION: "0123456789"}
    template = {
        "metadata": {"labels": labels | {STATE: SERVING}, "annotations": {CONTAINER: "server"}},
        "spec": policies.pod_spec(**container),
    }
    annotations = {REPLICAS: str(replicas), SOURCE: "{}"}
    return {
        "metadata": {"name": service, "labels": labels, "annotations": annotations, "ownerReferences": owners},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


def _launch(kube: Kube, namespace: str, service: str, replicas: int, **more: Any) -> Revision:
    kube.request("POST", DEPLOYMENTS.format(namespace), _deployment(service, replicas, more.pop("owners", []), **more))
    revision = Revision(kube, namespace, service)
    eventually(f"{replicas} pods of {service}", lambda: len(revision.pods()) == replicas)
    return revision


def _running(revision: Revision) -> Revision:
    eventually(f"pods of {revision.service} started", lambda: all(_started(pod) for pod in revision.pods()))
    return revision


def _started(pod: Object) -> bool:
    statuses = pod["status"].get("containerStatuses", [])
    return pod["status"]["phase"] == "Running" and any(status.get("started") for status in statuses)


@pytest.fixture(scope="module")
def held(kube: Kube, policed_namespace: str) -> Revision:
    """Two running pods that every test leaves as they are."""
    return _running(_launch(kube, policed_namespace, "held", 2))


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
    "take a pod out": ("label pod {pod} tidegate.dev/revision-", "cannot be changed"),
    "unlock a pod": ("label pod {pod} tidegate.dev/state-", "serving, draining or drained"),
    "unlabel the Deployment": ("label deployment held tidegate.dev/service-", "cannot be changed"),
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


def test_replicaset_deletes_the_drained_pod_and_no_other(kube: Kube, policed_namespace: str) -> None:
    revision = _running(_launch(kube, policed_namespace, "lowered", 3))
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


def test_eviction_is_the_budgets_matter(kube: Kube, policed_namespace: str) -> None:
    """Held by the budget until the label says drained; a budget that allows it lets a serving pod be evicted."""
    revision = _running(_launch(kube, policed_namespace, "evicted", 2))
    undrained = {"key": STATE, "operator": "In", "values": ["serving", "draining"]}
    selector = {"matchLabels": {SERVICE: "evicted"}, "matchExpressions": [undrained]}
    budget = f"{BUDGETS.format(policed_namespace)}/evicted"
    kube.request(
        "POST",
        BUDGETS.format(policed_namespace),
        {"metadata": {"name": "evicted"}, "spec": {"minAvailable": 2147483647, "selector": selector}},
    )

    def observed() -> bool:
        found = kube.request("GET", budget)
        status = found.get("status", {})
        return bool(status.get("observedGeneration") == found["metadata"]["generation"] and status["expectedPods"] == 2)

    def evict(name: str) -> int:
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": policed_namespace},
        }
        return kube.call("POST", f"{revision.pod_path(name)}/eviction", body).status_code

    eventually("the budget observed", observed)
    eventually("both pods Ready", lambda: kube.request("GET", budget)["status"]["currentHealthy"] == 2)
    first, second = sorted(revision.names())
    assert evict(first) == evict(second) == httpx.codes.TOO_MANY_REQUESTS
    revision.label(first, DRAINED)
    assert evict(second) == httpx.codes.TOO_MANY_REQUESTS
    assert evict(first) == httpx.codes.CREATED
    eventually("a replacement", lambda: len(revision.pods()) == 2 and first not in revision.names())
    _running(revision)
    kube.request("PATCH", budget, {"spec": {"minAvailable": 1}})
    eventually("one disruption allowed", lambda: kube.request("GET", budget)["status"]["disruptionsAllowed"] == 1)
    assert evict(second) == httpx.codes.CREATED


def test_unstarted_pod_goes(kube: Kube, policed_namespace: str) -> None:
    """A startup probe that never succeeds: the container runs, and nothing can have been sent to it."""
    probe = {"httpGet": {"path": "/", "port": 9}, "periodSeconds": 1, "failureThreshold": 10000}
    revision = _launch(kube, policed_namespace, "starting", 1, startupProbe=probe)
    (name,) = revision.names()
    eventually("the pod Running", lambda: kube.request("GET", revision.pod_path(name))["status"]["phase"] == "Running")
    done = revision.kubectl("delete", "pod", name, "--wait=false")
    assert done.returncode == 0, done.stderr
    eventually("a replacement", lambda: len(revision.pods()) == 1 and name not in revision.names())


def test_released_pod_goes(kube: Kube, policed_namespace: str) -> None:
    revision = _running(_launch(kube, policed_namespace, "released", 1))
    (name,) = revision.names()
    assert revision.kubectl("delete", "pod", name, "--wait=false").returncode != 0
    assert revision.kubectl("annotate", "pod", name, f"{RELEASE}=node is burning").returncode == 0
    done = revision.kubectl("delete", "pod", name, "--wait=false")
    assert done.returncode == 0, done.stderr
    eventually("a replacement", lambda: len(revision.pods()) == 1 and name not in revision.names())


@pytest.mark.parametrize("cascade", ["Background", "Foreground"])
def test_garbage_collector_passes(kube: Kube, policed_namespace: str, cascade: str) -> None:
    """The owner stands for the LLMService: when it is deleted, its Deployment, ReplicaSet and pods go, undrained."""
    name = f"owned-{cascade.lower()}"
    metadata = kube.request("POST", CONFIGMAPS.format(policed_namespace), {"metadata": {"name": name}})["metadata"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": metadata["uid"], "controller": True}
    revision = _running(_launch(kube, policed_namespace, name, 2, owners=[owner]))
    replicaset = f"{REPLICASETS.format(policed_namespace)}/{revision.replicaset()['metadata']['name']}"
    kube.request("DELETE", f"{CONFIGMAPS.format(policed_namespace)}/{name}", {"propagationPolicy": cascade})
    eventually("the Deployment gone", lambda: kube.get(revision.path) is None)
    eventually("the ReplicaSet gone", lambda: kube.get(replicaset) is None)
    eventually("the pods gone", lambda: revision.names() == set())


def test_namespace_goes(kube: Kube) -> None:
    """Deleted at once, with pods that nobody drains: the namespace's deletion is not stuck on a lock."""
    policies.install(kube)
    with policies.policed_namespace(kube) as name:
        revision = _running(_launch(kube, name, "doomed", 2))
        assert revision.kubectl("delete", "pods", "--all", "--wait=false").returncode != 0

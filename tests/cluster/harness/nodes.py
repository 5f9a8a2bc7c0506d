"""What becomes of pods whose node is lost, without the loss of a node."""

from datetime import UTC, datetime

from cluster.harness.kube import PODS, Object
from cluster.harness.service import Service


def vanish(pod: Object, service: Service) -> None:
    """As the control plane takes a pod of a node that is dead: without asking it, and with no time for its streams."""
    kube, path = service.namespace.kube, f"{PODS.format(service.namespace.name)}/{pod['metadata']['name']}"
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC", "lastTransitionTime": now}
    others = [c for c in pod["status"]["conditions"] if c["type"] != "DisruptionTarget"]
    marked = kube.call("PATCH", f"{path}/status", {"status": {"conditions": [*others, condition]}})
    assert marked.is_success, marked.text
    gone = kube.call("DELETE", path, {"gracePeriodSeconds": 0})
    assert gone.is_success, gone.text

"""What the parts of the simulation read off objects."""

from tidegate.cluster import selectors
from tidegate.cluster.port import Kind, Object
from tidegate.core.state import times


def owner(kind: Kind, raw: Object) -> Object:
    """The reference by which an object names its controller."""
    meta = raw["metadata"]
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def active(pod: Object) -> bool:
    """Whether a pod counts for its ReplicaSet: it neither terminates nor has ended."""
    return "deletionTimestamp" not in pod["metadata"] and pod["status"].get("phase") not in ("Failed", "Succeeded")


def ready(pod: Object) -> bool:
    """Whether a pod is Ready."""
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions") or [])


def ready_since(pod: Object) -> float:
    """Since when a pod has been Ready, in Unix seconds; 0 while it is not."""
    for condition in pod["status"].get("conditions") or []:
        if condition["type"] == "Ready" and condition["status"] == "True":
            return times.parse(condition["lastTransitionTime"]) or 0.0
    return 0.0


def selects(budget: Object, pod: Object) -> bool:
    """Whether a PodDisruptionBudget covers the pod."""
    return selectors.selects(budget["spec"].get("selector"), pod["metadata"].get("labels") or {})


def controller_uid(item: Object) -> str:
    """uid of the owner that is the controller, or nothing."""
    for reference in item["metadata"].get("ownerReferences") or []:
        if reference.get("controller"):
            return str(reference["uid"])
    return ""

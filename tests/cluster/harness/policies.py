"""The shipped policies on a real cluster, and namespaces in which they are in force."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from tidegate.api.names import SERVICE

from .kube import CHECKOUT, DEPLOYMENTS, Kube, Object, eventually

IMAGE = os.environ.get("TIDEGATE_TEST_IMAGE", "tidegate.dev/pause:1")
"""An image that runs until SIGTERM."""


def install(kube: Kube) -> None:
    kube.must("apply", "--server-side", "--force-conflicts", "-k", str(CHECKOUT / "manifests/cluster"))


@contextmanager
def policed_namespace(kube: Kube) -> Iterator[str]:
    """A new namespace in which the policies are in force; after the block it is gone."""
    name = f"policies-{secrets.token_hex(4)}"
    path = f"api/v1/namespaces/{name}"
    kube.request("POST", "api/v1/namespaces", {"metadata": {"name": name}})
    try:
        eventually("the default ServiceAccount", lambda: kube.get(f"{path}/serviceaccounts/default"))
        eventually("the policies in force", lambda: in_force(kube, name))
        yield name
    finally:
        kube.request("DELETE", path)
        eventually(f"namespace {name} gone", lambda: kube.get(path) is None)


def in_force(kube: Kube, namespace: str) -> bool:
    """Whether the API server has taken up the policies, about a second after they were applied.

    Tried on the scale policy: its binding is applied last, and a watch keeps the order.
    """
    labels = {SERVICE: "probe"}
    template = {"metadata": {"labels": labels}, "spec": pod_spec()}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    path = DEPLOYMENTS.format(namespace)
    if kube.get(f"{path}/probe") is None:
        kube.request("POST", path, {"metadata": {"name": "probe", "labels": labels}, "spec": spec})
    answer = kube.call("PATCH", f"{path}/probe/scale", {"spec": {"replicas": 1}}, dryRun="All")
    return answer.status_code == httpx.codes.FORBIDDEN


def pod_spec(**container: Any) -> Object:
    return {
        "terminationGracePeriodSeconds": 5,
        "containers": [{"name": "server", "image": IMAGE, "imagePullPolicy": "IfNotPresent", **container}],
    }

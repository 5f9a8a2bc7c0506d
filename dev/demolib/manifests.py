"""What the demo applies: a namespace, a service in either form, and the load."""

from typing import Any

Object = dict[str, Any]
NAMESPACE = "tidegate-demo"
SERVICE = "chat"
LOAD = "load"
IMAGE = "tidegate-testapp"


def deployment_path(namespace: str) -> str:
    """Where the API server has the plain Deployment."""
    return f"/apis/apps/v1/namespaces/{namespace}/deployments/{SERVICE}"


def llmservice_path(namespace: str) -> str:
    """Where the API server has the LLMService."""
    return f"/apis/tidegate.dev/v1alpha1/namespaces/{namespace}/llmservices/{SERVICE}"


def namespace(name: str) -> Object:
    """A namespace of the demo."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def llmservice(replicas: int, tag: str, budget: int) -> Object:
    """The service as one applies it with Tidegate; `budget` is that of a drain, in seconds."""
    return {
        "apiVersion": "tidegate.dev/v1alpha1",
        "kind": "LLMService",
        "metadata": {"name": SERVICE},
        "spec": {
            "replicas": replicas,
            "port": "http",
            "drain": {"mode": "Native", "native": {"port": "admin"}, "budgetSeconds": budget},
            "template": {"spec": {"containers": [_container(tag)]}},
        },
    }


def deployment(replicas: int, tag: str) -> Object:
    """The same as a plain Deployment, of a process that exits on SIGTERM as most servers do."""
    labels = {"app": SERVICE}
    container = _container(tag) | {
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "admin"}, "periodSeconds": 2}
    }
    container["env"] = [{"name": "MISBEHAVE", "value": "exit-on-sigterm"}]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": SERVICE},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def service() -> Object:
    """The Service of the plain Deployment; Tidegate makes its own."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": SERVICE},
        "spec": {"selector": {"app": SERVICE}, "ports": [{"name": "http", "port": 80, "targetPort": "http"}]},
    }


def load(address: str, streams: int, seconds: str) -> Object:
    """The client: so many streams at once, each of `seconds` MIN-MAX, a new one when one ends, never a retry."""
    arguments = ["--url", f"http://{address}", "--streams", str(streams), "--seconds", seconds, "--rate", "5"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": LOAD},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "securityContext": _unprivileged_user(),
            "containers": [
                {
                    "name": LOAD,
                    "image": f"{IMAGE}:v1",
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["python", "-m", "apps.load", *arguments],
                    "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
                }
            ],
        },
    }


def _container(tag: str) -> Object:
    return {
        "name": "server",
        "image": f"{IMAGE}:{tag}",
        "imagePullPolicy": "IfNotPresent",
        "ports": [{"name": "http", "containerPort": 8000}, {"name": "admin", "containerPort": 9901}],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
    }


def _unprivileged_user() -> Object:
    return {"runAsNonRoot": True, "runAsUser": 65532}

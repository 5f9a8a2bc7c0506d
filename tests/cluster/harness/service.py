"""Services to try: the streaming test application under Tidegate, and the same image under a plain Deployment."""

import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tidegate.api import names
from tidegate.api.conditions import ConditionType, PodState, Reason

from .evidence import PodLogs
from .kube import DEPLOYMENTS, EVENTS, LLMSERVICES, PATIENCE_SECONDS, PODS, SERVICES, Kube, Object, eventually

IMAGE = "tidegate-testapp"
PORTS = [{"name": "http", "containerPort": 8000}, {"name": "admin", "containerPort": 9901}]
LOGS = "/logs"
CPU = "25m"
"""Of a serving pod. So little that the pods of all stories that run side by side find room on the nodes."""


def pod_template(namespace_logs: str, tag: str, env: dict[str, str], labels: dict[str, str], cpu: str = CPU) -> Object:
    """The test application with its log on the node, where it outlives the pod."""
    values = {"VERSION": tag, "LOG_DIR": f"{LOGS}/pods"} | env
    return {
        "metadata": {"labels": {"app": "chat"} | labels},
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "containers": [
                {
                    "name": "server",
                    "image": f"{IMAGE}:{tag}",
                    "imagePullPolicy": "IfNotPresent",
                    "ports": PORTS,
                    "env": [{"name": key, "value": value} for key, value in values.items()],
                    # Its share of a busy machine: starved, it would fail probes and tests would judge the machine.
                    "resources": {"requests": {"cpu": cpu, "memory": "32Mi"}},
                    "volumeMounts": [{"name": "logs", "mountPath": LOGS}],
                }
            ],
            "volumes": [{"name": "logs", "hostPath": {"path": namespace_logs, "type": "Directory"}}],
        },
    }


@dataclass(slots=True)
class Namespace:
    """One test's own namespace, and its directory of logs."""

    kube: Kube
    name: str

    @property
    def directory(self) -> Any:
        return self.kube.shared_logs / self.name

    @property
    def logs(self) -> PodLogs:
        return PodLogs(self.directory / "pods")

    def pods(self, **params: str) -> list[Object]:
        return self.kube.items(PODS.format(self.name), **params)

    def events(self, reason: str) -> list[Object]:
        return self.kube.items(EVENTS.format(self.name), fieldSelector=f"reason={reason}")

    def hurry(self, pods: Iterable[str]) -> None:
        """Let the streams that run in these pods send the rest of their tokens at once."""
        for pod in pods:
            # A pod that has ended meanwhile refuses, and has no streams.
            self.kube.call("POST", f"{PODS.format(self.name)}/{pod}:8000/proxy/hurry")

    def cluster_ip(self, service: str) -> str:
        def address() -> str:
            found = self.kube.get(f"{SERVICES.format(self.name)}/{service}")
            return str(found["spec"].get("clusterIP", "")) if found else ""

        return eventually(f"Service {service} has an address", address)


@dataclass(slots=True)
class Service:
    """An LLMService around the test application. Change a field and `apply`; numbers are small so that tests are.

    `more` is merged into the spec, `pod` into the pod's spec, `limits` are resource limits of the container.
    """

    namespace: Namespace
    name: str = "chat"
    tag: str = "v1"
    replicas: int = 3
    rollout: Object = field(default_factory=dict)
    drain: Object = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    more: Object = field(default_factory=dict)
    image: str | None = None
    pod: Object = field(default_factory=dict)
    limits: Object = field(default_factory=dict)
    cpu: str = CPU

    @property
    def labels(self) -> str:
        """The selector of everything that belongs to it."""
        return f"{names.SERVICE}={self.name}"

    def manifest(self) -> Object:
        template = pod_template(str(self.namespace.directory), self.tag, self.env, {}, self.cpu)
        template["spec"] |= self.pod
        (container,) = template["spec"]["containers"]
        if self.limits:
            container["resources"]["limits"] = self.limits
        if self.image is not None:
            container["image"] = self.image
        grace = {"initialSeconds": 60, "teardownSeconds": 2, "safetySeconds": 2}
        numbers = {"propagationSeconds": 1, "quietSeconds": 1, "flushSeconds": 1, "budgetSeconds": 300}
        return {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": {"name": self.name},
            "spec": {
                "replicas": self.replicas,
                "port": "http",
                "template": template,
                "drain": {"mode": "Native", "native": {"port": "admin"}, "grace": grace} | numbers | self.drain,
            }
            # Absent and not empty: server-side apply turns a map that loses its last key into null, which is refused.
            | ({"rollout": self.rollout} if self.rollout else {})
            | self.more,
        }

    def apply(self, **changes: Any) -> "Service":
        """Set the fields named and `kubectl apply` the manifest."""
        for key, value in changes.items():
            setattr(self, key, value)
        self.namespace.kube.apply(self.namespace.name, self.manifest())
        return self

    def scale(self, replicas: int) -> None:
        """As a user or an autoscaler does, through the scale subresource."""
        self.replicas = replicas
        self.kubectl("scale", f"llmservice/{self.name}", f"--replicas={replicas}")

    def kubectl(self, *args: str) -> str:
        return self.namespace.kube.must("-n", self.namespace.name, *args)

    def try_kubectl(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Where a refusal is what the test is about."""
        return self.namespace.kube.kubectl("-n", self.namespace.name, *args)

    def get(self) -> Object:
        found = self.namespace.kube.get(f"{LLMSERVICES.format(self.namespace.name)}/{self.name}")
        assert found is not None, f"there is no LLMService {self.name}"
        return found

    @property
    def status(self) -> Object:
        return dict(self.get().get("status") or {})

    def condition(self, kind: str) -> Object | None:
        return next((c for c in self.status.get("conditions", ()) if c["type"] == kind), None)

    def stalled(self) -> Object | None:
        """The condition Stalled while it is true and speaks of the present spec."""
        found = self.condition(ConditionType.STALLED)
        current = found and found["observedGeneration"] == self.get()["metadata"]["generation"]
        return found if found and current and found["status"] == "True" else None

    def stalled_by(self, reason: Reason) -> Object | None:
        """The same, if it is for this reason."""
        found = self.stalled()
        return found if found and found["reason"] == reason else None

    def is_settled(self) -> bool:
        """The status speaks of the present spec and there is nothing left to do."""
        found = self.get()
        status = found.get("status") or {}
        current = status.get("observedGeneration") == found["metadata"]["generation"]
        return current and status.get("phase") == "Ready" and bool((status.get("rollout") or {}).get("finishedAt"))

    def wait_settled(self) -> None:
        eventually(f"{self.name} is Ready and its rollout finished: {self.status.get('message')}", self.is_settled)

    def pods(self) -> list[Object]:
        return self.namespace.pods(labelSelector=self.labels)

    def serving_pod(self) -> str:
        """One that stays until somebody takes it: a settled service may still have terminating pods of its rollout."""
        serving = self.namespace.pods(labelSelector=f"{self.labels},{names.STATE}={PodState.SERVING}")
        return next(str(p["metadata"]["name"]) for p in serving if "deletionTimestamp" not in p["metadata"])

    def generations(self) -> dict[str, int]:
        """How often the spec of each of its Deployments was changed."""
        return {d["metadata"]["name"]: d["metadata"]["generation"] for d in self.deployments()}

    def wait_busy(self, streams: int = 5) -> None:
        """Wait until every pod runs so many streams by its own log, so that each has something to lose."""
        logs = self.namespace.logs

        def busy() -> bool:
            return all(logs.running(pod["metadata"]["name"]) >= streams for pod in self.pods())

        eventually(f"every pod of {self.name} runs {streams} streams", busy)

    def deployments(self) -> list[Object]:
        return self.namespace.kube.items(DEPLOYMENTS.format(self.namespace.name), labelSelector=self.labels)


@dataclass(slots=True)
class PlainDeployment:
    """What people have without Tidegate: the same image, a Service, a rolling update, an exit on SIGTERM."""

    namespace: Namespace
    name: str = "plain"
    tag: str = "v1"
    replicas: int = 3

    @property
    def labels(self) -> str:
        return f"plain={self.name}"

    def apply(self, **changes: Any) -> "PlainDeployment":
        for key, value in changes.items():
            setattr(self, key, value)
        labels = {"plain": self.name}
        template = pod_template(str(self.namespace.directory), self.tag, {"MISBEHAVE": "exit-on-sigterm"}, labels)
        probe = {"httpGet": {"path": names.READY_PATH, "port": "admin"}, "periodSeconds": 2}
        template["spec"]["containers"][0]["readinessProbe"] = probe
        rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
        spec = {
            "replicas": self.replicas,
            "strategy": rolling,
            "selector": {"matchLabels": labels},
            "template": template,
        }
        ports = [{"port": 80, "targetPort": "http"}]
        metadata = {"name": self.name, "labels": labels}
        self.namespace.kube.apply(
            self.namespace.name,
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec},
            {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"selector": labels, "ports": ports}},
        )
        return self

    def wait_settled(self) -> None:
        timeout = f"--timeout={PATIENCE_SECONDS:.0f}s"
        self.namespace.kube.must("-n", self.namespace.name, "rollout", "status", f"deployment/{self.name}", timeout)


MakeDevices = Callable[[int], dict[str, str]]
"""The fixture `devices`: puts so many of a new kind on a node; its result is `limits` of a Service."""

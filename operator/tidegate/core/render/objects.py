"""The children of an LLMService, as bodies for server-side apply."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Final

from tidegate.api import names
from tidegate.api.conditions import PodState
from tidegate.api.resource import DisruptionMode, LLMServiceSpec
from tidegate.core.drain_time.grace import GracePeriod

from . import foreign, sidecar
from .engines import PRESETS
from .probes import probes
from .validation import REQUEST_PORT, contract_port, has_gateway, port_number, serving_container, target_port

NO_DEADLINE: Final = 2147483647
"""progressDeadlineSeconds of the children: ours excludes the time spent draining, so theirs must never fire."""
HOLD_ALL: Final = 2147483647
"""minAvailable that no count reaches: every eviction is answered 429."""
KEY_MOUNT: Final = {"name": names.KEY_VOLUME, "mountPath": names.KEY_DIR, "readOnly": True}


@dataclass(frozen=True, slots=True)
class Owner:
    """The LLMService that the children belong to."""

    namespace: str
    name: str
    uid: str

    @property
    def reference(self) -> dict[str, Any]:
        """As an owner reference: the controller."""
        # blockOwnerDeletion false: setting it needs update on llmservices/finalizers, and nothing has to block.
        return {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": False,
        }

    @property
    def labels(self) -> dict[str, str]:
        """Of every child."""
        return {names.SERVICE: self.name, names.MANAGED_BY: names.MANAGER}

    def metadata(self, name: str, **more: Any) -> dict[str, Any]:
        """Of a child with this name; `more` are further fields, labels come on top of those of every child."""
        labels = self.labels | more.pop("labels", {})
        return {
            "name": name,
            "namespace": self.namespace,
            "labels": labels,
            "ownerReferences": [self.reference],
            **more,
        }


def service_name(owner: Owner, spec: LLMServiceSpec) -> str:
    """Name of the Service."""
    return spec.service.name or owner.name


def secret_name(service: str) -> str:
    """Name of the Secret with the drain keys."""
    return f"{service}-drain"


def service(owner: Owner, spec: LLMServiceSpec) -> dict[str, Any]:
    """The Service: only pods whose state is `serving`, so a withdrawn pod leaves it by its label alone."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": owner.metadata(service_name(owner, spec)),
        "spec": {
            "selector": {names.SERVICE: owner.name, names.STATE: PodState.SERVING.value},
            "ports": [{"name": "http", "port": spec.service.port, "targetPort": _target_port(spec), "protocol": "TCP"}],
        },
    }


def _target_port(spec: LLMServiceSpec) -> int | str:
    serving = serving_container(spec)
    return spec.port if serving is None else target_port(spec, serving)


def disruption_budget(owner: Owner, spec: LLMServiceSpec, *, unready_are_idle: bool = False) -> dict[str, Any]:
    """The PodDisruptionBudget over all undrained pods: an integer, since percentages count both revisions.

    `unready_are_idle`: pods that are not Ready hold no work, so they may be evicted however few others serve.
    """
    hold = spec.disruption.mode is DisruptionMode.HOLD
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": owner.metadata(owner.name),
        "spec": {
            "minAvailable": HOLD_ALL if hold else max(spec.replicas - 1, 0),
            "unhealthyPodEvictionPolicy": "AlwaysAllow" if unready_are_idle else "IfHealthyBudget",
            "selector": budget_selector(owner),
        },
    }


def budget_selector(owner: Owner) -> dict[str, Any]:
    """The pods that the PodDisruptionBudget covers: all that are not drained."""
    undrained = [PodState.SERVING.value, PodState.DRAINING.value]
    return {
        "matchLabels": {names.SERVICE: owner.name},
        "matchExpressions": [{"key": names.STATE, "operator": "In", "values": undrained}],
    }


@dataclass(frozen=True, slots=True)
class Revision:
    """What a new Deployment needs to know beside the spec."""

    hash: str
    source: str
    grace: GracePeriod
    prestop_key: str
    gateway_image: str = names.GATEWAY_IMAGE
    """Image of gateways for which the spec names none."""


def deployment_name(owner: Owner, revision: str) -> str:
    """Name of the Deployment of the revision with this hash."""
    return f"{owner.name}-{revision}"


def deployment(owner: Owner, spec: LLMServiceSpec, revision: Revision, replicas: int) -> dict[str, Any]:
    """A revision's Deployment.

    maxUnavailable 0, so that a forbidden template edit, were it ever to pass, starts a pod before it takes one.
    """
    labels = {names.REVISION: revision.hash}
    annotations = {
        names.SOURCE: revision.source,
        names.RENDERED: digest(owner, spec, revision.hash, revision.gateway_image),
    } | replica_annotations(replicas, frozenset())
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": owner.metadata(deployment_name(owner, revision.hash), labels=labels, annotations=annotations),
        "spec": {
            "replicas": replicas,
            "progressDeadlineSeconds": NO_DEADLINE,
            "revisionHistoryLimit": 1,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "selector": {"matchLabels": {names.SERVICE: owner.name, names.REVISION: revision.hash}},
            "template": pod_template(owner, spec, revision),
        },
    }


def digest(owner: Owner, spec: LLMServiceSpec, revision: str, gateway_image: str = names.GATEWAY_IMAGE) -> str:
    """Names what would be rendered today: without the key, a secret's, and the grace period, compared by itself."""
    template = pod_template(owner, spec, Revision(revision, "", GracePeriod((), 0), "", gateway_image))
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:16]


def replica_annotations(replicas: int, released: frozenset[str]) -> dict[str, str]:
    """What has to be written together with spec.replicas: the same number, and the drained pods it was lowered for."""
    return {names.REPLICAS: str(replicas), names.RELEASED: ",".join(sorted(released))}


def scale(name: str, namespace: str, replicas: int, released: frozenset[str]) -> dict[str, Any]:
    """Body that sets a Deployment's count and what counts it, and nothing else."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": replica_annotations(replicas, released),
        },
        "spec": {"replicas": replicas},
    }


def pod_template(owner: Owner, spec: LLMServiceSpec, revision: Revision) -> dict[str, Any]:
    """The user's template with what Tidegate adds; the user's object is not touched."""
    template: dict[str, Any] = _present(spec.template)
    metadata = template.setdefault("metadata", {})
    serving = serving_container(spec)
    assert serving is not None, "findings() refuses a template without a serving container"  # noqa: S101
    metadata["labels"] = (metadata.get("labels") or {}) | {
        names.SERVICE: owner.name,
        names.REVISION: revision.hash,
        names.STATE: PodState.SERVING.value,
        names.MANAGED_BY: names.MANAGER,
    }
    notes = metadata["annotations"] = (metadata.get("annotations") or {}) | {names.CONTAINER: serving["name"]}
    pod = template["spec"]
    pod["terminationGracePeriodSeconds"] = revision.grace.seconds
    port = contract_port(spec, serving)
    endpoint = spec.drain.native.foreign
    if endpoint is None:
        for name in names.MESH_EXCLUDED_PORTS:
            # A mesh in strict mode refuses the operator, which is outside it, and encrypts the kubelet's preStop away.
            notes[name] = ",".join(filter(None, (str(notes.get(name) or ""), str(port))))
        pod.setdefault("volumes", []).append(
            {"name": names.KEY_VOLUME, "secret": {"secretName": secret_name(owner.name), "optional": True}}
        )
        hook = others = _prestop(port, revision.prestop_key)
        if has_gateway(spec):
            others = _prestop(port, revision.prestop_key, names.PRESTOP_OTHER)
    else:
        hook = others = foreign.prestop(endpoint, port, revision.grace)
    for container in pod["containers"]:
        lifecycle = container.setdefault("lifecycle", {})
        # One without a hook gets SIGTERM at once, while the others still stream.
        lifecycle.setdefault("preStop", hook if container["name"] == serving["name"] else others)
        if container["name"] == serving["name"]:
            _prepare(container, spec, revision, target_port(spec, serving), port)
    if has_gateway(spec):
        held = sidecar.container(spec, serving, revision.gateway_image, _contract(spec, revision), KEY_MOUNT)
        # The last: it starts right before the engine, and what the user starts before it, a mesh too, outlives it.
        pod.setdefault("initContainers", []).append(held)
    return template


def _present(value: Any) -> Any:
    """A deep copy without nulls: Kubernetes reads `env: null`, which charts often write, as absent."""
    if isinstance(value, dict):
        return {key: _present(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_present(item) for item in value]
    return value


def _prestop(port: int | None, key: str, path: str = names.PRESTOP_PATH) -> dict[str, Any]:
    # A number: the kubelet resolves names of hooks among the ports of the same container only.
    return {
        "httpGet": {
            "path": path,
            "port": port,
            "httpHeaders": [{"name": names.KEY_HEADER, "value": key}],
        }
    }


def _prepare(container: dict[str, Any], spec: LLMServiceSpec, revision: Revision, name: str, port: int | None) -> None:
    """The serving container: behind the gateway, by the port `name`, or asked at the contract's `port`."""
    if has_gateway(spec):
        _put_behind(container, spec, name)
    else:
        _complete(container, spec, revision, port)


def _complete(container: dict[str, Any], spec: LLMServiceSpec, revision: Revision, contract: int | None) -> None:
    _name_request_port(container, spec)
    if spec.drain.native.foreign is None:
        environment = [{"name": name, "value": str(value)} for name, value in _contract(spec, revision).items()]
        container.setdefault("env", []).extend(environment)
        container.setdefault("volumeMounts", []).append(dict(KEY_MOUNT))
        wanted = probes(spec, contract, names.LIVE_PATH, names.READY_PATH)
    else:
        # Nothing of its paths is known: that its port accepts is all that can be asked unless the user says more.
        wanted = probes(spec, port_number(container, spec.port), None, None)
        if spec.probes.liveness is None:
            del wanted["livenessProbe"]
    for name, probe in wanted.items():
        container.setdefault(name, probe)


def _put_behind(container: dict[str, Any], spec: LLMServiceSpec, name: str) -> None:
    """An engine behind the gateway: asked for its health by the kubelet, for its readiness by the gateway."""
    preset = PRESETS[spec.engine]
    wanted = probes(spec, port_number(container, spec.port), preset.path, None)
    del wanted["readinessProbe"]
    if preset.path is None and spec.probes.liveness is None:
        # A port that accepts says nothing of life.
        del wanted["livenessProbe"]
    for key, probe in wanted.items():
        container.setdefault(key, probe | {"timeoutSeconds": preset.probe_seconds})
    sidecar.take_port(container, spec, name)


def _name_request_port(container: dict[str, Any], spec: LLMServiceSpec) -> None:
    if target_port(spec, container) != REQUEST_PORT or isinstance(spec.port, str):
        return
    ports = container.setdefault("ports", [])
    declared = next((p for p in ports if p.get("containerPort") == spec.port), None)
    if declared is None:
        declared = {"containerPort": spec.port}
        ports.append(declared)
    declared["name"] = REQUEST_PORT


def _contract(spec: LLMServiceSpec, revision: Revision) -> dict[str, object]:
    """The contract's variables, for whoever speaks it."""
    drain = spec.drain
    return {
        names.ENV_KEY_DIR: names.KEY_DIR,
        names.ENV_PRESTOP_KEY: revision.prestop_key,
        names.ENV_GRACE: revision.grace.seconds,
        names.ENV_PROPAGATION: drain.propagation_seconds,
        names.ENV_QUIET: drain.quiet_seconds,
        names.ENV_FLUSH: drain.flush_seconds,
        names.ENV_STALLED_AFTER: drain.stalled_after_seconds,
    }


def includes(live: object, wanted: object) -> bool:
    """Whether `live` already says everything that `wanted` says; what the server defaulted beside it is ignored."""
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(k in live and includes(live[k], v) for k, v in wanted.items())
    if isinstance(wanted, list) and wanted and isinstance(wanted[0], dict):
        # Server-side apply merges such lists by key, so items of other managers may stand beside ours.
        return isinstance(live, list) and all(any(includes(have, want) for have in live) for want in wanted)
    return live == wanted

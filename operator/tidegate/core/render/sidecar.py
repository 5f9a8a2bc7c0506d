"""The gateway in the pod: a native sidecar in front of the serving container, which knows nothing of it.

The kubelet starts it before the containers and stops it after them (restartPolicy Always on an init container), so
whatever an engine still streams has somebody to go through.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tidegate.api import names
from tidegate.api.gateway import Gateway
from tidegate.api.resource import LLMServiceSpec

from .engines import PRESETS
from .finding import Finding, port_number

Container = Mapping[str, Any]
REQUESTS: Final = {"cpu": "50m", "memory": "64Mi"}
_PROBES: Final = ("startupProbe", "readinessProbe", "livenessProbe")


def container(
    spec: LLMServiceSpec, serving: Container, image: str, contract: dict[str, object], mount: Mapping[str, Any]
) -> dict[str, Any]:
    """The sidecar. `contract` holds the contract's variables, `mount` the drain key; `serving` is as the user wrote it.

    No CPU limit: throttled, it would be late for every token.
    """
    gateway = spec.gateway
    own: dict[str, Any] = {
        "name": names.GATEWAY,
        "image": gateway.image or image,
        "args": ["gateway"],
        "restartPolicy": "Always",
        "env": [{"name": k, "value": _literal(v)} for k, v in (_environment(spec, serving) | contract).items()],
        # The port that carries requests is declared by the serving container: see `take_port`.
        "ports": [{"name": names.GATEWAY_ADMIN, "containerPort": gateway.admin_port}],
        "volumeMounts": [dict(mount)],
        "resources": _resources(gateway),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    } | _probes(spec)
    if gateway.image_pull_policy is not None:
        own["imagePullPolicy"] = str(gateway.image_pull_policy)
    return own


def _literal(value: object) -> str:
    # The kubelet takes $(NAME) for a variable, and $$ for a dollar.
    return str(value).replace("$", "$$")


def _resources(gateway: Gateway) -> dict[str, Any]:
    written = gateway.resources.model_dump(mode="json", exclude_none=True)
    return written | {"requests": REQUESTS | written.get("requests", {})}


def _environment(spec: LLMServiceSpec, serving: Container) -> dict[str, object]:
    gateway, limits = spec.gateway, spec.gateway.timeouts
    routes = [route.model_dump(mode="json", by_alias=True, exclude_none=True) for route in gateway.routes]
    known: dict[str, object | None] = {
        # Without a host: all addresses, of both families.
        names.GATEWAY_ENV_LISTEN: f":{gateway.listen_port}",
        names.GATEWAY_ENV_UPSTREAM: f"127.0.0.1:{port_number(serving, spec.port)}",
        names.GATEWAY_ENV_ADMIN: f":{gateway.admin_port}",
        names.GATEWAY_ENV_ENGINE: str(spec.engine),
        names.GATEWAY_ENV_READY_PATH: ready_path(spec, serving),
        names.GATEWAY_ENV_WARMUP_PATH: gateway.warmup and gateway.warmup.path,
        names.GATEWAY_ENV_WARMUP_BODY: gateway.warmup and gateway.warmup.body,
        names.GATEWAY_ENV_CONNECT: limits.connect_seconds,
        names.GATEWAY_ENV_IDLE: limits.idle_seconds,
        names.GATEWAY_ENV_TOTAL: limits.total_seconds,
        names.GATEWAY_ENV_KEEP_ALIVE: gateway.keep_alive_seconds,
        names.GATEWAY_ENV_ROUTES: json.dumps(routes, separators=(",", ":")) if routes else None,
    }
    return {name: value for name, value in known.items() if value is not None}


def ready_path(spec: LLMServiceSpec, serving: Container) -> str | None:
    """The path by which the gateway asks the engine whether it is ready; None: that it takes connections is enough."""
    own = (serving.get("readinessProbe") or {}).get("httpGet") or {}
    if own.get("path") and port_number(serving, own.get("port", 0)) == port_number(serving, spec.port):
        return str(own["path"])
    wanted = spec.probes.readiness
    return (wanted and wanted.path) or PRESETS[spec.engine].path


def _probes(spec: LLMServiceSpec) -> dict[str, Any]:
    def asked(path: str) -> dict[str, Any]:
        return {"httpGet": {"path": path, "port": spec.gateway.admin_port}}

    readiness = spec.probes.readiness
    return {
        # The serving container starts when this has passed.
        "startupProbe": asked(names.LIVE_PATH)
        | {"periodSeconds": 1, "failureThreshold": 60, "terminationGracePeriodSeconds": 10},
        "readinessProbe": asked(names.READY_PATH)
        | {
            "periodSeconds": (readiness and readiness.period_seconds) or 2,
            "timeoutSeconds": 2,
            "failureThreshold": 2,
        },
        # Patient: its death cuts every stream of the pod.
        "livenessProbe": asked(names.LIVE_PATH)
        | {"periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 6, "terminationGracePeriodSeconds": 10},
    }


def take_port(serving: dict[str, Any], spec: LLMServiceSpec, name: str) -> None:
    """Let the request port's names lead to the gateway, so that the Service finds it in pods of every mode.

    All containers of a pod share its addresses, so it does not matter which one declares a port. It is the serving
    container and not the sidecar since Services look among init containers from Kubernetes 1.32 on only, and meshes
    and monitoring later still. Its own probes keep asking the engine.
    """
    number = port_number(serving, spec.port)
    hook = (serving.get("lifecycle") or {}).get("postStart")
    for probe in filter(None, (*(serving.get(key) for key in _PROBES), hook)):
        for check in (probe.get(kind) for kind in ("httpGet", "tcpSocket")):
            if check and isinstance(check.get("port"), str):
                check["port"] = port_number(serving, check["port"]) or check["port"]
    ports = serving.setdefault("ports", [])
    declared = [p for p in ports if p.get("containerPort") == number and _tcp(p)]
    if not declared:
        declared = [{}]
        ports += declared
    for port in declared:
        port["containerPort"] = spec.gateway.listen_port
    if all(port.get("name") != name for port in declared):
        declared[0]["name"] = name


def _tcp(port: Mapping[str, Any]) -> bool:
    return (port.get("protocol") or "TCP") == "TCP"


def _running(pod: Mapping[str, Any]) -> Iterator[tuple[str, Container]]:
    """Path and container of all that run beside the gateway for as long as it does."""
    for index, found in enumerate(pod.get("initContainers") or []):
        if found.get("restartPolicy") == "Always":
            yield f"initContainers[{index}]", found
    for index, found in enumerate(pod.get("containers") or []):
        yield f"containers[{index}]", found


def findings(spec: LLMServiceSpec, serving: Container, name: str) -> Iterator[Finding]:
    """What the gateway cannot share with the template; `name` is the request port's, as the Service asks for it."""
    root = "spec.template.spec"
    pod = spec.template.get("spec") or {}
    for part in ("initContainers", "containers"):
        for index, found in enumerate(pod.get(part) or []):
            if found.get("name") == names.GATEWAY:
                yield Finding(
                    f"{root}.{part}[{index}].name",
                    f"the name {names.GATEWAY} is reserved for Tidegate",
                    "rename your container",
                )
    gateway, request = spec.gateway, port_number(serving, spec.port)
    for field, number in (("listenPort", gateway.listen_port), ("adminPort", gateway.admin_port)):
        if number == request:
            yield Finding(
                f"spec.gateway.{field}", f"port {number} is the engine's own port (spec.port)", "set a free port"
            )
    path = ready_path(spec, serving)
    if path is not None and not (path.isascii() and path.isprintable() and " " not in path):
        yield Finding(
            "spec.probes.readiness.path",
            f"the gateway cannot request {path}: a path must be printable ASCII without spaces",
            "write it percent-encoded, here or in the readinessProbe of the template",
        )
    for path, found in _running(pod):
        for index, port in enumerate(found.get("ports") or []):
            yield from _port_findings(spec, found is serving, request, port, f"{root}.{path}.ports[{index}]", name)


def _port_findings(
    spec: LLMServiceSpec, serving: bool, request: int | None, port: Mapping[str, Any], path: str, name: str
) -> Iterator[Finding]:
    number, gateway = port.get("containerPort"), spec.gateway
    if not _tcp(port) or (serving and number == request):
        return
    for field, taken in (("listenPort", gateway.listen_port), ("adminPort", gateway.admin_port)):
        if number == taken and number != request:
            yield Finding(
                f"{path}.containerPort",
                f"the gateway listens on port {number} (spec.gateway.{field})",
                f"set spec.gateway.{field} to a free port, or change this port",
            )
    if port.get("name") in (name, names.GATEWAY_ADMIN):
        yield Finding(
            f"{path}.name",
            f"the name {port['name']} is reserved for the gateway's port",
            "rename this port",
        )


def uncounted(spec: LLMServiceSpec, serving: Container) -> list[str]:
    """Declared ports of the pod whose requests pass the gateway by."""
    request = port_number(serving, spec.port)
    found = []
    for _, held in _running(spec.template.get("spec") or {}):
        for port in held.get("ports") or []:
            if held is serving and port.get("containerPort") == request and _tcp(port):
                continue
            called = f"{port['name']} ({port['containerPort']})" if port.get("name") else str(port["containerPort"])
            found.append(f"{called} of container {held['name']}")
    return found


def blamed(field: str, template: Mapping[str, Any]) -> str:
    """A field of a rendered Deployment as the user knows it: the gateway's container comes from spec.gateway."""
    for index, found in enumerate(template["spec"].get("initContainers") or []):
        inside = f"spec.template.spec.initContainers[{index}]."
        if found["name"] == names.GATEWAY and field.startswith(inside):
            return f"spec.gateway.{field.removeprefix(inside)}"
    return field

"""Checks of the user's pod template: what Tidegate has to decide itself must not be in it.

Each finding names the field as the user writes it and what to do instead. The API server's own validation runs
afterwards, by dry run.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tidegate.api import names
from tidegate.api.drain import DrainMode
from tidegate.api.resource import LLMServiceSpec

from . import foreign, sidecar
from .finding import Finding as Finding
from .finding import port_number as port_number


def serving_container(spec: LLMServiceSpec) -> Mapping[str, Any] | None:
    """The container that carries the requests: the named one, else the one that declares `port`, else the only one."""
    containers = pod_spec(spec).get("containers") or []
    if spec.container:
        return next((c for c in containers if c.get("name") == spec.container), None)
    declaring = [c for c in containers if any(_declares(port, spec.port) for port in c.get("ports") or [])]
    if declaring:
        return declaring[0]  # type: ignore[no-any-return]
    return containers[0] if len(containers) == 1 and isinstance(spec.port, int) else None


def pod_spec(spec: LLMServiceSpec) -> Mapping[str, Any]:
    """The pod spec of the user's template."""
    return spec.template.get("spec") or {}


def has_gateway(spec: LLMServiceSpec) -> bool:
    """Whether a gateway stands in front of the serving container."""
    return spec.drain.mode is DrainMode.GATEWAY


def contract_port(spec: LLMServiceSpec, container: Mapping[str, Any]) -> int | None:
    """The port at which a pod speaks the drain contract, or has its foreign endpoint."""
    return spec.gateway.admin_port if has_gateway(spec) else port_number(container, spec.drain.native.port)


def readiness_ignores_drains(spec: LLMServiceSpec, container: Mapping[str, Any]) -> bool:
    """Whether the readiness that will be in force does not ask the drain contract, or whoever knows of drains."""
    if has_gateway(spec):
        return False
    if spec.drain.native.foreign is not None:
        return foreign.readiness_is_a_port(spec, container)
    own = container.get("readinessProbe")
    contract = port_number(container, spec.drain.native.port)
    if own is not None:
        get = own.get("httpGet") or {}
        return get.get("path") != names.READY_PATH or port_number(container, get.get("port", 0)) != contract
    wanted = spec.probes.readiness
    if wanted is None:
        return False
    elsewhere = wanted.port is not None and port_number(container, wanted.port) != contract
    return elsewhere or (wanted.path or names.READY_PATH) != names.READY_PATH


REQUEST_PORT: Final = "tidegate-http"
"""Name given to the request port where the user gave none, so that revisions with other numbers share a Service."""


def target_port(spec: LLMServiceSpec, container: Mapping[str, Any]) -> str:
    """The name by which the Service finds the request port in pods of every revision."""
    if isinstance(spec.port, str):
        return spec.port
    named = (p.get("name") for p in container.get("ports") or [] if p.get("containerPort") == spec.port)
    return next((name for name in named if name), REQUEST_PORT)


def unroutable(spec: LLMServiceSpec, older: LLMServiceSpec) -> Finding | None:
    """Whether the Service that `spec` asks for would lose pods of a revision that still stands."""
    new, old = serving_container(spec), serving_container(older)
    if new is None or old is None or not spec.service.create:
        return None
    wanted, has = target_port(spec, new), target_port(older, old)
    if wanted == has or port_number(old, wanted) == port_number(old, older.port):
        return None
    return Finding(
        "spec.port",
        f"existing pods name their request port {has}, new pods {wanted}, and one Service cannot select both",
        f"keep the name {has} (its number may change), or scale to 0 first",
    )


def findings(spec: LLMServiceSpec) -> tuple[Finding, ...]:
    """All conflicts of the template with what Tidegate adds, in the order of the template."""
    return tuple(_findings(spec))


def _findings(spec: LLMServiceSpec) -> Iterator[Finding]:
    root = "spec.template.spec"
    pod = pod_spec(spec)
    yield from _pod_findings(pod, root)
    yield from _metadata_findings(spec.template.get("metadata") or {})
    container = serving_container(spec)
    if container is None:
        yield _no_container(spec)
        return
    index = [c is container for c in pod["containers"]].index(True)
    yield from _container_findings(spec, container, f"{root}.containers[{index}]")
    if any(v.get("name") == names.KEY_VOLUME for v in pod.get("volumes") or []):
        yield Finding(f"{root}.volumes", f"the name {names.KEY_VOLUME} is reserved for Tidegate", "rename your volume")


def _pod_findings(pod: Mapping[str, Any], root: str) -> Iterator[Finding]:
    if pod.get("terminationGracePeriodSeconds") is not None:
        yield Finding(
            f"{root}.terminationGracePeriodSeconds",
            "Tidegate computes it",
            "remove it, and set spec.drain.grace.initialSeconds and maxSeconds instead",
        )
    if pod.get("hostNetwork"):
        yield Finding(
            f"{root}.hostNetwork",
            "pods on the host network have no IP address of their own, so their drain endpoints cannot be told apart",
            "remove hostNetwork",
        )
    if (pod.get("restartPolicy") or "Always") != "Always":
        yield Finding(f"{root}.restartPolicy", "a Deployment requires Always", "remove restartPolicy")


def _metadata_findings(metadata: Mapping[str, Any]) -> Iterator[Finding]:
    for part in ("labels", "annotations"):
        for key in metadata.get(part) or {}:
            if key.startswith(f"{names.GROUP}/"):
                yield Finding(f"spec.template.metadata.{part}[{key}]", "Tidegate sets it", "remove it")


def _no_container(spec: LLMServiceSpec) -> Finding:
    if spec.container:
        return Finding(
            "spec.container", f"the template has no container named {spec.container}", "name one of its containers"
        )
    return Finding(
        "spec.port",
        f"no container of the template declares port {spec.port}",
        "add it to the ports of the serving container, or set spec.container",
    )


def _container_findings(spec: LLMServiceSpec, container: Mapping[str, Any], path: str) -> Iterator[Finding]:
    if (container.get("lifecycle") or {}).get("preStop"):
        yield Finding(
            f"{path}.lifecycle.preStop",
            "Tidegate needs it for its own hook, which waits for the drain",
            "remove it, and do its work in your SIGTERM handler",
        )
    if port_number(container, spec.port) is None:
        yield Finding(
            "spec.port", f"container {container.get('name')} declares no port named {spec.port}", "add it to its ports"
        )
    if has_gateway(spec):
        yield from sidecar.findings(spec, container, target_port(spec, container))
        return
    if port_number(container, spec.drain.native.port) is None:
        yield Finding(
            "spec.drain.native.port",
            f"container {container.get('name')} declares no port named {spec.drain.native.port}",
            "add it to its ports, or set the number",
        )
    yield from foreign.findings(spec, container, path)
    for index, item in enumerate(container.get("env") or []):
        if str(item.get("name", "")).startswith("TIDEGATE_") and item["name"] in OWN_ENVIRONMENT:
            yield Finding(f"{path}.env[{index}].name", f"{item['name']} is set by Tidegate", "remove it")
    for index, mount in enumerate(container.get("volumeMounts") or []):
        if str(mount.get("mountPath", "")).rstrip("/") == names.KEY_DIR:
            yield Finding(
                f"{path}.volumeMounts[{index}].mountPath",
                "Tidegate mounts the drain key there",
                "mount your volume elsewhere",
            )


OWN_ENVIRONMENT = frozenset(
    (
        names.ENV_KEY_DIR,
        names.ENV_PRESTOP_KEY,
        names.ENV_GRACE,
        names.ENV_PROPAGATION,
        names.ENV_QUIET,
        names.ENV_FLUSH,
        names.ENV_STALLED_AFTER,
    )
)


def _declares(port: Mapping[str, Any], wanted: int | str) -> bool:
    return port.get("name") == wanted or port.get("containerPort") == wanted

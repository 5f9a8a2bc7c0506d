"""Pods with a drain endpoint of the application's own: what is rendered for them, and what is known to go wrong.

Of such an application nothing is known but what the user says, so nothing of the contract is put into its pods.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tidegate.api.foreign import Foreign
from tidegate.api.probes import Probe
from tidegate.api.resource import LLMServiceSpec
from tidegate.core.drain_time.grace import GracePeriod

from .finding import Finding, port_number

Container = Mapping[str, Any]
FAILS_WHILE_DRAINING: Final = {"/health/drain": ("LiteLLM", ("/health/liveliness", "/health/liveness"))}
"""Drain endpoints that turn liveness off too: the kubelet would kill what still works."""


def prestop(foreign: Foreign, port: int | None, grace: GracePeriod) -> dict[str, Any]:
    """The hook: the endpoint itself where the kubelet can call it, else a sleep as long as a drain may take."""
    if foreign.serves_as_hook:
        return {"httpGet": {"path": foreign.path, "port": port}}
    return {"sleep": {"seconds": hook_seconds(grace)}}


def hook_seconds(grace: GracePeriod) -> int:
    """How long the sleep takes. The kubelet's limit is the whole grace period, which a cap may have shortened."""
    return min(sum(t.seconds for t in grace.terms if t.name in ("propagation", "drain")), grace.seconds)


def readiness_is_a_port(spec: LLMServiceSpec, container: Container) -> bool:
    """Whether readiness only says that the port accepts. Whether a path knows of drains, the application knows."""
    own = container.get("readinessProbe")
    if own is not None:
        return own.get("tcpSocket") is not None
    return spec.probes.readiness is None or spec.probes.readiness.path is None


def findings(spec: LLMServiceSpec, container: Container, root: str) -> Iterator[Finding]:
    """Probes that would drain the pod, or have it killed while it drains; `root` is the container's field."""
    foreign = spec.drain.native.foreign
    if foreign is None:
        return
    drain_port = port_number(container, spec.drain.native.port)
    for name, probe in (
        ("startup", spec.probes.startup), ("readiness", spec.probes.readiness), ("liveness", spec.probes.liveness),
    ):  # fmt: skip
        field, path, port = _in_force(spec, container, name, probe, root)
        if path is None or port != drain_port:
            continue
        if path == _bare(foreign.path):
            yield Finding(field, "it is the drain endpoint, so a probe would drain the pod", "probe another path")
        killer = _known_to_fail(_bare(foreign.path), path) if name == "liveness" else None
        if killer is not None:
            yield Finding(
                field,
                f"{killer} answers it with 503 after {foreign.path}, so the kubelet would restart the container during "
                "its drain",
                "remove the path (in a template, use tcpSocket) to probe only the port, or remove the liveness probe",
            )


def _in_force(
    spec: LLMServiceSpec, container: Container, name: str, probe: Probe | None, root: str
) -> tuple[str, str | None, int | None]:
    """Field, path and port of the probe that the kubelet gets; no path when it asks for none."""
    own = container.get(f"{name}Probe")
    if own is not None:
        get = own.get("httpGet") or {}
        path = get.get("path")
        return f"{root}.{name}Probe.httpGet.path", path and _bare(path), port_number(container, get.get("port", 0))
    if probe is None or probe.path is None:
        return "", None, None
    return f"spec.probes.{name}.path", _bare(probe.path), port_number(container, probe.port or spec.port)


def _bare(path: str) -> str:
    return path.partition("?")[0]


def _known_to_fail(drain: str, liveness: str) -> str | None:
    """Whose trap it is. The application may be mounted below a prefix."""
    for end, (whose, failing) in FAILS_WHILE_DRAINING.items():
        if drain.endswith(end) and liveness in [drain.removesuffix(end) + path for path in failing]:
            return whose
    return None

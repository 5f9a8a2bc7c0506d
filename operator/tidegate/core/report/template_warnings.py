"""What a gateway cannot mend by itself: requests that pass it by, and an engine that lacks a flag."""

from collections.abc import Iterator

from tidegate.api.conditions import ConditionType, Reason
from tidegate.api.resource import LLMServiceSpec
from tidegate.core.render import engines, sidecar, validation
from tidegate.core.render.finding import port_number

Told = tuple[ConditionType, Reason, str]


def told(spec: LLMServiceSpec) -> Iterator[Told]:
    """The conditions that follow from a template behind a gateway, while they are true."""
    container = validation.serving_container(spec)
    if container is None or not validation.has_gateway(spec):
        return
    port, name = port_number(container, spec.port), container["name"]
    flags = list(engines.missing_flags(spec.engine, container, port))
    if flags:
        text = f"Container {name} (spec.engine: {spec.engine}) lacks {'; '.join(flags)}; add it to its args"
        yield ConditionType.ENGINE_FLAGS_MISSING, Reason.FLAGS_MISSING, text
    beside = sidecar.uncounted(spec, container)
    if beside:
        called = validation.target_port(spec, container)
        text = (
            f"Counted and waited for are requests to port {called} ({spec.gateway.listen_port}), where the gateway "
            f"takes them. Nobody counts those to {', '.join(beside)}, nor those sent straight to the engine's own port "
            f"{port} by a pod's address: a drain does not wait for them. Send what has to be waited for to {called}"
        )
        yield ConditionType.PORTS_UNCOUNTED, Reason.PORTS_BESIDE_GATEWAY, text

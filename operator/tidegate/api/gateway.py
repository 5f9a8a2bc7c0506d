"""The gateway that Tidegate puts in front of an engine, in the engine's own pod: image, ports, timeouts."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import Field

from tidegate.api.foreign import EndpointPath
from tidegate.api.names import CONTRACT_PORT, GATEWAY_PORT
from tidegate.api.ports import IntOrString
from tidegate.api.rules import WEEK, Model, Rule, bounded, matching

IMAGE = r"^[A-Za-z0-9][A-Za-z0-9._:/@-]*$"
PREFIX = r"^/([A-Za-z0-9._~!$&*+,;=:@%-][A-Za-z0-9._~!$&*+,;=:@%/-]*)?$"
QUANTITY = r"^[0-9]+([.][0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$"


class Engine(StrEnum):
    """The engine behind the gateway."""

    VLLM = "VLLM"
    SGLANG = "SGLang"
    TGI = "TGI"
    LLAMA_CPP = "LlamaCpp"
    CUSTOM = "Custom"


class PullPolicy(StrEnum):
    """When the kubelet pulls the gateway's image."""

    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


Quantity = Annotated[
    IntOrString,
    Rule(
        cel=f"type(self) == int ? self >= 0 : self.matches(r'{QUANTITY}')",
        message='must be a quantity such as 500m, "0.5" or 256Mi: put a fraction in quotes, and use no exponent',
        holds=lambda value: value >= 0 if isinstance(value, int) else bool(re.fullmatch(QUANTITY, value)),
    ),
]


class ResourceList(Model):
    """Quantities of CPU and memory."""

    cpu: Quantity | None = None
    """CPU, in cores."""
    memory: Quantity | None = None
    """Memory, in bytes."""


class Resources(Model):
    """Resources of the gateway. A CPU limit would delay every token."""

    requests: ResourceList | None = None
    """Resources that the scheduler reserves; absent: 50m CPU and 64Mi memory."""
    limits: ResourceList | None = None
    """Maximum resources; absent: no limit, unless a LimitRange of the namespace sets one."""


class Warmup(Model):
    """A request that the engine must answer before the pod becomes Ready."""

    path: EndpointPath
    """Path of the request."""
    body: Annotated[str, Field(max_length=65_536)] | None = None
    """JSON body that is sent with POST; absent: the request is a GET."""


def _seconds() -> Any:
    return Field(ge=0, le=WEEK, strict=True)


class Timeouts(Model):
    """Timeouts of a request; 0 means no timeout."""

    connect_seconds: Annotated[int, _seconds()] | None = None
    """Seconds until the engine has accepted the connection; absent: 5."""
    idle_seconds: Annotated[int, _seconds()] | None = None
    """Seconds of silence within an answer that has begun; absent: 300."""
    total_seconds: Annotated[int, _seconds()] | None = None
    """Seconds from the arrival of the request to the last byte of its answer; absent: 3600."""


PathPrefix = Annotated[
    str,
    Field(max_length=1024),
    matching(PREFIX, "must be an absolute path such as /v1/embeddings: write it without scheme, host, port and query"),
]


class Route(Model):
    """Timeouts for requests whose path has a certain prefix."""

    path_prefix: PathPrefix
    """Prefix of the path, in complete segments. If several match, the longest applies."""
    timeouts: Timeouts
    """Timeouts of these requests; an absent one comes from gateway.timeouts."""


class Gateway(Model):
    """The gateway's container. All fields are optional."""

    image: (
        Annotated[
            str,
            Field(max_length=512),
            matching(
                IMAGE,
                "must be an image reference such as registry.example.com/tidegate-gateway:0.1: write it without "
                "scheme and spaces, or leave it out",
            ),
        ]
        | None
    ) = None
    """Image of the gateway; absent: the operator's --gateway-image."""
    image_pull_policy: PullPolicy | None = None
    """When the image is pulled; absent: Kubernetes decides by its tag."""
    resources: Resources = Resources()
    """Resources of the container."""
    listen_port: int = bounded(GATEWAY_PORT, 1024, 65_535)
    """Port on which the gateway accepts requests; absent: 9900. The Service finds it by the name of spec.port."""
    admin_port: int = bounded(CONTRACT_PORT, 1024, 65_535)
    """Port on which the gateway serves the drain contract; absent: 9901."""
    warmup: Warmup | None = None
    """A request that the engine must answer before the pod becomes Ready; absent: none."""
    timeouts: Timeouts = Timeouts()
    """Timeouts of every request."""
    keep_alive_seconds: Annotated[int, _seconds()] | None = None
    """Seconds for which a client's connection is kept without a request; 0 means no limit; absent: 620. Keep it longer
    than the idle timeout of load balancers and clients in front, so that they close first."""
    routes: Annotated[
        tuple[Route, ...],
        Field(
            max_length=64,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["pathPrefix"]},
        ),
    ] = ()
    """Timeouts of requests to certain paths; absent: gateway.timeouts applies to all."""

    rules: ClassVar = (
        Rule(
            field="adminPort",
            cel=f"(has(self.adminPort) ? self.adminPort : {CONTRACT_PORT}) != "
            f"(has(self.listenPort) ? self.listenPort : {GATEWAY_PORT})",
            message=f"must differ from listenPort (absent: adminPort {CONTRACT_PORT}, listenPort {GATEWAY_PORT}), "
            "since the drain endpoint needs a port of its own: change one of them",
            holds=lambda gateway: gateway.admin_port != gateway.listen_port,
        ),
    )

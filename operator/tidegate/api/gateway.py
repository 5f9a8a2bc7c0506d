"""The gateway that Tidegate puts in front of an engine, in the engine's own pod: image, ports, limits of time."""

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
    """What stands behind the gateway."""

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
        message='must be a quantity such as 500m, "0.5" or 256Mi: write a fraction in quotes, and no exponent',
        holds=lambda value: value >= 0 if isinstance(value, int) else bool(re.fullmatch(QUANTITY, value)),
    ),
]


class ResourceList(Model):
    """Limits of CPU and memory."""

    cpu: Quantity | None = None
    """Amount of CPU."""
    memory: Quantity | None = None
    """Amount of memory."""


class Resources(Model):
    """What the gateway asks of its node. A CPU limit would add to the time of every token."""

    requests: ResourceList | None = None
    """What the scheduler reserves; absent: 50m CPU and 64Mi memory."""
    limits: ResourceList | None = None
    """What it must not exceed; absent: no limit, unless a LimitRange of the namespace sets one."""


class Warmup(Model):
    """A request that the engine has to answer before the pod turns Ready."""

    path: EndpointPath
    """Path of the request."""
    body: Annotated[str, Field(max_length=65_536)] | None = None
    """JSON text that is sent with POST; absent: the request is a GET."""


def _seconds() -> Any:
    return Field(ge=0, le=WEEK, strict=True)


class Timeouts(Model):
    """Three limits that are three different things; 0 means no limit."""

    connect_seconds: Annotated[int, _seconds()] | None = None
    """Seconds until the engine has accepted a connection; absent: 5."""
    idle_seconds: Annotated[int, _seconds()] | None = None
    """Seconds of silence within an answer that has begun; absent: 300."""
    total_seconds: Annotated[int, _seconds()] | None = None
    """Seconds from the arrival of a request to the last byte of its answer; absent: 3600."""


PathPrefix = Annotated[
    str,
    Field(max_length=1024),
    matching(PREFIX, "must be an absolute path such as /v1/embeddings: write it without scheme, host, port and query"),
]


class Route(Model):
    """Requests whose path begins in a certain way, with limits of their own."""

    path_prefix: PathPrefix
    """Prefix of the path, in whole segments. If several match, the longest wins."""
    timeouts: Timeouts
    """Timeouts of these requests; what is absent comes from gateway.timeouts."""


class Gateway(Model):
    """The gateway's container. Everything here is optional."""

    image: (
        Annotated[
            str,
            Field(max_length=512),
            matching(
                IMAGE,
                "must be the reference of an image, such as registry.example.com/tidegate-gateway:0.1: "
                "write it without scheme and spaces, or leave it out",
            ),
        ]
        | None
    ) = None
    """Image of the gateway; absent: the one with which the operator was started."""
    image_pull_policy: PullPolicy | None = None
    """When the image is pulled; absent: Kubernetes decides by its tag."""
    resources: Resources = Resources()
    """Resources of the container."""
    listen_port: int = bounded(GATEWAY_PORT, 1024, 65_535)
    """Port at which the gateway takes requests; absent: 9900. The Service finds it by the name of spec.port."""
    admin_port: int = bounded(CONTRACT_PORT, 1024, 65_535)
    """Port at which the gateway speaks the drain contract; absent: 9901."""
    warmup: Warmup | None = None
    """A request that must be answered before the pod becomes Ready; absent: none."""
    timeouts: Timeouts = Timeouts()
    """Timeouts of every request."""
    routes: Annotated[
        tuple[Route, ...],
        Field(
            max_length=64,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["pathPrefix"]},
        ),
    ] = ()
    """Timeouts of requests to certain paths."""

    rules: ClassVar = (
        Rule(
            field="adminPort",
            cel=f"(has(self.adminPort) ? self.adminPort : {CONTRACT_PORT}) != "
            f"(has(self.listenPort) ? self.listenPort : {GATEWAY_PORT})",
            message=f"must be another port than listenPort (absent: adminPort {CONTRACT_PORT}, listenPort "
            f"{GATEWAY_PORT}): the drain endpoint is never on the port that carries requests",
            holds=lambda gateway: gateway.admin_port != gateway.listen_port,
        ),
    )

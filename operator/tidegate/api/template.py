"""The part of a pod template that Tidegate itself relies on; the API server validates the rest.

The complete schema of a pod would exceed the annotation of client-side apply, and be outdated by every Kubernetes
release. So only containers, their names and their ports are typed. A dry run of the operator validates the complete
template.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import core_schema

from tidegate.api.rules import Model


class Open(Model):
    """An object of which only some fields are typed here; all others are kept unchanged."""

    model_config = ConfigDict(extra="allow")


class ContainerPort(Open):
    """A port that a container declares."""

    name: Annotated[str, Field(max_length=63)] | None = None
    """Name of the port, by which `spec.port` and probes refer to it."""
    container_port: Annotated[int, Field(ge=1, le=65_535, strict=True)] | None = None
    """Number of the port."""


class Container(Open):
    """A container of the pod."""

    name: Annotated[str, Field(max_length=63)]
    """Name of the container, by which `spec.container` refers to it."""
    ports: Annotated[tuple[ContainerPort, ...], Field(max_length=64)] | None = None
    """Ports that the container declares."""


class PodSpec(Open):
    """Spec of the pod, as in core Kubernetes."""

    containers: Annotated[
        tuple[Container, ...],
        Field(
            min_length=1,
            max_length=32,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ]
    """Containers of the pod. One of them serves: see `spec.container` and `spec.port`."""


class Metadata(Open):
    """Labels and annotations of the pods. Those of tidegate.dev are set by the operator."""


class PodTemplate(Open):
    """An ordinary pod template.

    Tidegate sets terminationGracePeriodSeconds and the serving container's preStop hook itself: leave both out.
    """

    metadata: Metadata | None = None
    """Labels and annotations of the pods."""
    spec: PodSpec
    """Spec of the pods."""


@dataclass(frozen=True, slots=True)
class Verbatim:
    """Validate a mapping as `model`, and keep it exactly as the user wrote it.

    A revision is identified by what the user wrote, so it must not be parsed and written again.
    """

    model: type[Open]

    def __get_pydantic_core_schema__(self, _source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        def checked(value: Any, check: core_schema.ValidatorFunctionWrapHandler) -> Any:
            check(value)
            return value

        return core_schema.no_info_wrap_validator_function(checked, handler.generate_schema(self.model))

    def __get_pydantic_json_schema__(
        self, core: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return handler(core)


def container_names(template: Mapping[str, Any]) -> list[str]:
    """Names of the template's containers, in order."""
    return [container["name"] for container in template["spec"]["containers"]]


def declarers(template: Mapping[str, Any], port: int | str) -> Iterator[str]:
    """Names of the containers that declare `port`, by number or by name."""
    field = "name" if isinstance(port, str) else "containerPort"
    for container in template["spec"]["containers"]:
        if any(declared.get(field) == port for declared in container.get("ports") or ()):
            yield container["name"]

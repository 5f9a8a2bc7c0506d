"""What the API server makes of a body: fields of an LLMService that it drops or fills in, and what it cannot store."""

import functools
from collections.abc import Iterator, Mapping
from typing import Any

from tidegate.api.errors import Rejected
from tidegate.api.schema import custom_resource_definition
from tidegate.cluster.port import DEPLOYMENTS, Kind, Object


@functools.cache
def resource() -> Mapping[str, Any]:
    """The schema of an LLMService, as the CRD has it."""
    (version,) = custom_resource_definition()["spec"]["versions"]
    found: Mapping[str, Any] = version["schema"]["openAPIV3Schema"]
    return found


def settled(service: Object) -> Object:
    """An LLMService without the fields of spec and status that its schema lacks, and with its defaults."""
    properties = resource()["properties"]
    return {
        key: _settled(properties[key], service[key]) if key in ("spec", "status") else service[key] for key in service
    }


def _settled(schema: Mapping[str, Any], value: Any) -> Any:
    if isinstance(value, Mapping):
        properties, rest = schema.get("properties", {}), schema.get("additionalProperties")
        keeps = schema.get("x-kubernetes-preserve-unknown-fields") or not (properties or rest)
        kept = {
            key: _settled(properties.get(key, rest or {}), value[key]) for key in value if key in properties or rest
        }
        others = {key: value[key] for key in value if key not in kept} if keeps else {}
        filled = {k: p["default"] for k, p in properties.items() if "default" in p and k not in value}
        return {**kept, **others, **filled}
    if isinstance(value, list):
        return [_settled(schema.get("items", {}), item) for item in value]
    return value


def validate(kind: Kind, old: Object | None, new: Object, refused_images: frozenset[str]) -> None:
    """Raises Rejected for what cannot be stored."""
    if sum(bool(owner.get("controller")) for owner in new["metadata"].get("ownerReferences") or []) > 1:
        text = "Invalid value: Only one reference can have Controller set to true"
        raise Rejected(f"metadata.ownerReferences: {text}", [("metadata.ownerReferences", text)])
    if kind is not DEPLOYMENTS:
        return
    spec = new.get("spec") or {}
    causes = [(f"spec.{field}", "Required value") for field in ("selector", "template") if not spec.get(field)]
    if old is not None and old["spec"]["selector"] != spec.get("selector"):
        causes.append(("spec.selector", "Invalid value: field is immutable"))
    if spec.get("template"):
        causes += _template_causes(spec, refused_images)
    if causes:
        text = "; ".join(f"{field}: {message}" for field, message in causes)
        raise Rejected(f'Deployment.apps "{new["metadata"]["name"]}" is invalid: {text}', causes)


def _template_causes(spec: Object, refused_images: frozenset[str]) -> Iterator[tuple[str, str]]:
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    wanted = (spec.get("selector") or {}).get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        yield "spec.template.metadata.labels", "Invalid value: `selector` does not match template `labels`"
    for index, container in enumerate((spec["template"].get("spec") or {}).get("containers") or []):
        if not container.get("image") or container["image"] in refused_images:
            yield f"spec.template.spec.containers[{index}].image", "Invalid value"

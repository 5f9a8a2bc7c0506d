"""What makes a revision: what the user wrote that changes pods, and nothing that the operator adds or measures.

A revision is found by comparing sources; the hash only names it. Absent fields stay absent, since filling one with a
default would change every source when the default changes.
"""

import functools
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tidegate.api.errors import InvalidSpec
from tidegate.api.foreign import Foreign
from tidegate.api.resource import LLMServiceSpec

from . import template
from .model import Deployment

_TOP: Final = ("template", "container", "port", "probes", "engine", "gateway")
_DRAIN: Final = ("mode", "native")
_ROLLOUT: Final = ("restartedAt",)
HASH_LENGTH: Final = 10


def source(raw_spec: Mapping[str, Any]) -> str:
    """The revision source as canonical JSON: sorted keys, no spaces."""
    picked: dict[str, Any] = {key: raw_spec[key] for key in _TOP if raw_spec.get(key) is not None}
    for parent, keys in (("drain", _DRAIN), ("rollout", _ROLLOUT)):
        part = raw_spec.get(parent) or {}
        found = {key: part[key] for key in keys if part.get(key) is not None}
        if found:
            picked[parent] = found
    return json.dumps(_without_nulls(picked), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _without_nulls(value: Any) -> Any:
    """A null is as good as absent to Kubernetes, so it makes no revision."""
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def find(deployments: Iterable[Deployment], wanted: str) -> Deployment | None:
    """The Deployment whose source equals `wanted`, compared as JSON values so that old spellings match too."""
    value = json.loads(wanted)
    for deployment in deployments:
        if deployment.source == wanted:
            return deployment
        try:
            if json.loads(deployment.source) == value:
                return deployment
        except ValueError:
            continue
    return None


@functools.lru_cache(maxsize=256)
def spec_of(source: str) -> LLMServiceSpec | None:
    """As much of a spec as a revision's source tells; None when it cannot be read any more."""
    try:
        return LLMServiceSpec.parse(json.loads(source))
    except (ValueError, InvalidSpec):
        return None


def foreign_endpoint(source: str) -> tuple[Foreign, int | None] | None:
    """The foreign drain endpoint that a revision's pods have, and its port; None where the contract is spoken.

    Read from the source and not from the pod: whoever may write it may write a template that mounts the same Secret.
    """
    if '"foreign"' not in source:
        return None
    spec = spec_of(source)
    if spec is None or spec.drain.native.foreign is None:
        return None
    container = template.serving_container(spec)
    port = None if container is None else template.port_number(container, spec.drain.native.port)
    return spec.drain.native.foreign, port


def name_hash(wanted: str, taken: Iterable[str]) -> str:
    """Ten hex digits that name a new revision; salted in the unlikely case that another source has them."""
    used = set(taken)
    salt = ""
    while True:
        digest = hashlib.sha256((salt + wanted).encode()).hexdigest()[:HASH_LENGTH]
        if digest not in used:
            return digest
        salt += "+"

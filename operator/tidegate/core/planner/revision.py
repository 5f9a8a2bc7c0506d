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
from tidegate.core.render import validation
from tidegate.core.state.snapshot import Deployment

_TOP: Final = ("template", "container", "port", "probes", "engine", "gateway")
_DRAIN: Final = ("mode", "native")
_ROLLOUT: Final = ("restartedAt",)
_GRACE: Final = "grace"
_EMPTY_IS_NONE: Final = (
    ("gateway", "resources"), ("gateway", "timeouts"), ("gateway", "routes"), ("gateway",), ("probes",),
    ("drain", "native"),
)  # fmt: skip
"""Parts of a source that the schema lets be null, innermost first."""
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


def with_grace(source: str, seconds: int) -> str:
    """The source of a revision that is also made for its grace period (`drain.grace.rollOnDrift`)."""
    value = json.loads(source)
    value["drain"] = value.get("drain", {}) | {_GRACE: {"seconds": seconds}}
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def find(deployments: Iterable[Deployment], wanted: str) -> Deployment | None:
    """The newest Deployment whose source equals `wanted`, compared as JSON values so that old spellings match too.

    The grace period that a source may hold is no part of what the user wants: it neither makes nor breaks a match, so
    that switching `rollOnDrift` rolls nothing. Nor does a part that says nothing: one and the same file with
    `probes: {}`, applied twice by server-side apply, is stored as `probes: null` first and as `probes: {}` then.
    """
    value = _comparable(wanted)
    equal = [d for d in deployments if d.source == wanted or _comparable(d.source) == value]
    return max(equal, key=lambda d: (d.created, d.name), default=None)


def _comparable(source: str) -> Any:
    """The parsed source without grace period and empty parts; None, which equals no source, if it cannot be read."""
    try:
        value = json.loads(source)
    except ValueError:
        return None
    if isinstance(value, dict) and isinstance(value.get("drain"), dict):
        value["drain"].pop(_GRACE, None)
    for *parents, last in _EMPTY_IS_NONE:
        holder = functools.reduce(lambda at, key: at.get(key) if isinstance(at, dict) else None, parents, value)
        if isinstance(holder, dict) and holder.get(last) in ({}, []):
            del holder[last]
    return value


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
    return spec.drain.native.foreign, contract_port(source)


def contract_port(source: str) -> int | None:
    """Where the pods of a revision are asked, by its source; None when that cannot be read any more."""
    spec = spec_of(source)
    container = None if spec is None else validation.serving_container(spec)
    return None if spec is None or container is None else validation.contract_port(spec, container)


def name_hash(wanted: str, taken: Iterable[str]) -> str:
    """Ten hex digits that name a new revision; salted in the unlikely case that another source has them."""
    used = set(taken)
    salt = ""
    while True:
        digest = hashlib.sha256((salt + wanted).encode()).hexdigest()[:HASH_LENGTH]
        if digest not in used:
            return digest
        salt += "+"

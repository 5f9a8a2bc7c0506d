"""Stored writes in a line each, for the reports of failures."""

import json

from tidegate.api import names
from tidegate.cluster.port import Object
from tidegate.preview.shapes import ready


def summary(old: Object | None, new: Object | None) -> str:
    """What a write says of an object."""
    if new is None:
        return "gone"
    meta, spec, status = new["metadata"], new.get("spec") or {}, new.get("status") or {}
    parts = [] if old is not None else ["new"]
    if "deletionTimestamp" in meta:
        parts.append("terminating")
    if names.STATE in (meta.get("labels") or {}) and new["kind"] == "Pod":
        parts.append(meta["labels"][names.STATE])
        parts.append(status.get("phase", "") + (" ready" if ready(new) else ""))
        for container in status.get("containerStatuses") or []:
            parts.append(f"started={container['started']} {next(iter(container['state']), '')}")
        outcome = (meta.get("annotations") or {}).get(names.OUTCOME)
        if outcome:
            parts.append(str(json.loads(outcome)["outcome"]))
    elif "replicas" in spec:
        parts.append(f"replicas={spec['replicas']}")
        if new["kind"] == names.KIND:
            parts.append(f"{status.get('phase')}: {status.get('message')}")
        elif status:
            parts.append(f"observed={status.get('observedGeneration')} of {meta.get('generation')}")
    elif "endpoints" in new:
        parts.append(" ".join(e["targetRef"]["name"][-4:] for e in new["endpoints"]))
    return " ".join(parts)

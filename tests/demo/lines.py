"""What the demo sees of a cluster: pods, and lines of the logs of servers and load."""

import json
from typing import Any

CLOCK = 1_000_000.0


def pod(name: str, *, ready: bool = True, tag: str = "v1", **metadata: Any) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": str(ready)}]
    containers = [{"image": f"registry:5000/app:{tag}"}]
    return {
        "metadata": {"name": name, **metadata},
        "spec": {"containers": containers},
        "status": {"conditions": conditions},
    }


def served(event: str, identity: str) -> str:
    return json.dumps({"event": event, "id": identity})


def ended(identity: str, result: str, by_pod: str | None = "a", tokens: int = 7) -> str:
    return json.dumps({"id": identity, "result": result, "by": "eof", "pod": by_pod, "tokens": tokens})

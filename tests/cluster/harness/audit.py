"""The API server's own record: who wrote what, in which order, with which answer."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OPERATOR = "system:serviceaccount:tidegate-system:tidegate-operator"
NODE = "system:node:"


@dataclass(frozen=True, slots=True)
class Call:
    """One request that the API server has answered. The audit policy leaves out reads, leases and node heartbeats."""

    at: str
    verb: str
    resource: str
    namespace: str
    name: str
    user: str
    agent: str
    code: int
    message: str
    entry: dict[str, Any]

    @classmethod
    def parse(cls, entry: dict[str, Any]) -> "Call":
        of, status = entry.get("objectRef") or {}, entry.get("responseStatus") or {}
        resource = "/".join(filter(None, (of.get("resource", ""), of.get("subresource", ""))))
        return cls(
            at=entry["requestReceivedTimestamp"],
            verb=entry["verb"],
            resource=resource,
            namespace=of.get("namespace", ""),
            name=of.get("name", ""),
            user=entry["user"].get("username", ""),
            agent=entry.get("userAgent", ""),
            code=status.get("code", 0),
            message=status.get("message", ""),
            entry=entry,
        )

    def __str__(self) -> str:
        what = f"{self.verb} {self.resource} {self.namespace}/{self.name}"
        return f"{self.at} {self.user}: {what}: {self.code} {self.message}".rstrip(": ")


class Audit:
    """What was written since this object was made."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._from = path.stat().st_size

    def calls(self, *, namespace: str = "", user: str = "") -> list[Call]:
        """In the order in which the API server received them; `user` is an exact name, an empty filter takes all."""
        found = (Call.parse(entry) for entry in self._entries(f'"{namespace}"' if namespace else user))
        wanted = (c for c in found if (not namespace or c.namespace == namespace) and (not user or c.user == user))
        return sorted(wanted, key=lambda call: call.at)

    def writes(self, namespace: str, *, user: str = "") -> list[Call]:
        """Those that were let through."""
        return [call for call in self.calls(namespace=namespace, user=user) if call.code < 300]

    def pod_deletes(self, namespace: str) -> list[Call]:
        """DELETE of pods by whomever, refused ones too; not the kubelet's, which only confirms that one has ended."""
        wanted = (c for c in self.calls(namespace=namespace) if (c.verb, c.resource) == ("delete", "pods"))
        return [call for call in wanted if not call.user.startswith(NODE)]

    def spec_writes(self, namespace: str, user: str = OPERATOR) -> list[Call]:
        """Writes to an LLMService itself, status and scale apart."""
        return [call for call in self.calls(namespace=namespace, user=user) if call.resource == "llmservices"]

    def statuses(self, namespace: str, service: str) -> list[dict[str, Any]]:
        """Every status that the operator wrote of one LLMService, in order, as the API server stored it."""
        written = (c for c in self.writes(namespace, user=OPERATOR) if c.resource == "llmservices/status")
        return [call.entry["responseObject"]["status"] for call in written if call.name == service]

    def _entries(self, word: str) -> Iterator[dict[str, Any]]:
        # Whole lines only: the API server may be in the middle of one. Most lines are others': look before parsing.
        with self._path.open("rb") as file:
            file.seek(self._from)
            for line in file:
                if line.endswith(b"\n") and word.encode() in line:
                    yield json.loads(line)

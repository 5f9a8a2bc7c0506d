"""What the service's own processes wrote down about their streams, one JSON line an event."""

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LEAST_STREAMS, LEAST_SECONDS = 3, 2.0
"""A run shows something only if each drained pod held so many streams at withdrawal and one outlived it by so long."""
Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class DrainEvidence:
    """What a withdrawn pod had to do. `outlived_seconds`: from its withdrawal to the end of the last such stream."""

    pod: str
    held: int
    outlived_seconds: float

    @property
    def counts(self) -> bool:
        return self.held >= LEAST_STREAMS and self.outlived_seconds >= LEAST_SECONDS


class PodLogs:
    """The logs of all pods that ever ran in a namespace; they outlive their pods."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def of(self, pod: str) -> list[Line]:
        path = self._directory / f"{pod}.jsonl"
        text = path.read_text() if path.exists() else ""
        # The last line may be half written while its process runs.
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def pods(self) -> list[str]:
        return sorted(path.stem for path in self._directory.glob("*.jsonl"))

    def find(self, event: str, **fields: object) -> list[Line]:
        """All such lines of all pods."""
        lines = (line for pod in self.pods() for line in self.of(pod) if line["event"] == event)
        return [line for line in lines if all(line.get(key) == value for key, value in fields.items())]

    def running(self, pod: str) -> int:
        """Streams that have begun in the pod and not ended, by its log."""
        events = [line["event"] for line in self.of(pod)]
        return events.count("stream-start") - events.count("stream-end")

    def drain_evidence(self, pod: str) -> DrainEvidence:
        lines = self.of(pod)
        withdrawn = next((line for line in lines if line["event"] == "withdrawn"), None)
        if withdrawn is None:
            return DrainEvidence(pod, 0, 0.0)
        held = set(withdrawn["streams"])
        ends = [line["at"] for line in lines if line["event"] == "stream-end" and line["id"] in held]
        return DrainEvidence(pod, len(held), max(ends, default=withdrawn["withdrawnAt"]) - withdrawn["withdrawnAt"])

    def has_held(self, pod: str) -> bool:
        """The pod was withdrawn with streams in it, and so long ago that they count as `DrainEvidence` if they end now.

        The pods' clock is that of this machine.
        """
        withdrawn = next((line for line in self.of(pod) if line["event"] == "withdrawn"), None)
        return withdrawn is not None and time.time() - withdrawn["withdrawnAt"] > LEAST_SECONDS

    def interrupted(self) -> list[Line]:
        """Every sign that a process was stopped with work in it, or that a stream did not end by itself.

        A stop with work in it is a preStop or SIGTERM that finds streams, and a stream that ends because of one.
        """
        stops = [line for event in ("prestop", "sigterm") for line in self.find(event) if line["streams"]]
        return stops + [line for line in self.find("stream-end") if not line["whole"]]


def assert_run_counts(logs: PodLogs, drained: Iterable[str]) -> list[DrainEvidence]:
    """Fail unless each of the drained pods had streams to lose, and there was one; returns what each had."""
    found = [logs.drain_evidence(pod) for pod in drained]
    assert found, "no pod was drained"
    idle = [evidence for evidence in found if not evidence.counts]
    assert not idle, f"these pods had too little to lose for the run to show anything: {idle}"
    return found

"""What has been seen so far, put together from watches and logs. No clock of its own: methods take the time."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from .api import image_of

STATE = "tidegate.dev/state"
DRAIN = "tidegate.dev/drain"


@dataclass(slots=True)
class Pod:
    """One pod of the service. Histories hold (seconds of the run, value), one entry per change."""

    name: str
    tag: str
    state: str
    since: float
    deadline: float | None = None
    running: set[str] = field(default_factory=set)
    states: list[tuple[float, str]] = field(default_factory=list)
    in_flight: list[tuple[float, int]] = field(default_factory=list)
    whole: int = 0
    cut: int = 0

    @property
    def gone(self) -> bool:
        """Whether the API server has it no longer."""
        return self.state == "gone"


@dataclass(frozen=True, slots=True)
class Ended:
    """One stream that did not end well."""

    at: float
    pod: str | None
    result: str
    tokens: int


@dataclass(slots=True)
class Tally:
    """Pods, streams and the service's own status. `changes` collects sentences about what is new."""

    pods: dict[str, Pod] = field(default_factory=dict)
    whole: int = 0
    failed: list[Ended] = field(default_factory=list)
    service: Mapping[str, Any] = field(default_factory=dict)
    changes: list[str] = field(default_factory=list)
    most_pods: int = 0
    applied: float | None = None
    finished: float | None = None
    ended: float | None = None
    _known: set[str] = field(default_factory=set)
    _message: str = ""

    # -- what is so now

    @property
    def present(self) -> list[Pod]:
        """The pods that the API server has."""
        return [pod for pod in self.pods.values() if not pod.gone]

    @property
    def running(self) -> int:
        """Streams in flight on all pods."""
        return sum(len(pod.running) for pod in self.present)

    @property
    def cut(self) -> int:
        """Streams that ended before their end."""
        return sum(ended.result == "cut" for ended in self.failed)

    @property
    def refused(self) -> int:
        """Requests that were refused or reset."""
        return sum(ended.result == "refused" for ended in self.failed)

    @property
    def lost_tokens(self) -> int:
        """Tokens of the streams that were cut."""
        return sum(ended.tokens for ended in self.failed)

    def serving(self, tag: str | None = None) -> int:
        """Pods that serve, with this image; None: with any."""
        return sum(pod.state == "serving" and tag in (None, pod.tag) for pod in self.present)

    # -- what happens

    def list_pods(self, objects: Sequence[Mapping[str, Any]], now: float, clock: float) -> None:
        """All pods there are; what is missing has gone."""
        names = {body["metadata"]["name"] for body in objects}
        for pod in self.present:
            if pod.name not in names:
                self.pod_gone(pod.name, now)
        for body in objects:
            self.pod(body, now, clock)

    def pod(self, body: Mapping[str, Any], now: float, clock: float) -> None:
        """A pod as it is now; `clock` is the wall clock, in which the API's deadlines are."""
        name = body["metadata"]["name"]
        state = pod_state(body)
        pod = self.pods.get(name)
        if pod is None:
            pod = self.pods[name] = Pod(name, image_of(body), "", now)
        pod.deadline = _deadline(body, now, clock)
        if pod.state != state:
            before = f"{pod.state} -> " if pod.state else ""
            held = f", {len(pod.running)} streams in flight" if pod.running else ""
            self.changes.append(f"{name} ({pod.tag}): {before}{state}{held}")
            pod.state, pod.since = state, now
            pod.states.append((now, state))
        # Terminating ones included: each still holds its memory, and its device.
        self.most_pods = max(self.most_pods, len(self.present))

    def pod_gone(self, name: str, now: float) -> None:
        """The API server no longer has this pod."""
        pod = self.pods.get(name)
        if pod is None or pod.gone:
            return
        self.changes.append(f"{name} ({pod.tag}): {pod.state} -> gone")
        pod.state, pod.since = "gone", now
        pod.states.append((now, "gone"))
        self._count(pod, now, set())

    def server_line(self, name: str, line: str, now: float) -> None:
        """A line of a pod's own log: which streams it has. A repeated line changes nothing in the end."""
        pod = self.pods.get(name)
        event = _object(line)
        if pod is None or pod.gone:
            return
        if event.get("event") == "stream-start":
            self._count(pod, now, pod.running | {event["id"]})
        elif event.get("event") == "stream-end":
            self._count(pod, now, pod.running - {event["id"]})

    def load_line(self, line: str, now: float) -> None:
        """A line of the load client: how one stream ended, as its client saw it."""
        event = _object(line)
        result, identity = event.get("result"), event.get("id")
        if result is None or identity is None or identity in self._known:
            return
        self._known.add(identity)
        pod = self.pods.get(event.get("pod") or "")
        if result == "complete":
            self.whole += 1
            if pod:
                pod.whole += 1
            return
        if pod and result == "cut":
            pod.cut += 1
        self.failed.append(Ended(now, event.get("pod"), result, event.get("tokens", 0)))
        self.changes.append(f"a stream was {result} ({event.get('by')}) by {event.get('pod') or 'nobody'}")

    def llmservice(self, body: Mapping[str, Any]) -> None:
        """The service as it is now, status included."""
        self.service = body
        message = str(body.get("status", {}).get("message", ""))
        if message != self._message:
            self._message = message
            self.changes.append(f"{body['metadata']['name']} is {body['status'].get('phase')}: {message}")

    @staticmethod
    def _count(pod: Pod, now: float, running: set[str]) -> None:
        if len(running) != len(pod.running):
            pod.in_flight.append((now, len(running)))
        pod.running = running


def pod_state(body: Mapping[str, Any]) -> str:
    """starting, serving, draining, drained or terminating: one word for where a pod is."""
    if body["metadata"].get("deletionTimestamp"):
        return "terminating"
    label = body["metadata"].get("labels", {}).get(STATE, "serving")
    if label != "serving":
        return str(label)
    conditions = body.get("status", {}).get("conditions", [])
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    return "serving" if ready else "starting"


def _deadline(body: Mapping[str, Any], now: float, clock: float) -> float | None:
    drain = _object(body["metadata"].get("annotations", {}).get(DRAIN, ""))
    text = drain.get("deadline")
    if not isinstance(text, str):
        return None
    return datetime.fromisoformat(text).timestamp() - clock + now


def _object(text: str) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}

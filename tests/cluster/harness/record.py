"""The order of events: a watch from a fixed resourceVersion, and what was true after each of them."""

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tidegate.api import names
from tidegate.api.conditions import PodState

from .kube import DEPLOYMENTS, PODS, SLICES, Kube, Object, eventually, kubectl_command

Test = Callable[[Object], bool]
SLICE = "EndpointSlice"


@dataclass(frozen=True, slots=True, repr=False)
class Event:
    """One change. `version` is the store's own revision, which orders the events of all kinds among each other."""

    version: int
    kind: str
    type: str
    object: Object

    @property
    def name(self) -> str:
        return str(self.object["metadata"]["name"])

    def __repr__(self) -> str:
        if self.kind == SLICE:
            return f"{self.version} {self.type} {self.kind} {self.name} of {sorted(listed(self.object))}"
        status, ready = state(self.object), "Ready" if is_ready(self.object) else "not Ready"
        more = f" state={status} {ready}" if self.kind == "Pod" else f" replicas={self.object['spec'].get('replicas')}"
        return f"{self.version} {self.type} {self.kind} {self.name}{more}{' terminating' * is_going(self.object)}"


@dataclass(frozen=True, slots=True, repr=False)
class Moment:
    """All pods as they were after `event`; the first moment, before all events, has none."""

    event: Event | None
    pods: dict[str, Object]

    def count(self, test: Test) -> int:
        return sum(map(test, self.pods.values()))

    def __repr__(self) -> str:
        rows = (f"{n}: {state(p)}{', Ready' * is_ready(p)}{', going' * is_going(p)}" for n, p in self.pods.items())
        return f"after {self.event}: " + "; ".join(rows)


def state(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get(names.STATE, ""))


def is_going(item: Object) -> bool:
    return "deletionTimestamp" in item["metadata"]


def is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def is_serving(pod: Object) -> bool:
    """Takes new requests and is not about to go. A pod without our labels serves while it is Ready."""
    return state(pod) in (PodState.SERVING, "") and is_ready(pod) and not is_going(pod)


def is_draining(pod: Object) -> bool:
    return state(pod) == PodState.DRAINING and not is_going(pod)


def is_standing(pod: Object) -> bool:
    """Not terminating: what maxSurge counts."""
    return not is_going(pod)


def may_hold_a_device(pod: Object) -> bool:
    """Not terminating, or with a container that runs still."""
    states = [status.get("state") or {} for status in pod["status"].get("containerStatuses") or []]
    return not is_going(pod) or any("running" in state for state in states)


def listed(item: Object) -> set[str]:
    """Uids of the pods to which the Service of this slice sends new connections."""
    ready = (e for e in item.get("endpoints") or [] if (e.get("conditions") or {}).get("ready"))
    return {str(e["targetRef"]["uid"]) for e in ready if "targetRef" in e}


class Record:
    """Pods, Deployments and EndpointSlices that `labels` select, from the moment of its making until `close`.

    A slice carries the labels of its Service.
    """

    def __init__(self, kube: Kube, namespace: str, labels: str) -> None:
        self._kube, self._labels = kube, labels
        paths = {"Pod": PODS, "Deployment": DEPLOYMENTS, SLICE: SLICES}
        self._paths = {kind: path.format(namespace) for kind, path in paths.items()}
        self._events: list[Event] = []
        self._first: dict[str, dict[str, Object]] = {}
        self._newest: dict[str, dict[str, Object]] = {}
        self._watches: list[subprocess.Popen[str]] = []
        self._readers: list[threading.Thread] = []
        for kind, path in self._paths.items():
            found = kube.get(path, labelSelector=labels)
            assert found is not None
            self._first[kind] = {item["metadata"]["name"]: item for item in found["items"]}
            self._newest[kind] = dict(self._first[kind])
            self._watch(kind, path, found["metadata"]["resourceVersion"])

    def _watch(self, kind: str, path: str, version: str) -> None:
        query = f"watch=1&resourceVersion={version}&timeoutSeconds=3600&labelSelector={self._labels}"
        watch = subprocess.Popen(kubectl_command("get", "--raw", f"/{path}?{query}"), stdout=subprocess.PIPE, text=True)
        reader = threading.Thread(target=self._read, args=(kind, watch), daemon=True)
        self._watches.append(watch)
        self._readers.append(reader)
        reader.start()

    def _read(self, kind: str, watch: subprocess.Popen[str]) -> None:
        assert watch.stdout is not None
        for line in watch.stdout:
            body: dict[str, Any] = json.loads(line)
            item = body["object"]
            event = Event(int(item["metadata"].get("resourceVersion", 0)), kind, body["type"], item)
            self._events.append(event)
            if event.type == "DELETED":
                self._newest[kind].pop(event.name, None)
            elif event.type != "ERROR":
                self._newest[kind][event.name] = item

    def catch_up(self) -> None:
        """Wait until everything that has happened up to now is in the record."""
        eventually("the record has seen what a list shows", self._caught_up)

    def _caught_up(self) -> bool:
        broken = [event.object.get("message") for event in list(self._events) if event.type == "ERROR"]
        assert not broken and all(watch.poll() is None for watch in self._watches), f"the record has a hole: {broken}"
        for kind, path in self._paths.items():
            seen = {name: item["metadata"]["resourceVersion"] for name, item in list(self._newest[kind].items())}
            there = self._kube.items(path, labelSelector=self._labels)
            if seen != {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in there}:
                return False
        return True

    def close(self) -> None:
        for watch in self._watches:
            watch.terminate()
            watch.wait()
        for reader in self._readers:
            reader.join()

    # -- questions, to be asked after catch_up

    def events(self, kind: str | None = None) -> list[Event]:
        """In the order in which the store took them."""
        return sorted((e for e in list(self._events) if kind in (None, e.kind)), key=lambda event: event.version)

    def first(self, kind: str) -> list[Object]:
        """What there was before all events."""
        return list(self._first[kind].values())

    def moments(self) -> Iterator[Moment]:
        """The state before all events, then after each event of a pod."""
        pods = dict(self._first["Pod"])
        yield Moment(None, dict(pods))
        for event in self.events("Pod"):
            if event.type == "DELETED":
                pods.pop(event.name, None)
            else:
                pods[event.name] = event.object
            yield Moment(event, dict(pods))

    def fewest(self, test: Test) -> tuple[int, Moment]:
        """The lowest count of such pods, and the moment when it was reached."""
        return min(((moment.count(test), moment) for moment in self.moments()), key=lambda found: found[0])

    def most(self, test: Test) -> tuple[int, Moment]:
        return max(((moment.count(test), moment) for moment in self.moments()), key=lambda found: found[0])

    def assert_bounds(self, *, serving: int, standing: int) -> None:
        """At every event: at least so many pods serve, at most so many do not terminate."""
        fewest, moment = self.fewest(is_serving)
        assert fewest >= serving, str(moment)
        most, moment = self.most(is_standing)
        assert most <= standing, str(moment)

    def removals(self) -> list[Event]:
        """The event by which each pod began to go: its first with a deletionTimestamp, or its end without one."""
        gone: dict[str, Event] = {}
        for event in self.events("Pod"):
            if is_going(event.object) or event.type == "DELETED":
                gone.setdefault(event.object["metadata"]["uid"], event)
        return list(gone.values())

    def ends(self) -> list[Event]:
        """The event by which each pod that went held nothing any more: its containers had ended, or it was gone."""
        ended: dict[str, Event] = {}
        for event in self.events("Pod"):
            if event.type == "DELETED" or not may_hold_a_device(event.object):
                ended.setdefault(event.object["metadata"]["uid"], event)
        return list(ended.values())

    def creations(self) -> list[Event]:
        return [event for event in self.events("Pod") if event.type == "ADDED"]

    def drained_pods(self) -> list[str]:
        """Names of the pods that were withdrawn, in order."""
        found = (e.name for e in self.events("Pod") if state(e.object) == PodState.DRAINING)
        return list(dict.fromkeys(found))

    def routed(self) -> set[str]:
        """Names of the pods that get new connections by what is known last."""
        uids = set().union(*(listed(item) for item in self._newest[SLICE].values()))
        return {name for name, pod in self._newest["Pod"].items() if pod["metadata"]["uid"] in uids}

    def unroutable(self) -> list[Event]:
        """Each event by which a pod began to be Ready and serving and that no slice answered before it was over.

        What is not over is asked of the last slices there are, so nothing may be about to change.
        """
        slices, open_, found = dict(self._first[SLICE]), dict[str, Event](), []
        for event in self.events():
            uid = event.object["metadata"]["uid"]
            if event.kind == SLICE:
                slices[event.name] = event.object if event.type != "DELETED" else {}
            elif event.kind == "Pod" and event.type != "DELETED" and is_serving(event.object):
                open_.setdefault(uid, event)
            elif uid in open_:
                found.append(open_.pop(uid))
            routed = set().union(*map(listed, slices.values()))
            open_ = {uid: event for uid, event in open_.items() if uid not in routed}
        return found + list(open_.values())


MakeRecord = Callable[[str], Record]
"""The fixture `record`: begins a record of what a label selector selects in the test's namespace."""

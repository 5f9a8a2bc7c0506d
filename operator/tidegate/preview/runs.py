"""One pod on its node: its image, its container, and the status that tells of them."""

from dataclasses import dataclass

from tidegate.api import names
from tidegate.cluster.port import Object
from tidegate.core.state import times
from tidegate.preview.pods import Process


@dataclass(slots=True)
class Image:
    """How containers of an image behave. Seconds."""

    schedulable: bool = True
    """Whether a node has room for it."""
    pull: float = 0.3
    pullable: bool = True
    boot: float = 0.5
    """From start until it answers /livez, so that its startup probe passes."""
    load: float = 3.0
    """From start until it is ready."""
    never_ready: bool = False
    crash_after: float | None = None
    stop: float = 0.3
    """From the seal, or its last token, until the process has gone."""
    conduct: str = "honest"


class PodRun:
    """One pod on its node."""

    def __init__(self, uid: str, key: tuple[str, str], ip: str, node: str) -> None:
        self.uid, self.key, self.ip, self.node = uid, key, ip, node
        self.process: Process | None = None
        self.started = False
        self.ready_since: float | None = None
        self.unready_since = 0.0
        self.scheduled_at = 0.0
        self.restarts = 0
        self.waiting = ("ContainerCreating", "")
        self.exit_code: int | None = None
        self.exited_at: float | None = None
        self.terminating = False
        self.over = False
        self.kill_at = 0.0
        self.image = Image()
        self.container: Object = {}
        self.gateway: Object | None = None
        """The sidecar that speaks for the container, where there is one: then `process` is its."""
        self.gateway_restarts = 0
        self.up = False
        """Whether the serving container runs."""


def status(run: PodRun, live: Object) -> Object:
    """The status that the kubelet writes; `live` is the pod as it is stored."""
    return {
        "phase": "Running" if run.process is not None else "Pending",
        "podIP": run.ip,
        "conditions": _conditions(run, live),
        "containerStatuses": [_container(run)],
        "initContainerStatuses": [_sidecar(run)] if run.gateway is not None else [],
    }


def _conditions(run: PodRun, live: Object) -> list[Object]:
    since = run.unready_since if run.ready_since is None else run.ready_since
    ready: Object = {
        "type": "Ready",
        "status": "False" if run.ready_since is None else "True",
        "lastTransitionTime": times.short(since),
    }
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": times.short(run.scheduled_at)}
    kept = [c for c in live["status"].get("conditions") or [] if c["type"] == "DisruptionTarget"]
    return [scheduled, ready, *kept]


def _container(run: PodRun) -> Object:
    state: Object
    if run.up:
        state = {"running": {}}
    elif run.waiting[0]:
        state = {"waiting": {"reason": run.waiting[0], "message": run.waiting[1]}}
    else:
        state = {"terminated": {"exitCode": run.exit_code, "reason": "Error"}}
        if run.exited_at is not None:
            state["terminated"] |= {"exitCode": 0, "reason": "Completed", "finishedAt": times.short(run.exited_at)}
    container = {
        "name": run.container["name"],
        "ready": run.ready_since is not None,
        "started": run.started and run.up,
        "restartCount": run.restarts,
        "state": state,
    }
    if run.exit_code is not None:
        container["lastState"] = {"terminated": {"exitCode": run.exit_code, "reason": "Error"}}
    return container


def _sidecar(run: PodRun) -> Object:
    speaks = run.process is not None and run.process.alive
    return {
        "name": names.GATEWAY,
        "ready": run.ready_since is not None,
        "started": speaks,
        "restartCount": run.gateway_restarts,
        "state": {"running": {}} if speaks else {"waiting": {"reason": "PodInitializing"}},
    }

"""The operator in the cluster, installed from manifests/ under its shipped role, as a user installs it."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from .audit import OPERATOR, Audit
from .inside import processes
from .kube import CHECKOUT, PATIENCE_SECONDS, PODS, Kube, Object, eventually

NAMESPACE, NAME = "tidegate-system", "tidegate-operator"
SELECTOR = f"app.kubernetes.io/name={NAME}"
INSTALLED = ("manifests/cluster", "manifests/operator")
FORBIDDEN = re.compile(r"(?i)\bforbidden\b|HTTP 403")
DYING = "because it is being terminated"
"""What a dying namespace refuses it refuses to everyone, whatever their role."""


class Operator:
    """The running operator; `restart` and `kill` leave another process in its place."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._audit = Audit(kube.audit_log)
        self._past_logs: list[str] = []
        self._refused: list[str] = []

    def install(self) -> None:
        """CRD, policies, role and Deployment; a Deployment that is there gets a fresh pod, as its tag may be new."""
        before = self._pods()
        self._kube.install_crd()
        for directory in INSTALLED:
            self._kube.must("apply", "--server-side", "--force-conflicts", "-k", str(CHECKOUT / directory))
        if before:
            self._kube.must("-n", NAMESPACE, "delete", "pod", "-l", SELECTOR, "--wait=true")
        self.wait_running()

    def uninstall(self) -> None:
        """Remove the operator alone; CRD and policies stay, as docs tell users."""
        self._kube.must("delete", "-k", str(CHECKOUT / INSTALLED[-1]), f"--timeout={PATIENCE_SECONDS:.0f}s")

    def wait_running(self) -> Object:
        """The pod, once it runs and has said that it has seen the cluster."""

        def running() -> Object | None:
            pods = [pod for pod in self._pods() if "deletionTimestamp" not in pod["metadata"]]
            return pods[0] if len(pods) == 1 and _is_running(pods[0]) else None

        pod = eventually("the operator runs", running)
        eventually("the operator has listed the cluster", lambda: "first list is in" in self.log())
        return pod

    def restart(self) -> None:
        """Delete its pod, which gets SIGTERM, and wait for the next."""
        self._past_logs.append(self.log())
        self._kube.must("-n", NAMESPACE, "delete", "pod", "-l", SELECTOR, "--wait=true")
        self.wait_running()

    def kill(self) -> None:
        """SIGKILL, as when a node is short of memory; wait for the container's next start (the kubelet backs off)."""
        pod = self.wait_running()
        self._past_logs.append(self.log())
        before = _restarts(pod)
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)

        def again() -> bool:
            now = self._kube.get(f"{PODS.format(NAMESPACE)}/{pod['metadata']['name']}")
            return bool(now and _restarts(now) > before and _is_running(now))

        eventually("the kubelet starts the killed operator again", again)
        self.wait_running()

    def processes(self) -> list[int]:
        """The process ids, for a SIGKILL at a moment of the test's own choice."""
        return [pid for pod in self._pods() for pid in processes(pod["metadata"]["uid"], b"tidegate")]

    def stop(self) -> None:
        """Scale it to 0 and wait until no process is left. `start` brings it back."""
        self._past_logs.append(self.log())
        self._kube.must("-n", NAMESPACE, "scale", f"deployment/{NAME}", "--replicas=0")
        eventually("the operator is gone", lambda: not self._pods())

    def start(self) -> None:
        self.start_unready()
        self.wait_running()

    def start_unready(self) -> None:
        """Start it where it cannot get Ready."""
        self._kube.must("-n", NAMESPACE, "scale", f"deployment/{NAME}", "--replicas=1")

    @contextmanager
    def without_role(self) -> Iterator[None]:
        """Take its role away while inside. What is refused meanwhile is meant to be, and not among `refused_calls`."""
        self._refused += self.refused_calls()
        self._kube.must("delete", "clusterrolebinding", NAME)
        try:
            yield
        finally:
            self._kube.must("apply", "--server-side", "--force-conflicts", "-k", str(CHECKOUT / INSTALLED[-1]))
            # Its log holds refusals that are meant, so it gets a new one.
            self._kube.must("-n", NAMESPACE, "delete", "pod", "-l", SELECTOR, "--wait=true")
            self._past_logs.clear()
            self._audit = Audit(self._kube.audit_log)

    def log(self, *, previous: bool = False) -> str:
        more = ("--previous",) if previous else ()
        return self._kube.kubectl("-n", NAMESPACE, "logs", f"deployment/{NAME}", "--tail=-1", *more).stdout

    def refused_calls(self) -> list[str]:
        """Requests that were answered 403, since this object was made.

        Writes are in the audit log. It leaves reads out, and the API server's metrics count none that authorization
        refused, so for those the operator's own log is asked.
        """
        refused = [call for call in self._audit.calls(user=OPERATOR) if call.code == 403]
        writes = [str(call) for call in refused if DYING not in call.message]
        lines = [line for text in (*self._past_logs, self.log()) for line in text.splitlines()]
        return self._refused + writes + [line for line in lines if FORBIDDEN.search(line) and DYING not in line]

    def _pods(self) -> list[Object]:
        return self._kube.items(PODS.format(NAMESPACE), labelSelector=SELECTOR)


def _is_running(pod: Object) -> bool:
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    return bool(statuses) and all("running" in s["state"] and s["ready"] for s in statuses)


def _restarts(pod: Object) -> int:
    return sum(s["restartCount"] for s in (pod.get("status") or {}).get("containerStatuses") or [])

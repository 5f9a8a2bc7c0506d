"""Scheduler and kubelets: from Pending to Ready by the script of the image, probes, restarts, and termination."""

import asyncio
from dataclasses import replace
from random import Random
from typing import Any

from tidegate.api import names
from tidegate.api.errors import NotFound
from tidegate.cluster.port import PODS, Kind, Object
from tidegate.contract.terms import State
from tidegate.core.state import times
from tidegate.preview.apiserver import Server
from tidegate.preview.network import Network
from tidegate.preview.pods import Ledger, Process, of_gateway, of_service
from tidegate.preview.runs import Image, PodRun, status

SCHEDULER = "default-scheduler"
NO_NODE = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."


class Kubelet:
    """All nodes. `capacity`: pods that fit, terminating ones included; None: any number."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, server: Server, rng: Random, network: Network, ledger: Ledger
    ) -> None:
        self._loop, self._server, self._rng = loop, server, rng
        self._network, self._ledger = network, ledger
        self.images: dict[str, Image] = {}
        self.ordinary = Image()
        """How a container behaves whose image is none of `images` yet."""
        self.capacity: int | None = None
        self.device_lag = 1.0
        """Seconds for which a pod that is gone still holds its device."""
        self.runs: dict[str, PodRun] = {}
        self.doomed: dict[str, str] = {}
        """uid -> why, for pods that lost streams by no fault of the operator: crashed, vanished, killed."""
        self.of_service = of_service
        """Makes the contract that a serving container speaks itself, of the container and the name of its run."""
        self._held = 0
        self._ips = 0
        server.watchers.append(self._event)

    def process(self, uid: str) -> Process | None:
        """What speaks the contract in the pod of this uid, if it runs."""
        run = self.runs.get(uid)
        return run.process if run is not None else None

    def _event(self, event: str, kind: Kind, raw: Object) -> None:
        if kind is not PODS:
            return
        uid = raw["metadata"]["uid"]
        if event == "ADDED":
            self._later(0.005, 0.03, self._schedule, uid, raw)
        elif event == "DELETED":
            self._gone(uid)
        elif "deletionTimestamp" in raw["metadata"]:
            run = self.runs.get(uid)
            if run is not None and not run.terminating:
                run.terminating = True
                run.kill_at = (times.parse(raw["metadata"]["deletionTimestamp"]) or 0.0) - self._server.now()
                run.kill_at += self._loop.time()
                self._later(0.01, 0.05, self._terminate, run)

    def _later(self, low: float, high: float, call: Any, *args: Any) -> asyncio.TimerHandle:
        return self._loop.call_later(low + (high - low) * self._rng.random(), call, *args)

    # -- scheduling

    def _schedule(self, uid: str, raw: Object) -> None:
        key = (raw["metadata"]["namespace"], raw["metadata"]["name"])
        live = self._server.find(PODS, *key)
        if live is None or live["metadata"]["uid"] != uid or "nodeName" in live["spec"]:
            return
        if live["spec"].get("schedulerName", SCHEDULER) != SCHEDULER:
            return
        self._server.writer = "scheduler"
        serving = live["metadata"]["annotations"][names.CONTAINER]
        container = next(c for c in live["spec"]["containers"] if c["name"] == serving)
        image = self.images.setdefault(container["image"], replace(self.ordinary))
        if not image.schedulable or (self.capacity is not None and self._held >= self.capacity):
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": NO_NODE}
            self._server.status(PODS, *key, {"phase": "Pending", "conditions": [condition]})
            self._later(0.5, 1.5, self._schedule, uid, raw)
            return
        self._held += 1
        self._ips += 1
        node = f"node-{self._ips % 3}"
        run = PodRun(uid, key, f"10.0.{self._ips // 250}.{self._ips % 250 + 1}", node)
        run.scheduled_at = run.unready_since = self._server.now()
        self.runs[uid] = run
        self._server.replace(PODS, {**live, "spec": {**live["spec"], "nodeName": node}}, subresource="binding")
        run.container, run.image = container, image
        sidecars = live["spec"].get("initContainers") or []
        run.gateway = next((c for c in sidecars if c["name"] == names.GATEWAY), None)
        self._write(run)
        self._later(run.image.pull, run.image.pull + 0.1, self._pull, run)

    def _gone(self, uid: str) -> None:
        run = self.runs.pop(uid, None)
        if run is None:
            return
        run.over, run.up = True, False
        self._network.hosts.pop(run.ip, None)
        if run.process is not None and run.process.alive:
            self.doomed.setdefault(uid, "removed by force")
            run.process.die("removed by force")
        self._loop.call_later(self.device_lag, self._free)

    def _free(self) -> None:
        self._held -= 1

    # -- running

    def _pull(self, run: PodRun) -> None:
        if run.over or run.terminating:
            return
        image = self.images[run.container["image"]]
        if not image.pullable:
            run.waiting = ("ImagePullBackOff", f'Back-off pulling image "{run.container["image"]}"')
            self._write(run)
            self._later(10, 20, self._pull, run)
            return
        run.image = image
        self._start(run)

    def _start(self, run: PodRun) -> None:
        if run.over or run.terminating:
            return
        image = run.image = self.images[run.container["image"]]
        process = run.process
        if run.gateway is None or process is None or not process.alive:
            process = self._speak(run)
        process.conduct = image.conduct
        run.up, run.started, run.waiting = True, False, ("", "")
        self._write(run)
        self._loop.call_later(image.boot, self._booted, run, run.restarts)
        if not image.never_ready:
            self._loop.call_later(image.load, self._loaded, run, run.restarts)
        if image.crash_after is not None:
            self._loop.call_later(image.crash_after, self._crash_again, run, run.restarts)

    def _speak(self, run: PodRun) -> Process:
        """Start what speaks the contract for this pod."""
        instance = f"{run.uid}-{run.restarts}-{run.gateway_restarts}"
        contract = (
            self.of_service(run.container, instance) if run.gateway is None else of_gateway(run.gateway, instance)
        )
        process = Process(self._loop, self._ledger, run.uid, contract)
        process.changed = lambda: self._changed(run, process)
        run.process = self._network.hosts[run.ip] = process
        return process

    def _booted(self, run: PodRun, number: int) -> None:
        if run.up and run.restarts == number and not run.over:
            run.started = True
            if run.gateway is not None and run.process is not None and run.process.alive:
                run.process.find_engine()
            self._write(run)
            if run.process is not None:
                # What could serve before the startup probe had passed is asked by the readiness probe from here on.
                self._changed(run, run.process)

    def _loaded(self, run: PodRun, number: int) -> None:
        process = run.process
        if run.up and run.restarts == number and process is not None and process.alive:
            process.contract.started()
            process.touch()

    def _changed(self, run: PodRun, process: Process) -> None:
        """The process says something else of itself: the readiness probe notices within its period and threshold."""
        if process.ready != (run.ready_since is not None):
            low, high = (0.1, 2.0) if process.ready else (2.0, 4.0)
            self._later(low, high, self._probe, run, process)
        if run.terminating:
            self._stop(run)

    def _probe(self, run: PodRun, process: Process) -> None:
        if run.over or run.process is not process or not process.alive:
            return
        if process.ready and run.ready_since is None and run.started:
            run.ready_since = self._server.now()
        elif not process.ready and run.ready_since is not None:
            self._unready(run)
        else:
            return
        self._write(run)

    def _unready(self, run: PodRun) -> None:
        if run.ready_since is not None:
            run.ready_since, run.unready_since = None, self._server.now()

    def sicken(self, uid: str, healthy: bool) -> None:
        """Readiness fails, or recovers, while the streams go on."""
        run, process = self._running(uid)
        process.healthy = healthy
        self._changed(run, process)

    def _crash_again(self, run: PodRun, number: int) -> None:
        if run.restarts == number:
            self.crash(run.uid)

    def crash(self, uid: str) -> None:
        """The container exits with an error and starts again, with the kubelet's backoff."""
        run = self.runs.get(uid)
        if run is None or run.process is None or not run.up:
            return
        self.doomed[uid] = "crashed"
        run.up = False
        if run.gateway is None:
            run.process.die("crashed")
            self._network.hosts.pop(run.ip, None)
        elif run.process.alive:
            run.process.lose_engine("crashed")
        run.started, run.exit_code = False, 1
        self._unready(run)
        run.restarts += 1
        if run.terminating:
            self._finish(run)
            return
        backoff = 0.5 if run.restarts == 1 else min(10.0 * 2 ** (run.restarts - 2), 300.0)
        if run.restarts > 1:
            run.waiting = ("CrashLoopBackOff", f"back-off {backoff:.0f}s restarting failed container")
        self._write(run)
        self._loop.call_later(backoff, self._start, run)

    def _running(self, uid: str) -> tuple[PodRun, Process]:
        run = self.runs[uid]
        if run.process is None:
            raise ValueError(f"pod {uid} runs nothing yet")
        return run, run.process

    def crash_gateway(self, uid: str, back_after: float = 1.0) -> None:
        """The sidecar exits; the engine behind it goes on, and loses every client."""
        run, process = self._running(uid)
        self.doomed[uid] = "lost its gateway"
        process.die("lost its gateway")
        self._network.hosts.pop(run.ip, None)
        self._unready(run)
        run.gateway_restarts += 1
        self._write(run)
        self._loop.call_later(back_after, self._start_gateway, run)

    def _start_gateway(self, run: PodRun) -> None:
        if run.over or run.terminating:
            return
        self._speak(run)
        self._write(run)
        # It finds the engine as it is.
        self._loop.call_later(0.3, self._loaded, run, run.restarts)

    # -- ending

    def vanish(self, uid: str) -> None:
        """Its node dies: the pod's process is lost, and the pod garbage collector removes the object."""
        run = self.runs[uid]
        self.doomed[uid] = "vanished"
        run.up = False
        if run.process is not None and run.process.alive:
            run.process.die("vanished")
        self._network.hosts.pop(run.ip, None)
        self._server.writer = "pod-garbage-collector"
        live = self._server.get(PODS, *run.key)
        self._server.status(PODS, *run.key, {**live["status"], "phase": "Failed"})
        self._server.delete(PODS, *run.key, {"gracePeriodSeconds": 0})

    def _terminate(self, run: PodRun) -> None:
        if run.over:
            return
        process = run.process
        if process is None or not process.alive:
            self._finish(run)
            return
        process.contract.prestop(self._loop.time())
        process.touch()
        self._loop.call_at(max(run.kill_at, self._loop.time()), self._kill, run)
        self._stop(run)

    def _stop(self, run: PodRun) -> None:
        process = run.process
        if process is None or not process.alive or run.over:
            return
        now = self._loop.time()
        if not process.contract.terminating and process.contract.prestop_over(now):
            process.contract.sigterm(now)
            process.touch()
        if process.contract.terminating and process.state is State.SEALED:
            self._loop.call_later(run.image.stop, self._finish, run)

    def _kill(self, run: PodRun) -> None:
        if not run.over:
            if run.process is not None and run.process.alive and run.process.in_flight:
                self.doomed.setdefault(run.uid, "killed when its grace was over")
            self._finish(run)

    def _finish(self, run: PodRun) -> None:
        if run.over:
            return
        if run.process is not None and run.process.alive:
            run.process.die("killed")
            run.up, run.exited_at = False, self._server.now()
            self._write(run)
        run.over, run.up = True, False
        self._network.hosts.pop(run.ip, None)
        self._later(0.05, 0.3, self._remove, run)

    def _remove(self, run: PodRun) -> None:
        live = self._server.find(PODS, *run.key)
        if live is not None and live["metadata"]["uid"] == run.uid:
            self._server.writer = "kubelet"
            self._server.remove(PODS, live)

    # -- status

    def _write(self, run: PodRun) -> None:
        self._server.writer = "kubelet"
        try:
            live = self._server.get(PODS, *run.key)
        except NotFound:
            return
        if live["metadata"]["uid"] == run.uid:
            self._server.status(PODS, *run.key, status(run, live))

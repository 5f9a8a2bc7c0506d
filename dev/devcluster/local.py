"""The local cluster: real Kubernetes components on this machine, without Docker."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from .binary import Binary, build_binary, find_binary
from .cgroups import ClusterCgroups
from .components import Starter
from .configs import Node
from .errors import ClusterError, Interrupted
from .image_import import import_image
from .layout import Layout, cache_dir
from .locking import exclusive
from .prerequisites import check_machine, check_root
from .processes import Launcher, ProcessRecord, read_records, write_atomically
from .sandbox import HOLDER, open_sandbox, run_inside
from .waiting import wait_for

DEFAULT_NODES = 2


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """The cluster of one layout. Nothing is kept in memory: every call reads what is on disk and in /proc."""

    layout: Layout

    name = "local"

    def exists(self) -> bool:
        """True when an `up` began here and no `down` has ended it."""
        return self.layout.run.exists()

    def up(self, nodes: int | None) -> None:
        """Bring the cluster up; a healthy one is left alone, the rest of a dead one is cleared first."""
        check_machine()
        binary = build_binary()
        with self._locked():
            if self.exists():
                if self._healthy(nodes):
                    print(f"the cluster is up: {len(self.nodes())} nodes", file=sys.stderr)
                    return
                print("clearing what an earlier cluster left", file=sys.stderr)
            self._clear()
            with _interruptible():
                try:
                    self._start(binary, [Node(f"node-{i}", i) for i in range(1, (nodes or DEFAULT_NODES) + 1)])
                except BaseException as error:
                    if not isinstance(error, (Interrupted, KeyboardInterrupt)):
                        self._keep_logs()
                    self._clear()
                    raise

    def down(self) -> None:
        """Remove everything; does nothing where there is nothing."""
        check_root()
        with self._locked():
            self._clear()
            self.layout.lock.unlink(missing_ok=True)

    def kubeconfig(self) -> Path:
        """The administrator's. Raises ClusterError when no cluster is up."""
        self._holder()
        return self.layout.kubeconfig

    def nodes(self) -> list[str]:
        """Names of the nodes; none while the cluster is not up."""
        return json.loads(self.layout.summary.read_text())["nodes"] if self.layout.summary.exists() else []

    def status(self) -> dict[str, object]:
        """What tools need to know; `components` maps each process to whether it lives."""
        up = self.layout.summary.exists()
        records = read_records(self.layout.run / "pids") if self.exists() else []
        return {
            "provider": self.name,
            "id": self.layout.id,
            "up": up and all(r.alive for r in records),
            "kubeconfig": str(self.layout.kubeconfig) if up else None,
            "auditLog": str(self.layout.audit_log) if up else None,
            "nodes": self.nodes(),
            "hostPathLogs": str(self.layout.shared_logs) if up else None,
            "network": next((f"/proc/{r.pid}/ns/net" for r in records if r.name == HOLDER and r.alive), None),
            "logs": str(self.layout.logs) if up else None,
            "components": {r.name: r.alive for r in records},
        }

    def kubectl(self, arguments: Sequence[str]) -> list[str]:
        """The command line of kubectl with `arguments`."""
        self._holder()
        binary = find_binary()
        if binary is None:
            raise ClusterError("the Kubernetes binary is gone from the cache: run `dev/cluster build`")
        return self.inside([str(binary.component("kubectl")), "--kubeconfig", str(self.layout.kubeconfig), *arguments])

    def inside(self, command: Sequence[str]) -> list[str]:
        """`command` as it reaches pods, Services and the API server."""
        return run_inside(self._holder(), command)

    def load(self, archive: Path) -> None:
        """Import an image archive on every node."""
        self._holder()
        for node in self.nodes():
            import_image(self.layout, node, archive)

    def image_stamps(self) -> Path | None:
        """Where dev/image notes what it has loaded; it must not outlive the cluster."""
        return self.layout.run / "images"

    def _holder(self) -> ProcessRecord:
        check_root()
        records = read_records(self.layout.run / "pids") if self.exists() else []
        for record in records:
            if record.name == HOLDER and record.alive:
                return record
        raise ClusterError("no cluster is up here: run `dev/cluster up`")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with exclusive(self.layout.lock, "another `dev/cluster` of this checkout"):
            yield

    def _healthy(self, nodes: int | None) -> bool:
        state = self.status()
        if not state["up"]:
            return False
        if nodes is not None and nodes != len(self.nodes()):
            raise ClusterError(
                f"the cluster is up with {len(self.nodes())} nodes, not {nodes}: run `dev/cluster down` first, "
                "or `up` without --nodes to keep it"
            )
        command = self.kubectl(["get", "--raw", "/readyz", "--request-timeout=10s"])
        try:
            # Patient, since to take a slow API server for a dead one would throw a cluster away.
            wait_for("readiness", lambda: _succeeds(command), lambda: None, timeout=60.0)
        except ClusterError:
            return False
        return True

    def _start(self, binary: Binary, nodes: list[Node]) -> None:
        layout = self.layout
        for directory in (layout.run, layout.run / "pids", layout.data, layout.logs):
            directory.mkdir(mode=0o755, parents=True)
        layout.shared_logs.mkdir()
        layout.shared_logs.chmod(0o1777)
        cgroups = ClusterCgroups.here(layout.name)
        cgroups.create([node.name for node in nodes])
        launcher = Launcher(layout.run / "pids", layout.logs, cgroups.procs)
        holder = open_sandbox(layout, launcher, binary)
        starter = Starter(layout, binary, launcher, holder)
        starter.write_credentials(nodes)
        for node in nodes:
            starter.start_containerd(node)
        starter.start_control_plane()
        for node in nodes:
            wait_for(f"containerd of {node.name}", layout.socket(node.name).is_socket, starter.check)
            import_image(layout, node.name, binary.pause_archive)
        self._wait_for_api(starter, ["get", "--raw", "/readyz"])
        starter.start_controllers()
        for node in nodes:
            starter.start_kubelet(node)
        starter.start_proxy(nodes[0])
        self._wait_for_api(starter, ["get", "serviceaccount", "default", "--namespace", "default"])
        for node in nodes:
            ready = "jsonpath={.status.conditions[?(@.type=='Ready')].status}"
            self._wait_for_api(starter, ["get", "node", node.name, "-o", ready], answer="True")
        write_atomically(layout.summary, json.dumps({"nodes": [node.name for node in nodes]}))

    def _wait_for_api(self, starter: Starter, arguments: list[str], answer: str | None = None) -> None:
        command = self.kubectl([*arguments, "--request-timeout=5s"])

        def done() -> bool:
            said = subprocess.run(command, capture_output=True, text=True, check=False)
            return said.returncode == 0 and answer in (None, said.stdout.strip())

        wait_for(f"`kubectl {' '.join(arguments)}`", done, starter.check)

    def _keep_logs(self) -> None:
        """Save the logs of a failed `up`, which `_clear` would take along."""
        if self.layout.logs.exists():
            kept = cache_dir() / "failed" / self.layout.name
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(self.layout.logs, kept, ignore_dangling_symlinks=True)
            print(f"the logs of the failed start are kept in {kept}", file=sys.stderr)

    def _clear(self) -> None:
        """End our processes, then remove what they lived in. Namespaces and mounts go with the processes."""
        cgroups = ClusterCgroups.here(self.layout.name)
        cgroups.kill()
        # A component that was moved out of our cgroup by somebody else is still on record.
        for record in read_records(self.layout.run / "pids"):
            if record.alive:
                os.kill(record.pid, signal.SIGKILL)
        cgroups.remove()
        for directory in (self.layout.data, self.layout.run):
            remove_tree(directory)


def _succeeds(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def remove_tree(directory: Path, timeout: float = 10.0) -> None:
    """Remove a directory that has just been in use: an ending namespace may keep a file busy for a moment."""
    deadline = time.monotonic() + timeout
    while directory.exists():
        try:
            shutil.rmtree(directory)
        except OSError as error:
            if time.monotonic() > deadline:
                raise ClusterError(f"cannot remove {error.filename}: {error.strerror}") from None
            time.sleep(0.05)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into an exception, so that an interrupted `up` clears what it has begun."""

    def stop(number: int, _frame: FrameType | None) -> None:
        raise Interrupted(f"interrupted by {signal.Signals(number).name}")

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

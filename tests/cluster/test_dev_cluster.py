"""dev/cluster itself: whatever happens to an `up`, a `down` or the next `up` leaves nothing of it on the machine.

These clusters have ids of their own and run beside the one that the other tests use.
"""

import contextlib
import json
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from dev.devcluster import cgroups, processes

CHECKOUT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 600  # until a step must have happened; a bound for a hung machine, no claim about speed
FIXED_PATHS = ("/var/lib/kubelet", "/var/lib/cni", "/var/log/containers", "/run/containerd", "/opt/containerd")

pytestmark = pytest.mark.needs_root


@dataclass(frozen=True, slots=True)
class Cluster:
    """dev/cluster under an id of its own."""

    id: str

    @property
    def name(self) -> str:
        return f"tidegate-{self.id}"

    @property
    def run_directory(self) -> Path:
        return Path("/run") / self.name

    @property
    def environment(self) -> dict[str, str]:
        ours = {"TIDEGATE_CLUSTER_ID": self.id, "TIDEGATE_PROVIDER": "local"}
        return {k: v for k, v in os.environ.items() if not k.startswith("TIDEGATE_") or k == "TIDEGATE_CACHE"} | ours

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.start(*arguments, wait=True)

    def start(self, *arguments: str, wait: bool = False):
        command = [str(CHECKOUT / "dev" / "cluster"), *arguments]
        if wait:
            return subprocess.run(
                command, env=self.environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS
            )
        return subprocess.Popen(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def status(self) -> dict:
        return json.loads(self.run("status", "--json").stdout)

    def has_started(self, component: str) -> bool:
        return (self.run_directory / "pids" / f"{component}.json").exists()

    def traces(self) -> list[str]:
        """Everything on this machine that belongs to the cluster, in any namespace."""
        found = [f"path {p}" for root in ("/run", "/var/lib") for p in Path(root).glob(f"{self.name}*")]
        found += [f"cgroup {p}" for p in Path("/sys/fs/cgroup").glob(f"**/{self.name}*")]
        for process in Path("/proc").glob("[0-9]*"):
            if int(process.name) != os.getpid():
                found += self._traces_of(process)
        return found

    def _traces_of(self, process: Path) -> list[str]:
        found = []
        # A process may end while it is looked at. A zombie has ended: it waits for pid 1 and holds nothing.
        with contextlib.suppress(OSError):
            if (process / "stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return []
        for about in ("cmdline", "cgroup", "mountinfo"):
            with contextlib.suppress(OSError):
                if f"{self.name}/".encode() in (process / about).read_bytes().replace(b" ", b"/ "):
                    found.append(f"{about} of process {process.name}")
        with contextlib.suppress(OSError):
            if str((process / "cwd").readlink()).startswith((str(self.run_directory), f"/var/lib/{self.name}")):
                found.append(f"cwd of process {process.name}")
        return found


def audited(log: Path) -> list[dict]:
    """What the API server has logged so far; it may be in the middle of a line."""
    return [json.loads(line) for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]


def surroundings() -> dict[str, list[str]]:
    """What a cluster must leave as it was: the machine's own links, namespaces, mounts and shared directories."""
    directories = ["/sys/class/net", "/run/netns", *FIXED_PATHS]
    listed = {d: sorted(e.name for e in os.scandir(d)) if Path(d).is_dir() else [] for d in directories}
    return listed | {"mounts": sorted(Path("/proc/1/mounts").read_text().splitlines())}


def until(done: Callable[[], bool], what: str) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not done():
        assert time.monotonic() < give_up, what
        time.sleep(0.02)


def kill_during_up(cluster: Cluster, component: str, number: signal.Signals) -> int:
    """Begin an `up` and send it a signal as soon as `component` has been started; its exit status."""
    up = cluster.start("up", "--nodes", "1")
    until(lambda: cluster.has_started(component) or up.poll() is not None, f"{component} never started")
    assert up.poll() is None, up.stdout.read()
    up.send_signal(number)
    up.communicate(timeout=PATIENCE_SECONDS)
    return up.returncode


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster(f"t-{secrets.token_hex(4)}")
    assert cluster.traces() == [], "the id is in use"
    before = surroundings()
    yield cluster
    ended = cluster.run("down")
    assert ended.returncode == 0, ended.stderr
    assert cluster.traces() == []
    assert surroundings() == before


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def test_down_clears_what_a_killed_up_left_and_nothing_else(cluster: Cluster, bystander: subprocess.Popen) -> None:
    assert kill_during_up(cluster, "kubelet-node-1", signal.SIGKILL) == -signal.SIGKILL
    left = cluster.traces()
    assert {"path", "cgroup", "cmdline", "mountinfo"} <= {trace.split()[0] for trace in left}, "the check sees nothing"
    # As if the pid of a dead component had been taken over by somebody else's process.
    recycled = {"name": "kube-proxy", "pid": bystander.pid, "started": 1}
    (cluster.run_directory / "pids" / "kube-proxy.json").write_text(json.dumps(recycled))

    ended = cluster.run("down")

    assert ended.returncode == 0, ended.stderr
    assert cluster.traces() == []
    assert bystander.poll() is None


def test_an_up_over_a_dead_one_works_and_keeps_secrets_out_of_the_audit_log(cluster: Cluster) -> None:
    kill_during_up(cluster, "kube-apiserver", signal.SIGKILL)

    up = cluster.run("up", "--nodes", "1")

    assert up.returncode == 0, up.stderr
    assert "clearing" in up.stderr
    first = cluster.status()
    assert first["up"] is True
    assert first["nodes"] == ["node-1"]
    assert Path(first["hostPathLogs"]).stat().st_mode & 0o7777 == 0o1777
    secret = secrets.token_hex(16)
    made = cluster.run("kubectl", "create", "secret", "generic", "hidden", f"--from-literal=key={secret}")
    assert made.returncode == 0, made.stderr
    assert cluster.run("kubectl", "create", "deployment", "shown", "--image=tidegate.dev/pause:1").returncode == 0
    log = Path(first["auditLog"])

    def by_admin() -> dict[str, dict]:
        return {e["objectRef"]["resource"]: e for e in audited(log) if e["user"]["username"] == "admin"}

    # A request is logged when it has been answered.
    until(lambda: {"secrets", "deployments"} <= by_admin().keys(), "the audit log never showed what was created")
    ours = by_admin()
    assert ours["secrets"]["level"] == "Metadata"
    assert not {"requestObject", "responseObject"} & set(ours["secrets"])
    assert ours["deployments"]["requestObject"]["metadata"]["name"] == "shown"
    assert not [e for e in audited(log) if e["verb"] in ("get", "list", "watch")]
    until(lambda: "Running" in cluster.run("kubectl", "get", "pods").stdout, "the pod never ran")
    with_pod = cluster.traces()

    again = cluster.run("up")

    assert again.returncode == 0, again.stderr
    assert cluster.status() == first, "an `up` over a healthy cluster must not touch it"
    refused = cluster.run("up", "--nodes", "2")
    assert refused.returncode == 1
    assert "dev/cluster down" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert len(with_pod) > 10
    assert cluster.run("down").returncode == 0
    assert cluster.traces() == []


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("component", ["sandbox", "etcd", "kube-scheduler", "kube-proxy"])
def test_an_up_stopped_anywhere_leaves_nothing(cluster: Cluster, component: str, number: signal.Signals) -> None:
    status = kill_during_up(cluster, component, number)
    assert status != 0
    if number == signal.SIGKILL:
        assert cluster.run("down").returncode == 0
    else:
        # It was told to stop, so it has cleared by itself; only its lock file may wait for a `down`.
        (Path("/run") / f"{cluster.name}.lock").unlink()
    assert cluster.traces() == []


@pytest.mark.long
def test_two_ups_at_once_make_one_cluster(cluster: Cluster) -> None:
    ups = [cluster.start("up", "--nodes", "1") for _ in range(2)]
    said = [up.communicate(timeout=PATIENCE_SECONDS)[0] for up in ups]
    assert [up.returncode for up in ups] == [0, 0], said
    assert sum("the cluster is up" in text for text in said) == 1
    state = cluster.status()
    assert state["up"] is True
    assert len(state["components"]) == 8


@pytest.mark.long
@pytest.mark.parametrize("component", ["etcd", "kubelet-node-1", "sandbox"])
def test_an_up_replaces_a_cluster_whose_component_died(cluster: Cluster, component: str) -> None:
    assert cluster.run("up", "--nodes", "1").returncode == 0
    record = json.loads((cluster.run_directory / "pids" / f"{component}.json").read_text())
    os.kill(record["pid"], signal.SIGKILL)
    until(lambda: not cluster.status()["up"], f"{component} still counts as alive")
    assert cluster.run("up", "--nodes", "1").returncode == 0
    assert cluster.status()["up"] is True
    ready = cluster.run("kubectl", "get", "nodes", "--no-headers").stdout
    assert ready.split()[1] == "Ready"


MOUNTED = tuple(cgroups.hierarchies())
VERSION_TWO = tuple(tree for tree in MOUNTED if tree.unified)
KINDS = {"as mounted": MOUNTED} | ({"version 2 alone": VERSION_TWO} if VERSION_TWO else {})


@pytest.mark.parametrize("trees", KINDS.values(), ids=KINDS)
def test_what_runs_in_our_cgroups_ends_and_nothing_else(
    trees: tuple[cgroups.Hierarchy, ...], tmp_path: Path, bystander: subprocess.Popen
) -> None:
    ours = cgroups.ClusterCgroups(f"tidegate-t-{secrets.token_hex(4)}", trees)
    try:
        ours.create(["node-1"])
        launcher = processes.Launcher(tmp_path, tmp_path, ours.procs)
        # Like a shim: its parent is gone, its command line says nothing of us.
        launcher.start("parent", ["sh", "-c", "sleep 600 & exec sleep 600"])
        until(lambda: len(ours.members()) == 2, "the two processes never entered the cgroup")
        mine = ours.members()
        weighed = [(tree.root / ours.name / name, weight) for tree in trees for name, weight in cgroups.WEIGHTS.items()]
        assert all(int(path.read_text()) == weight for path, weight in weighed if path.exists())
    finally:
        ours.kill()
        ours.remove()
    assert [pid for pid in mine if processes.start_ticks(pid) is not None] == []
    assert bystander.poll() is None
    assert not [tree for tree in trees if (tree.root / ours.name).exists()]

"""How the components of a local cluster are started: each in its sandbox, each with credentials of its own."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from dev.devcluster import components, configs
from dev.devcluster.binary import Binary
from dev.devcluster.errors import ClusterError
from dev.devcluster.layout import Layout
from dev.devcluster.processes import Launcher, ProcessRecord
from dev.devcluster.sandbox import enter, run_inside
from dev.devcluster.waiting import wait_for

HOLDER = ProcessRecord("sandbox", 42, 1)


class Here(Layout):
    """A layout below a directory of the test's."""

    root: Path

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def data(self) -> Path:
        return self.root / "data"


class NotingLauncher(Launcher):
    """Starts nothing."""

    def start(self, name: str, command: Sequence[object]) -> ProcessRecord:
        started[name] = list(map(str, command))
        return ProcessRecord(name, 1, 1)


started: dict[str, list[str]] = {}


@pytest.fixture
def starter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> components.Starter:
    monkeypatch.setattr(Here, "root", tmp_path, raising=False)
    monkeypatch.setattr(components, "find_cni_plugins", lambda: Path("/usr/lib/cni"))
    started.clear()
    layout = Here("x")
    for directory in (layout.run / "pids", layout.run / "node-1", layout.run / "node-2", layout.logs):
        directory.mkdir(parents=True)
    launcher = NotingLauncher(layout.run / "pids", layout.logs, tmp_path / "cgroup.procs")
    return components.Starter(layout, Binary(Path("/cache")), launcher, HOLDER)


def test_every_component_runs_in_the_network_and_the_mounts_of_the_cluster(starter: components.Starter) -> None:
    nodes = [configs.Node("node-1", 1), configs.Node("node-2", 2)]
    starter.start_control_plane()
    starter.start_controllers()
    for node in nodes:
        starter.start_containerd(node)
        starter.start_kubelet(node)
    starter.start_proxy(nodes[0])
    inside = ["nsenter", "--net=/proc/42/ns/net", "--mount=/proc/42/ns/mnt", "--"]
    assert all(command[:4] == inside for command in started.values())
    assert list(started) == [
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "containerd-node-1",
        "kubelet-node-1",
        "containerd-node-2",
        "kubelet-node-2",
        "kube-proxy",
    ]
    assert started["kubelet-node-2"][4] == "/cache/kubelet"
    first, second = (set(started[f"kubelet-{node.name}"]) for node in nodes)
    assert first & second == {*inside, "/cache/kubelet", "--node-ip=10.200.0.1"}


def test_secrets_are_the_administrator_s_alone(starter: components.Starter) -> None:
    starter.write_credentials([configs.Node("node-1", 1)])
    run = starter.layout.run
    secrets = [run / "tokens.csv", starter.layout.kubeconfig, *run.glob("pki/*.kubeconfig"), *run.glob("pki/*.key")]
    assert {path.name for path in secrets} >= {"tokens.csv", "kubeconfig", "node-1.kubeconfig", "ca.key"}
    assert {path.name for path in secrets if path.stat().st_mode & 0o077} == set()


def test_a_component_that_has_died_is_reported_with_the_end_of_its_log(
    starter: components.Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    starter.check()
    monkeypatch.setattr(components, "read_records", lambda _: [ProcessRecord("etcd", 2**22 + 1, 1)])
    (starter.layout.logs / "etcd.log").write_text("no space left\n")
    with pytest.raises(ClusterError, match="etcd ended:\nno space left"):
        starter.check()


def test_commands_of_people_keep_the_machine_s_own_mounts() -> None:
    assert enter(HOLDER, mounts=True) == ["nsenter", "--net=/proc/42/ns/net", "--mount=/proc/42/ns/mnt", "--"]
    assert run_inside(HOLDER, ["ls", Path("/x")]) == ["nsenter", "--net=/proc/42/ns/net", "--", "ls", "/x"]


def test_waiting_ends_when_it_is_done_is_pointless_or_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    answers = iter([False, False, True])
    wait_for("x", lambda: next(answers), lambda: None)

    def dead() -> None:
        raise ClusterError("etcd ended")

    with pytest.raises(ClusterError, match="etcd ended"):
        wait_for("x", lambda: False, dead)
    with pytest.raises(ClusterError, match="readiness: not within 0 s"):
        wait_for("readiness", lambda: False, lambda: None, timeout=0.0)

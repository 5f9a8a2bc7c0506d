"""Which cluster is meant, and the two kinds that somebody else runs, over stand-ins for their programs."""

import os
from pathlib import Path

import pytest
from dev.devcluster import existing, provider
from dev.devcluster.binary import Binary
from dev.devcluster.errors import ClusterError
from dev.devcluster.existing import ExistingCluster
from dev.devcluster.kind import CONFIG, KindCluster
from dev.devcluster.layout import CHECKOUT, Layout
from dev.devcluster.local import LocalCluster, remove_tree
from dev.devcluster.provider import choose_provider


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A directory that is the whole PATH, and an environment that chooses nothing."""
    for name in list(os.environ):
        if name.startswith("TIDEGATE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TIDEGATE_CLUSTER_ID", "of-this-test")
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    return directory


def program(directory: Path, name: str, script: str) -> None:
    """A stand-in that notes its arguments in NAME.log."""
    path = directory / name
    path.write_text(f'#!/bin/sh\necho "$*" >>{directory}/{name}.log\n{script}\n')
    path.chmod(0o755)


def calls(directory: Path, name: str) -> list[str]:
    return (directory / f"{name}.log").read_text().splitlines()


def test_a_machine_without_docker_runs_it_itself(programs: Path) -> None:
    assert isinstance(choose_provider(), LocalCluster)


def test_kind_is_used_where_docker_answers(programs: Path) -> None:
    program(programs, "kind", "")
    program(programs, "docker", "exit 1")
    assert isinstance(choose_provider(), LocalCluster)
    program(programs, "docker", "")
    assert isinstance(choose_provider(), KindCluster)


def test_a_local_cluster_that_is_up_stays_the_one_that_is_meant(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("kind", "docker"):
        program(programs, name, "")
    monkeypatch.setattr(provider.LocalCluster, "exists", lambda self: True)
    assert isinstance(choose_provider(), LocalCluster)
    monkeypatch.setenv("TIDEGATE_PROVIDER", "kind")
    assert isinstance(choose_provider(), KindCluster)


def test_a_named_kubeconfig_wins(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_PROVIDER", "local")
    monkeypatch.setenv("TIDEGATE_KUBECONFIG", "/one")
    assert choose_provider() == ExistingCluster(Path("/one"))
    assert choose_provider("/other") == ExistingCluster(Path("/other"))


@pytest.mark.parametrize(("chosen", "says"), [("docker", "existing, kind, local"), ("existing", "TIDEGATE_KUBECONFIG")])
def test_a_choice_that_cannot_be_is_refused(
    programs: Path, monkeypatch: pytest.MonkeyPatch, chosen: str, says: str
) -> None:
    monkeypatch.setenv("TIDEGATE_PROVIDER", chosen)
    with pytest.raises(ClusterError, match=says):
        choose_provider()


# -- a cluster of somebody else's


@pytest.fixture
def theirs(programs: Path, tmp_path: Path) -> ExistingCluster:
    (tmp_path / "kubeconfig").touch()
    return ExistingCluster(tmp_path / "kubeconfig")


def test_an_existing_cluster_is_asked_and_left_alone(programs: Path, theirs: ExistingCluster) -> None:
    program(programs, "kubectl", "echo node/a; echo node/b")
    theirs.up(None)
    theirs.down()
    assert theirs.status() | {"up": True, "nodes": ["a", "b"]} == theirs.status()
    assert all(f"--kubeconfig {theirs.path}" in call for call in calls(programs, "kubectl"))
    assert theirs.inside(["ls"]) == ["ls"]
    assert theirs.image_stamps() is None


def test_an_existing_cluster_that_does_not_answer_is_not_up(programs: Path, theirs: ExistingCluster) -> None:
    program(programs, "kubectl", "echo refused >&2; exit 1")
    with pytest.raises(ClusterError, match="does not answer: refused"):
        theirs.up(None)
    assert theirs.status()["up"] is False


def test_an_existing_cluster_can_be_neither_sized_nor_filled(theirs: ExistingCluster) -> None:
    with pytest.raises(ClusterError, match="leave it out"):
        theirs.up(3)
    with pytest.raises(ClusterError, match="push it to a registry"):
        theirs.load(Path("image.tar"))
    with pytest.raises(ClusterError, match="no kubeconfig at"):
        ExistingCluster(Path("/nowhere")).kubeconfig()


def test_kubectl_is_the_installed_one_else_the_built_one(
    programs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(existing, "find_binary", lambda: None)
    with pytest.raises(ClusterError, match="dev/cluster build"):
        existing.kubectl_program()
    monkeypatch.setattr(existing, "find_binary", lambda: Binary(tmp_path))
    assert existing.kubectl_program() == [str(tmp_path / "kubectl")]
    program(programs, "kubectl", "")
    assert existing.kubectl_program() == [str(programs / "kubectl")]


# -- kind


@pytest.fixture
def kind(programs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> KindCluster:
    monkeypatch.setattr(KindCluster, "state", tmp_path / "state")
    program(programs, "docker", "echo 42")
    program(programs, "kind", "")
    return KindCluster(Layout("x"))


def test_kind_gets_this_checkout_s_paths() -> None:
    cluster = KindCluster(Layout("x"))
    text = cluster.config(CONFIG.read_text())
    assert f"hostPath: {CHECKOUT}/dev/audit-policy.yaml" in text
    assert text.count(f"{{hostPath: {cluster.shared_logs}, containerPath: {cluster.shared_logs}}}") == 2
    assert "./" not in "".join(line for line in text.splitlines() if not line.startswith("#"))


def test_kind_creates_the_cluster_once(programs: Path, kind: KindCluster) -> None:
    kind.up(None)
    created = calls(programs, "kind")[-1]
    assert created.startswith("create cluster --name tidegate-x --config ")
    assert (kind.state / "kind-config.yaml").is_file()
    program(programs, "kind", "echo tidegate-x")
    kind.up(None)
    assert calls(programs, "kind")[-1] == "get clusters"


def test_a_kind_cluster_that_does_not_come_up_is_deleted(programs: Path, kind: KindCluster) -> None:
    program(programs, "kind", 'test "$1" != create || { echo no room >&2; exit 1; }')
    with pytest.raises(ClusterError, match="no room"):
        kind.up(None)
    assert calls(programs, "kind")[-1] == "delete cluster --name tidegate-x"


def test_kind_reports_only_nodes_of_this_cluster(programs: Path, kind: KindCluster) -> None:
    assert kind.status()["up"] is False
    program(programs, "kind", "echo tidegate-x-control-plane; echo other-worker")
    assert kind.status()["nodes"] == ["tidegate-x-control-plane"]


def test_kind_commands_enter_the_network_of_its_node(
    programs: Path, kind: KindCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert kind.inside(["ls"]) == ["nsenter", "--net=/proc/42/ns/net", "--", "ls"]
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ClusterError, match="use sudo"):
        kind.inside(["ls"])


def test_kind_s_remedies(programs: Path, kind: KindCluster) -> None:
    with pytest.raises(ClusterError, match="edit kind-config"):
        kind.up(3)
    with pytest.raises(ClusterError, match="run `dev/cluster up`"):
        kind.kubeconfig()
    program(programs, "docker", "exit 1")
    with pytest.raises(ClusterError, match="run `dev/cluster up`"):
        kind.inside(["ls"])
    (programs / "kind").unlink()
    with pytest.raises(ClusterError, match="not in PATH: kind") as refused:
        kind.up(None)
    assert "TIDEGATE_PROVIDER=local" in str(refused.value)


# -- the local one, while it is not up


def test_a_local_cluster_that_is_not_up_says_how_to_start_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    cluster = LocalCluster(Layout("of-this-test"))
    assert cluster.status() | {"up": False, "nodes": [], "network": None, "components": {}} == cluster.status()
    for ask in (cluster.kubeconfig, lambda: cluster.kubectl(["get", "pods"]), lambda: cluster.inside(["ls"])):
        with pytest.raises(ClusterError, match="no cluster is up here: run `dev/cluster up`"):
            ask()


def test_a_directory_that_stays_busy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "d").mkdir()

    def busy(directory: Path) -> None:
        raise OSError(16, "Device or resource busy", str(directory))

    monkeypatch.setattr("shutil.rmtree", busy)
    with pytest.raises(ClusterError, match=r"cannot remove .*: Device or resource busy"):
        remove_tree(tmp_path / "d", timeout=0.0)
    monkeypatch.undo()
    remove_tree(tmp_path / "d")
    assert not (tmp_path / "d").exists()

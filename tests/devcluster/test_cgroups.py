"""Cgroups of either version, in trees of ordinary files."""

from pathlib import Path

import pytest
from dev.devcluster import cgroups
from dev.devcluster.errors import ClusterError

VERSION_ONE = """\
tmpfs /sys/fs/cgroup tmpfs rw,relatime,mode=755 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/cpuset cgroup rw,relatime,cpuset 0 0
cgroup /sys/fs/cgroup/pids cgroup rw,relatime,pids 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0
"""
VERSION_TWO = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nodev,noexec,relatime,nsdelegate 0 0\n"


def test_version_one_is_known_by_its_controllers() -> None:
    trees = cgroups.hierarchies(VERSION_ONE)
    assert [t.root.name for t in trees] == ["cpu,cpuacct", "cpuset", "pids", "unified"]
    ours = cgroups.ClusterCgroups("tidegate-x", tuple(trees))
    assert not ours.unified
    assert ours.procs == Path("/sys/fs/cgroup/pids/tidegate-x/components/cgroup.procs")


def test_version_two_alone_is_unified() -> None:
    ours = cgroups.ClusterCgroups("tidegate-x", tuple(cgroups.hierarchies(VERSION_TWO)))
    assert ours.unified
    assert ours.procs == Path("/sys/fs/cgroup/tidegate-x/components/cgroup.procs")


def test_a_tree_that_cannot_be_written_is_none_of_ours() -> None:
    assert cgroups.hierarchies("cgroup /sys/fs/cgroup/pids cgroup ro,relatime,pids 0 0\n") == []


def test_a_machine_without_cgroups_is_told_how_to_mount_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "hierarchies", list)
    with pytest.raises(ClusterError, match="mount -t cgroup2"):
        cgroups.ClusterCgroups.here("tidegate-x")


def test_a_cpuset_of_version_one_gets_processors_or_takes_nobody_in(tmp_path: Path) -> None:
    (tmp_path / "cpuset.cpus").write_text("0-1")
    (tmp_path / "cpuset.mems").write_text("0")
    ours = cgroups.ClusterCgroups("tidegate-x", (cgroups.Hierarchy(tmp_path, False, frozenset({"cpuset"})),))
    ours.create(["node-1"])
    for name in ("", "components", "node-1"):
        assert (tmp_path / "tidegate-x" / name / "cpuset.cpus").read_text() == "0-1"


def test_members_are_found_in_every_tree_and_below(tmp_path: Path) -> None:
    trees = []
    for name, places in {"a": {"components": "11\n12\n"}, "b": {"components": "12\n", "node-1/pod": "13\n"}}.items():
        for place, pids in places.items():
            directory = tmp_path / name / "tidegate-x" / place
            directory.mkdir(parents=True)
            (directory / "cgroup.procs").write_text(pids)
        trees.append(cgroups.Hierarchy(tmp_path / name, True, frozenset()))
    (tmp_path / "a" / "cgroup.procs").write_text("1\n")
    assert cgroups.ClusterCgroups("tidegate-x", tuple(trees)).members() == {11, 12, 13}


def test_empty_cgroups_are_removed_from_the_bottom_up(tmp_path: Path) -> None:
    (tmp_path / "tidegate-x" / "node-1" / "pod").mkdir(parents=True)
    ours = cgroups.ClusterCgroups("tidegate-x", (cgroups.Hierarchy(tmp_path, True, frozenset()),))
    ours.kill()
    ours.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_cgroup_that_does_not_go_is_named(tmp_path: Path) -> None:
    busy = tmp_path / "tidegate-x" / "node-1"
    busy.mkdir(parents=True)
    (busy / "held").touch()
    ours = cgroups.ClusterCgroups("tidegate-x", (cgroups.Hierarchy(tmp_path, True, frozenset()),))
    with pytest.raises(ClusterError, match=r"cannot remove the cgroup .*node-1"):
        ours.remove(timeout=0.0)


def test_only_missing_controllers_are_enabled(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids rdma")
    (tmp_path / "cgroup.subtree_control").write_text("pids")
    cgroups._enable_controllers(tmp_path)
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpu +memory"

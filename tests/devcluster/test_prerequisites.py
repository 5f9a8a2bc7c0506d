"""What the machine must have, and how somebody who lacks it is told."""

import os
from pathlib import Path

import pytest
from dev.devcluster import prerequisites
from dev.devcluster.errors import ClusterError


def test_missing_programs_are_named_with_their_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("containerd", "ctr", "containerd-shim-runc-v2", "ip"):
        (tmp_path / name).symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(prerequisites, "CNI_DIRECTORIES", (tmp_path,))
    missing = prerequisites.missing_packages()
    assert "containerd" not in missing
    assert "iproute2" not in missing
    assert missing["runc"] == ["runc"]
    assert "containernetworking-plugins" in missing


def test_a_directory_of_plugins_has_all_of_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(prerequisites, "CNI_DIRECTORIES", (tmp_path / "some", tmp_path / "all"))
    for directory, plugins in (("some", ("bridge",)), ("all", prerequisites.CNI_PLUGINS)):
        (tmp_path / directory).mkdir()
        for plugin in plugins:
            (tmp_path / directory / plugin).touch()
    assert prerequisites.find_cni_plugins() == tmp_path / "all"


def test_everything_that_is_missing_is_told_at_once_with_one_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "apt-get").symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(prerequisites, "missing_packages", lambda: {"runc": ["runc"], "iproute2": ["ip"]})
    with pytest.raises(ClusterError) as refused:
        prerequisites.check_machine()
    assert "runc (package runc); ip (package iproute2)" in str(refused.value)
    assert "apt-get install -y --no-install-recommends runc iproute2" in str(refused.value)


def test_without_apt_the_names_are_said_to_be_debian_s(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert prerequisites.install_command(["runc"]) == "(Debian's names; your distribution's may differ) runc"


@pytest.mark.parametrize(("platform", "user", "says"), [("darwin", 0, "needs Linux"), ("linux", 1000, "takes root")])
def test_a_machine_that_cannot_run_it_is_told_the_ways_out(
    monkeypatch: pytest.MonkeyPatch, platform: str, user: int, says: str
) -> None:
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    with pytest.raises(ClusterError, match=says) as refused:
        prerequisites.check_machine()
    assert "kind" in str(refused.value)
    assert "TIDEGATE_KUBECONFIG" in str(refused.value)


def test_programs_of_the_system_are_found_behind_the_user_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/opt/own")
    prerequisites.extend_path()
    assert os.environ["PATH"].startswith("/opt/own:")
    assert "/usr/sbin" in os.environ["PATH"].split(":")

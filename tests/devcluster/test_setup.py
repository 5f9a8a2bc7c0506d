"""What must work before anything is installed, and what `make setup` installs."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from dev.devcluster import prometheus, setup_cli
from dev.devcluster.errors import ClusterError

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGE = CHECKOUT / "dev" / "devcluster"


def test_the_package_needs_the_standard_library_alone() -> None:
    imported = {
        (path.name, name.partition(".")[0])
        for path in PACKAGE.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        for name in _imported(node)
    }
    assert {found for found in imported if found[1] not in sys.stdlib_module_names} == set()


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [str(node.module)] if isinstance(node, ast.ImportFrom) and node.level == 0 else []


@pytest.mark.parametrize("script", ["cluster", "image"])
def test_a_command_runs_on_a_bare_python(script: str) -> None:
    command = [sys.executable, "-S", "-E", str(CHECKOUT / "dev" / script), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"usage: dev/{script}" in done.stdout


def test_setup_runs_on_a_bare_python_as_far_as_the_machine_lets_it(tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").touch()
    for program in prometheus.PROGRAMS:
        (tmp_path / program).symlink_to("/bin/true")
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "TIDEGATE_KUBECONFIG": str(tmp_path / "kubeconfig")}
    command = [sys.executable, "-S", "-E", str(CHECKOUT / "dev" / "setup")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("user", "says"), [(1000, "As root, run\n    apt-get"), (0, "run\n    (Debian's names")])
def test_what_cannot_be_installed_is_named_with_its_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, user: int, says: str
) -> None:
    if user:
        (tmp_path / "apt-get").symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: user)
    with pytest.raises(ClusterError) as refused:
        setup_cli._install(["runc"])
    assert f"missing on this machine: runc. {says}" in str(refused.value)


def test_an_installation_that_fails_is_shown_with_its_command(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(setup_cli.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(setup_cli, "install_command", lambda packages: "echo installing; exit 1")
    with pytest.raises(ClusterError, match=r"message is above.*\n    echo installing"):
        setup_cli._install(["runc"])
    assert capfd.readouterr().err.splitlines() == ["installing runc", "installing"]


def test_prometheus_is_that_on_path_else_the_unpacked_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(ClusterError, match="promtool is missing: run `make setup`"):
        prometheus.find("promtool")
    with pytest.raises(ClusterError, match=r"put Prometheus 2\.42 or newer on PATH"):
        prometheus.fetch()
    unpacked = tmp_path / "prometheus" / "usr" / "bin"
    unpacked.mkdir(parents=True)
    for program in prometheus.PROGRAMS:
        (unpacked / program).touch()
    prometheus.fetch()
    assert prometheus.find("promtool") == unpacked / "promtool"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "promtool").symlink_to("/bin/true")
    assert prometheus.find("promtool") == tmp_path / "bin" / "promtool"


def test_a_package_that_cannot_be_fetched_leaves_nothing_half_unpacked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, script in (("apt-get", "echo no network >&2; exit 1"), ("dpkg-deb", "exit 1")):
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    (programs / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(ClusterError, match=r"cannot get Debian's package prometheus: .*no network"):
        prometheus.fetch()
    assert list((tmp_path / "cache").iterdir()) == []

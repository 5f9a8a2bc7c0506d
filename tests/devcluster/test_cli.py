"""The command line of dev/cluster, over a provider that only notes what it is asked."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from dev.devcluster import cli
from dev.devcluster.errors import ClusterError


@dataclass
class Noting:
    """A provider whose commands do nothing."""

    asked: list[object] = field(default_factory=list)
    name = "noting"

    def up(self, nodes: int | None) -> None:
        self.asked.append(("up", nodes))

    def down(self) -> None:
        raise ClusterError("it is held: let it go")

    def status(self) -> dict[str, object]:
        return {"provider": "noting", "up": True, "nodes": ["a", "b"], "logs": "/logs", "components": {"etcd": False}}

    def kubeconfig(self) -> Path:
        return Path("/kubeconfig")

    def kubectl(self, arguments: Sequence[str]) -> list[str]:
        return ["kubectl", *arguments]

    def inside(self, command: Sequence[str]) -> list[str]:
        return ["inside", *command]

    def load(self, archive: Path) -> None:
        self.asked.append(archive)


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Noting:
    noting = Noting()
    monkeypatch.setattr(cli, "choose_provider", lambda kubeconfig: noting)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    return noting


def test_options_behind_kubectl_and_exec_are_left_to_them() -> None:
    assert cli.pass_through(["kubectl", "get", "--help"]) == ["kubectl", "--", "get", "--help"]
    assert cli.pass_through(["exec", "--", "ls", "-l"]) == ["exec", "--", "ls", "-l"]
    kubeconfig = ["--kubeconfig", "exec", "status", "--json"]
    assert cli.pass_through(kubeconfig) == kubeconfig
    assert cli.pass_through(["load", "kubectl"]) == ["load", "kubectl"]


def test_a_command_becomes_the_process_with_the_kubeconfig_set(
    monkeypatch: pytest.MonkeyPatch, provider: Noting
) -> None:
    became: list[list[str]] = []
    monkeypatch.setattr(os, "execvp", lambda _program, command: became.append(command))
    assert cli.main(["kubectl", "get", "pods", "--help"]) == 0
    assert cli.main(["exec", "--", "ls", "-l"]) == 0
    assert became == [["kubectl", "get", "pods", "--help"], ["inside", "ls", "-l"]]
    assert os.environ["KUBECONFIG"] == "/kubeconfig"


def test_a_program_that_is_not_there_is_named(provider: Noting, capsys: pytest.CaptureFixture[str]) -> None:
    provider.inside = lambda command: ["/nowhere/program"]  # type: ignore[method-assign]
    assert cli.main(["exec", "x"]) == 1
    assert capsys.readouterr().err == "dev/cluster: cannot run /nowhere/program: No such file or directory\n"


@pytest.mark.parametrize("count", ["0", "21", "-1", "two"])
def test_a_number_of_nodes_has_bounds(provider: Noting, count: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["up", f"--nodes={count}"])
    assert "is not a number from 1 to 20" in capsys.readouterr().err
    assert cli.main(["up", "--nodes", "3"]) == cli.main(["up"]) == 0
    assert provider.asked == [("up", 3), ("up", None)]


def test_an_archive_that_is_not_there_is_named_before_it_is_loaded(
    provider: Noting, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "image.tar").touch()
    assert cli.main(["load", str(tmp_path / "image.tar")]) == 0
    assert provider.asked == [tmp_path / "image.tar"]
    assert cli.main(["load", str(tmp_path / "missing.tar")]) == 1
    assert "make one with dev/image" in capsys.readouterr().err


def test_an_error_is_its_sentence_and_nothing_else(provider: Noting, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["down"]) == 1
    assert capsys.readouterr().err == "dev/cluster: it is held: let it go\n"


def test_the_status_is_for_people_or_for_programs(provider: Noting, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["status"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "noting cluster: up, 2 nodes"
    assert shown[1].split() == ["logs", "/logs"]
    assert shown[2].split() == ["etcd", "HAS", "ENDED"]
    assert cli.main(["status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == provider.status()

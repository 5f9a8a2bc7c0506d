"""The Kubernetes binary: which build is used, and what a machine that cannot build is told."""

from pathlib import Path

import pytest
from dev.devcluster import binary
from dev.devcluster.errors import ClusterError


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path))
    return tmp_path


def _go(monkeypatch: pytest.MonkeyPatch, version: str | None) -> None:
    monkeypatch.setattr(binary, "_go_version", lambda: version)


@pytest.mark.parametrize(
    ("version", "complaint"), [(None, "not in PATH"), ("go1.19.8", "is go1.19.8"), ("go1.23.12", "is go1.23.12")]
)
def test_a_missing_or_old_go_is_named_with_its_remedy(version: str | None, complaint: str) -> None:
    with pytest.raises(ClusterError, match=r"Go 1\.24 or newer") as refused:
        binary.check_go(version)
    assert complaint in str(refused.value)
    assert "tar -C /usr/local -xz" in str(refused.value)


@pytest.mark.parametrize("version", ["go1.24", "go1.26.8", "go2.0"])
def test_a_new_go_is_accepted(version: str) -> None:
    binary.check_go(version)


def test_a_build_is_that_of_these_sources_and_this_go(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    _go(monkeypatch, "go1.25.5")
    assert binary.find_binary() is None
    (cache / "kube-0123456789ab-go1.25.5").mkdir()
    assert binary.find_binary() is None
    ours = cache / f"kube-{binary._source_hash()}-go1.25.5"
    ours.mkdir()
    found = binary.find_binary()
    assert found == binary.Binary(ours)
    assert found.component("kubelet") == ours / "kubelet"
    _go(monkeypatch, "go1.26.0")
    assert binary.find_binary() is None


def test_without_go_any_build_of_these_sources_will_do(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    _go(monkeypatch, None)
    with pytest.raises(ClusterError, match="not in PATH"):
        binary.check_toolchain()
    ours = cache / f"kube-{binary._source_hash()}-go1.25.5"
    ours.mkdir()
    assert binary.build_binary() == binary.Binary(ours)
    binary.check_toolchain()


def test_a_build_appears_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    _go(monkeypatch, "go1.25.5")

    def fails(package: str, target: Path, flags: str) -> None:
        target.write_text("half")
        raise ClusterError("no")

    def works(package: str, target: Path, flags: str) -> None:
        target.write_text(package)

    monkeypatch.setattr(binary, "_compile", fails)
    with pytest.raises(ClusterError):
        binary.build_binary()
    assert binary.find_binary() is None
    monkeypatch.setattr(binary, "_compile", works)
    built = binary.build_binary()
    assert built.component("etcd").read_text() == "."
    assert built.pause_archive.is_file()
    assert binary.find_binary() == built
    assert [path.name for path in cache.iterdir() if path.name.startswith(".draft")] == []

"""Names and places: two checkouts, and two ids of one checkout, never meet."""

from pathlib import Path

import pytest
from dev.devcluster import layout
from dev.devcluster.errors import ClusterError


@pytest.mark.parametrize("chosen", ["Up", "a/b", "", "-a", "a" * 21, "a b"])
def test_a_cluster_id_that_cannot_be_a_name_is_refused(monkeypatch: pytest.MonkeyPatch, chosen: str) -> None:
    monkeypatch.setenv("TIDEGATE_CLUSTER_ID", chosen)
    with pytest.raises(ClusterError, match="lower-case"):
        layout.this_layout()


def test_a_chosen_id_is_in_every_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_CLUSTER_ID", "second")
    found = layout.this_layout()
    for name in ("name", "run", "data", "lock", "summary", "kubeconfig", "logs", "audit_log", "shared_logs"):
        assert "tidegate-second" in str(getattr(found, name))


def test_two_checkouts_share_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEGATE_CLUSTER_ID", raising=False)
    here = layout.this_layout()
    monkeypatch.setattr(layout, "CHECKOUT", Path("/elsewhere"))
    there = layout.this_layout()
    for name in ("id", "name", "run", "data", "lock", "kubeconfig", "audit_log"):
        assert getattr(here, name) != getattr(there, name)


def test_the_cache_is_where_one_says_else_the_user_s(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TIDEGATE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert layout.cache_dir() == tmp_path / "tidegate"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert layout.cache_dir() == tmp_path / ".cache" / "tidegate"
    monkeypatch.setenv("TIDEGATE_CACHE", "/elsewhere")
    assert layout.cache_dir() == Path("/elsewhere")

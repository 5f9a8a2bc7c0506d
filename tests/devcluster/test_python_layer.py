"""This machine's Python as a layer."""

import sys
from pathlib import Path

import pytest
from dev.devcluster import python_layer
from dev.devcluster.archive import Layer, layer_of_files
from dev.devcluster.errors import ClusterError


def test_the_interpreter_of_the_checkout_describes_itself() -> None:
    python = python_layer.find_python()
    assert (python.stdlib / "os.py").is_file()
    assert python.version.startswith(python.short)
    assert python.key == python_layer.find_python().key


def test_an_interpreter_that_does_not_run_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / ".venv" / "bin" / "python"
    broken.parent.mkdir(parents=True)
    broken.write_text("#!/bin/sh\necho moved >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(python_layer, "CHECKOUT", tmp_path)
    with pytest.raises(ClusterError, match="does not run: moved\nMake it again with `make setup`"):
        python_layer.find_python()


def test_tests_caches_and_what_only_builds_need_are_left_out(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for name in ("json/__init__.py", "test/big.py", "json/__pycache__/x.pyc", "config-3.11/lib.a", "idlelib/x.py"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).touch()
    python_layer.copy_sources(source, tmp_path / "target")
    files = python_layer.files_below(tmp_path / "target", "usr/lib")
    assert files == {"usr/lib/json/__init__.py": tmp_path / "target" / "json" / "__init__.py"}


def test_a_layer_is_made_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path))
    made = []

    def make(target: Path, workspace: Path) -> Layer:
        made.append(workspace)
        return layer_of_files({}, target, {"a": "b"})

    first, second = (python_layer.cached_layer("x", make) for _ in range(2))
    assert first == second
    assert len(made) == 1
    assert not made[0].exists()


def test_the_libraries_of_a_program_are_the_loader_s(tmp_path: Path) -> None:
    found = python_layer.shared_libraries([Path(sys.executable).resolve()])
    assert any(path.name.startswith("libc.so") for path in found)
    assert python_layer.shared_libraries([tmp_path / "missing"]) == set()

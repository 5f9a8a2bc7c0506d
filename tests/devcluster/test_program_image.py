"""An image around somebody else's program."""

import json
import shutil
import tarfile
from pathlib import Path

import pytest
from dev.devcluster import program_image
from dev.devcluster.errors import ClusterError


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program with a library beside it, in a system of its own."""
    monkeypatch.setattr(program_image, "OUTPUT", tmp_path / "out")
    program = tmp_path / "root" / "usr" / "bin" / "true"
    program.parent.mkdir(parents=True)
    shutil.copy(shutil.which("true") or "", program)
    (program.parent / "libbeside.so").write_bytes(b"")
    (tmp_path / "root" / "bin").symlink_to("usr/bin")
    return program


@pytest.mark.parametrize("whole", [False, True])
def test_a_program_of_somebody_else_s_is_packed_with_what_it_needs_and_nothing_of_ours(
    tmp_path: Path, program: Path, whole: bool
) -> None:
    image = program_image.pack_program("theirs", program, ["v1", "v2"], tmp_path / "root" if whole else None)
    with tarfile.open(image.archive) as packed:
        (manifest,) = json.load(packed.extractfile("manifest.json"))  # type: ignore[arg-type]
        config = json.load(packed.extractfile(manifest["Config"]))["config"]  # type: ignore[arg-type]
        (layer,) = manifest["Layers"]
        with tarfile.open(fileobj=packed.extractfile(layer)) as files:
            names = set(files.getnames())
    assert manifest["RepoTags"] == ["theirs:v1", "theirs:v2"]
    assert config["Entrypoint"] == ["/usr/bin/true" if whole else "/app/true"]
    if whole:
        assert {"usr/bin/true", "usr/bin/libbeside.so", "bin"} <= names
        assert not any("libc.so" in name for name in names)
    else:
        assert {"app/true", "app/libbeside.so"} <= names
        assert any(name.endswith("/libc.so.6") for name in names)
    assert not any(name.startswith(("usr/local", "app/tidegate")) for name in names)


def test_what_is_no_program_is_refused(program: Path) -> None:
    with pytest.raises(ClusterError, match="no program"):
        program_image.pack_program("theirs", program.with_name("libbeside.so"), ["v1"])


def test_a_program_must_lie_in_the_system_that_is_packed(tmp_path: Path, program: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(ClusterError, match="is not below"):
        program_image.pack_program("theirs", program, ["v1"], tmp_path / "elsewhere")

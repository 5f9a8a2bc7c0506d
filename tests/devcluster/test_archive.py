"""Image archives: the same content gives the same bytes, and containerd finds in them what it looks for."""

import json
import os
import tarfile
from pathlib import Path

import pytest
from dev.devcluster import archive


def test_an_archive_is_the_same_on_every_run_and_readable_by_everybody(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_text("x")
    source.chmod(0o600)
    (tmp_path / "linked").hardlink_to(source)
    files = {"app/b": source, "app/a": tmp_path / "linked"}
    first = archive.layer_of_files(files, tmp_path / "1.tar", {"etc/passwd": "y"}, {"tmp": 0o1777})
    os.utime(source, (1, 1))
    second = archive.layer_of_files(
        dict(reversed(files.items())), tmp_path / "2.tar", {"etc/passwd": "y"}, {"tmp": 0o1777}
    )
    assert first.digest == second.digest
    with tarfile.open(first.path) as tar:
        members = {m.name: m for m in tar}
        assert tar.extractfile("app/a").read() == tar.extractfile("app/b").read() == b"x"
    assert set(members) == {"app", "app/a", "app/b", "etc", "etc/passwd", "tmp"}
    assert members["app/b"].mode == 0o644
    assert members["tmp"].mode == 0o1777
    assert all(m.isdir() or m.isreg() for m in members.values())


def test_programs_stay_executable_and_symbolic_links_stay_links(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!")
    program.chmod(0o700)
    (tmp_path / "alias").symlink_to("program")
    layer = archive.layer_of_files({"bin/program": program, "bin/alias": tmp_path / "alias"}, tmp_path / "layer.tar")
    with tarfile.open(layer.path) as tar:
        assert tar.getmember("bin/program").mode == 0o755
        assert tar.getmember("bin/alias").linkname == "program"


def test_an_image_names_its_layers_by_their_content(tmp_path: Path) -> None:
    layer = archive.layer_of_files({}, tmp_path / "layer.tar", {"etc/passwd": "y"})
    digest = archive.write_archive(tmp_path / "image.tar", ["a:1", "a:2"], [layer], {"User": "65532"}, "amd64")
    with tarfile.open(tmp_path / "image.tar") as tar:
        manifest = json.loads(tar.extractfile("manifest.json").read())
        config = json.loads(tar.extractfile(f"blobs/sha256/{digest}").read())
        index = json.loads(tar.extractfile("index.json").read())
    blob = f"blobs/sha256/{layer.digest}"
    assert manifest == [{"Config": f"blobs/sha256/{digest}", "RepoTags": ["a:1", "a:2"], "Layers": [blob]}]
    assert [m["annotations"]["io.containerd.image.name"] for m in index["manifests"]] == [
        "docker.io/library/a:1",
        "docker.io/library/a:2",
    ]
    assert archive.without_layers(tmp_path / "image.tar", {layer.digest}, tmp_path / "part.tar")
    with tarfile.open(tmp_path / "image.tar") as whole, tarfile.open(tmp_path / "part.tar") as part:
        assert set(whole.getnames()) - set(part.getnames()) == {blob}
    assert config["rootfs"]["diff_ids"] == [f"sha256:{layer.digest}"]


def test_an_archive_of_another_form_is_left_whole(tmp_path: Path) -> None:
    layer = archive.layer_of_files({}, tmp_path / "layer.tar", {"manifest.json": "[]"})
    assert not archive.without_layers(layer.path, {"held"}, tmp_path / "part.tar")
    assert not (tmp_path / "part.tar").exists()


@pytest.mark.parametrize(
    ("tag", "full"),
    [
        ("app:1", "docker.io/library/app:1"),
        ("team/app:1", "docker.io/team/app:1"),
        ("tidegate.dev/pause:1", "tidegate.dev/pause:1"),
        ("localhost/app:1", "localhost/app:1"),
        ("registry:5000/app:1", "registry:5000/app:1"),
    ],
)
def test_a_tag_is_written_as_the_kubelet_will_ask_for_it(tag: str, full: str) -> None:
    assert archive.full_name(tag) == full

"""The parts of dev/cluster that decide something, without a cluster."""

import json
import os
import shutil
import stat
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from dev.devcluster import archive, binary, cgroups, configs, foreign, kind, layout, prerequisites, processes
from dev.devcluster.cli import _protect
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


@pytest.mark.parametrize(
    ("mounts", "wanted"),
    [
        ("/dev/vda / ext4 rw 0 0\n", "overlayfs"),
        ("overlay / overlay rw 0 0\n", "native"),
        ("overlay / overlay rw 0 0\n/dev/vdb /var/lib ext4 rw 0 0\n", "overlayfs"),
        ("/dev/vda / ext4 rw 0 0\noverlay /var/li overlay rw 0 0\n", "overlayfs"),
    ],
    ids=["disk", "a container's root", "a volume in a container", "a path that only begins alike"],
)
def test_snapshots_do_not_stack_overlays(mounts: str, wanted: str) -> None:
    assert configs.snapshotter(Path("/var/lib/tidegate-x"), mounts) == wanted


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


@pytest.mark.parametrize("chosen", ["Up", "a/b", "", "-a", "a" * 21, "a b"])
def test_a_cluster_id_that_cannot_be_a_name_is_refused(monkeypatch: pytest.MonkeyPatch, chosen: str) -> None:
    monkeypatch.setenv("TIDEGATE_CLUSTER_ID", chosen)
    with pytest.raises(ClusterError, match="lower-case"):
        layout.this_layout()


def test_two_checkouts_share_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEGATE_CLUSTER_ID", raising=False)
    here = layout.this_layout()
    monkeypatch.setattr(layout, "CHECKOUT", Path("/elsewhere"))
    there = layout.this_layout()
    for name in ("id", "name", "run", "data", "lock", "kubeconfig", "audit_log"):
        assert getattr(here, name) != getattr(there, name)


def test_a_pid_with_another_start_time_is_not_ours() -> None:
    mine = processes.start_ticks(os.getpid())
    assert mine is not None
    assert processes.Recorded("x", os.getpid(), mine).alive
    assert not processes.Recorded("x", os.getpid(), mine + 1).alive


def test_a_zombie_counts_as_ended() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert processes.start_ticks(child.pid) is None
    child.wait()


def test_a_command_name_with_spaces_and_parentheses_is_read_right(tmp_path: Path) -> None:
    odd = tmp_path / "a) R (b"
    odd.symlink_to("/bin/sleep")
    child = subprocess.Popen([str(odd), "60"])
    try:
        plain = processes.start_ticks(os.getpid())
        found = processes.start_ticks(child.pid)
        assert plain is not None
        assert found is not None
        assert found >= plain
    finally:
        child.kill()
        child.wait()


def test_options_behind_kubectl_and_exec_are_left_to_them() -> None:
    assert _protect(["kubectl", "get", "--help"]) == ["kubectl", "--", "get", "--help"]
    assert _protect(["exec", "--", "ls", "-l"]) == ["exec", "--", "ls", "-l"]
    assert _protect(["--kubeconfig", "exec", "status", "--json"]) == ["--kubeconfig", "exec", "status", "--json"]
    assert _protect(["load", "kubectl"]) == ["load", "kubectl"]


def test_an_archive_is_the_same_on_every_run_and_readable_by_everybody(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_text("x")
    source.chmod(0o600)
    (tmp_path / "twin").hardlink_to(source)
    files = {"app/b": source, "app/a": tmp_path / "twin"}
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


@pytest.mark.parametrize("whole", [False, True])
def test_a_program_of_somebody_else_s_is_packed_with_what_it_needs_and_nothing_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    monkeypatch.setattr(foreign, "OUTPUT", tmp_path / "out")
    program = tmp_path / "root" / "usr" / "bin" / "true"
    program.parent.mkdir(parents=True)
    shutil.copy(shutil.which("true") or "", program)
    (program.parent / "libbeside.so").write_bytes(b"")
    (tmp_path / "root" / "bin").symlink_to("usr/bin")
    image = foreign.pack_program("theirs", program, ["v1", "v2"], tmp_path / "root" if whole else None)
    with tarfile.open(image.archive) as packed:
        (manifest,) = json.load(packed.extractfile("manifest.json"))  # type: ignore[arg-type]
        config = json.load(packed.extractfile(manifest["Config"]))["config"]  # type: ignore[arg-type]
        (layer,) = manifest["Layers"]
        with tarfile.open(fileobj=packed.extractfile(layer)) as files:
            names = set(files.getnames())
    assert manifest["RepoTags"] == ["theirs:v1", "theirs:v2"]
    assert config["Entrypoint"] == ["/usr/bin/true" if whole else "/app/true"]
    if whole:
        assert {"usr/bin/true", "usr/bin/libbeside.so", "bin"} <= names and not any("libc.so" in name for name in names)
    else:
        assert {"app/true", "app/libbeside.so"} <= names and any(name.endswith("/libc.so.6") for name in names)
    assert not any(name.startswith(("usr/local", "app/tidegate")) for name in names)
    with pytest.raises(ClusterError, match="no program"):
        foreign.pack_program("theirs", program.with_name("libbeside.so"), ["v1"])


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


def test_files_are_replaced_as_a_whole_and_secrets_stay_private(tmp_path: Path) -> None:
    target = tmp_path / "kubeconfig"
    processes.write_atomically(target, "secret", mode=0o600)
    assert target.read_text() == "secret"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["kubeconfig"]


def test_kind_gets_this_checkout_s_paths() -> None:
    cluster = kind.KindCluster(layout.Layout("x"))
    text = cluster.config(kind.CONFIG.read_text())
    assert f"hostPath: {layout.CHECKOUT}/dev/audit-policy.yaml" in text
    assert text.count(f"{{hostPath: {cluster.shared_logs}, containerPath: {cluster.shared_logs}}}") == 2
    assert "./" not in "".join(line for line in text.splitlines() if not line.startswith("#"))

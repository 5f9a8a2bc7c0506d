"""The one binary that holds every Kubernetes component: built once per machine, kept outside the checkout."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from .archive import Layer, layer_of_files, write_archive
from .errors import ClusterError
from .layout import CHECKOUT, cache_dir
from .locking import exclusive

SOURCE = CHECKOUT / "dev" / "kube"
INPUTS = ("go.mod", "go.sum", "main.go", "pause/main.go")
COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl")
KUBERNETES = "1.34.4"
NEEDED_GO = (1, 24)
PAUSE_IMAGE = "tidegate.dev/pause:1"
FLAGS = (
    "-s -w"
    f" -X k8s.io/component-base/version.gitVersion=v{KUBERNETES}"
    f" -X k8s.io/component-base/version.gitMajor={KUBERNETES.split('.')[0]}"
    f" -X k8s.io/component-base/version.gitMinor={KUBERNETES.split('.')[1]}"
)


@dataclass(frozen=True, slots=True)
class Binary:
    """A finished build: one directory with the components by name, the pause program and its image."""

    directory: Path

    def component(self, name: str) -> Path:
        """The program of one of COMPONENTS."""
        return self.directory / name

    @property
    def pause_archive(self) -> Path:
        """The image of the pod sandboxes' pause container."""
        return self.directory / "pause.tar"


def find_binary() -> Binary | None:
    """The build for these sources, if there is one. Without Go any build of the same sources will do."""
    go = _go_version()
    if go is not None:
        directory = _directory(go)
        return Binary(directory) if directory.is_dir() else None
    others = sorted(cache_dir().glob(f"kube-{_source_hash()}-*"))
    return Binary(others[-1]) if others else None


def build_binary() -> Binary:
    """Build unless that has been done. Two checkouts share one build; the second waits for the first."""
    if found := find_binary():
        return found
    go = _go_version()
    check_go(go)
    directory = _directory(go or "")
    with exclusive(cache_dir() / "build.lock", "another build of the Kubernetes binary"):
        if directory.is_dir():
            return Binary(directory)
        draft = directory.with_name(f".draft-{directory.name}")
        shutil.rmtree(draft, ignore_errors=True)  # left by a build that was killed: we hold the lock
        draft.mkdir()
        print(
            f"building Kubernetes {KUBERNETES} with {go}: about 10 minutes on two cores the first time, "
            f"kept in {directory} afterwards",
            file=sys.stderr,
            flush=True,
        )
        _compile(".", draft / "kube", FLAGS)
        _compile("./pause", draft / "pause", "-s -w")
        for name in COMPONENTS:
            (draft / name).symlink_to("kube")
        layer = layer_of_files({"pause": draft / "pause"}, draft / "pause-layer.tar")
        _pause_image(layer, draft / "pause.tar")
        draft.rename(directory)
    return Binary(directory)


def check_go(version: str | None) -> None:
    """Raise ClusterError with the remedy when Go is missing or too old."""
    wanted = ".".join(map(str, NEEDED_GO))
    remedy = (
        f"Install a current Go (distributions often carry an older one):\n"
        f"    curl -fsSL https://go.dev/dl/go1.25.5.linux-{go_architecture()}.tar.gz | tar -C /usr/local -xz"
        "  # then put /usr/local/go/bin first in PATH"
    )
    if version is None:
        raise ClusterError(
            f"Go {wanted} or newer is needed once, to build Kubernetes, and `go` is not in PATH. {remedy}"
        )
    numbers = re.match(r"go(\d+)\.(\d+)", version)
    if numbers and (int(numbers[1]), int(numbers[2])) < NEEDED_GO:
        raise ClusterError(f"Go {wanted} or newer is needed to build Kubernetes, and `go` is {version}. {remedy}")


def check_toolchain() -> None:
    """Raise ClusterError when the binary would have to be built and cannot be."""
    if find_binary() is None:
        check_go(_go_version())


def go_architecture() -> str:
    """This machine's architecture in the words of Go and of container images."""
    machine = os.uname().machine
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def _go_version() -> str | None:
    if shutil.which("go") is None:
        return None
    # Asked inside the module: its go.mod may choose a newer toolchain than the installed one.
    answer = subprocess.run(["go", "env", "GOVERSION"], cwd=SOURCE, capture_output=True, text=True, check=False)
    return answer.stdout.strip().replace(" ", "-") or None


def _source_hash() -> str:
    digest = hashlib.sha256(FLAGS.encode())
    for name in INPUTS:
        digest.update(name.encode() + b"\0" + (SOURCE / name).read_bytes())
    return digest.hexdigest()[:12]


def _directory(go: str) -> Path:
    return cache_dir() / f"kube-{_source_hash()}-{go}"


def _compile(package: str, target: Path, flags: str) -> None:
    command = ["go", "build", "-trimpath", "-ldflags", flags, "-o", str(target), package]
    if subprocess.run(command, cwd=SOURCE, env={**os.environ, "CGO_ENABLED": "0"}, check=False).returncode:
        raise ClusterError(f"`go build {package}` in {SOURCE} failed; its own message is above")


def _pause_image(layer: Layer, target: Path) -> None:
    config = {"Entrypoint": ["/pause"], "User": "65532"}
    write_archive(target, [PAUSE_IMAGE], [layer], config, go_architecture())

"""Which cluster `dev/cluster` means: one that exists, kind's, or the local one."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from .errors import ClusterError
from .existing import ExistingCluster
from .kind import KindCluster
from .layout import this_layout
from .local import LocalCluster

CHOICES = ("existing", "kind", "local")


class Provider(Protocol):
    """What every kind of cluster can do. Commands are returned, not run, so that the caller can become them."""

    @property
    def name(self) -> str:
        """As TIDEGATE_PROVIDER has it."""

    def up(self, nodes: int | None) -> None:
        """Bring the cluster up with `nodes` nodes (None: the default); a healthy one is left alone."""

    def down(self) -> None:
        """Remove the cluster and all it made; does nothing where there is none."""

    def status(self) -> dict[str, object]:
        """What `dev/cluster status --json` prints."""

    def kubeconfig(self) -> Path:
        """The file that reaches the cluster. Raises ClusterError when there is none."""

    def kubectl(self, arguments: Sequence[str]) -> list[str]:
        """The command line of kubectl with `arguments`."""

    def inside(self, command: Sequence[str]) -> list[str]:
        """The command line of `command` in the network of pods and Services."""

    def load(self, archive: Path) -> None:
        """Import an image archive on every node."""

    def image_stamps(self) -> Path | None:
        """The directory in which dev/image notes what it has loaded; None: nothing can be loaded."""


def choose_provider(kubeconfig: str | None = None) -> Provider:
    """The cluster that is named; else the local one that is up; else kind where it can run; else the local one."""
    chosen = os.environ.get("TIDEGATE_PROVIDER")
    if chosen not in (None, *CHOICES):
        raise ClusterError(f"TIDEGATE_PROVIDER is {chosen!r}: use one of {', '.join(CHOICES)}, or leave it unset")
    kubeconfig = kubeconfig or os.environ.get("TIDEGATE_KUBECONFIG")
    if kubeconfig or chosen == "existing":
        if not kubeconfig:
            raise ClusterError("TIDEGATE_PROVIDER=existing needs TIDEGATE_KUBECONFIG=PATH or --kubeconfig PATH")
        return ExistingCluster(Path(kubeconfig).absolute())
    layout = this_layout()
    local = LocalCluster(layout)
    if chosen == "local" or (chosen is None and local.exists()):
        return local
    if chosen == "kind" or (shutil.which("kind") and _docker_answers()):
        return KindCluster(layout)
    return local


def _docker_answers() -> bool:
    if shutil.which("docker") is None:
        return False
    try:
        asked = subprocess.run(["docker", "info"], capture_output=True, timeout=10, check=False)
    except subprocess.TimeoutExpired:
        return False
    return asked.returncode == 0

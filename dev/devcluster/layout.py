"""Names and places. Everything a cluster owns carries the id of its checkout, so that two checkouts never meet."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from .errors import ClusterError

CHECKOUT = Path(__file__).resolve().parents[2]


def cache_dir() -> Path:
    """Where things outlive a checkout: `TIDEGATE_CACHE`, else the user's cache directory."""
    if chosen := os.environ.get("TIDEGATE_CACHE"):
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tidegate"


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths and names of one local cluster.

    `run` holds sockets and records and is small, since /run is often in memory; `data` holds images, etcd and logs.
    """

    id: str

    @property
    def name(self) -> str:
        """Of everything that must have a name: cgroups, directories, the kind cluster."""
        return f"tidegate-{self.id}"

    @property
    def run(self) -> Path:
        """Sockets, credentials and records."""
        return Path("/run") / self.name

    @property
    def data(self) -> Path:
        """Images, etcd and logs."""
        return Path("/var/lib") / self.name

    @property
    def lock(self) -> Path:
        """Held by whoever starts or stops this cluster."""
        # Beside `run`, not in it: a lock must outlive what it guards.
        return Path("/run") / f"{self.name}.lock"

    @property
    def summary(self) -> Path:
        """Written last by `up`: while it is there, the cluster is complete."""
        return self.run / "cluster.json"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.run / "kubeconfig"

    @property
    def logs(self) -> Path:
        """One file for each component."""
        return self.data / "logs"

    @property
    def audit_log(self) -> Path:
        """Every request to the API server, as audit-policy.yaml has it."""
        return self.logs / "audit.log"

    @property
    def shared_logs(self) -> Path:
        """For hostPath volumes: every node sees this directory under this path."""
        return self.data / "shared"

    def socket(self, node: str) -> Path:
        """Where containerd of `node` listens."""
        return self.run / node / "containerd.sock"


def this_layout() -> Layout:
    """The layout of this checkout, or of `TIDEGATE_CLUSTER_ID` for a second cluster beside it."""
    chosen = os.environ.get("TIDEGATE_CLUSTER_ID")
    if chosen is None:
        return Layout(hashlib.sha256(str(CHECKOUT).encode()).hexdigest()[:8])
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?", chosen):
        raise ClusterError(
            f"TIDEGATE_CLUSTER_ID is {chosen!r}: use 1 to 20 lower-case letters, digits and dashes, "
            "with a letter or digit at both ends."
        )
    return Layout(chosen)

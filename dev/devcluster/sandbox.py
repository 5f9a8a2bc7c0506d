"""The namespaces of a local cluster: a network without a way out, and mounts that nobody else sees.

One tiny process holds both. They have no name on the machine, so when the cluster's processes are gone, the kernel has
already removed links, addresses, rules and mounts, and nothing is left to forget.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from .binary import Binary
from .errors import ClusterError
from .layout import Layout
from .network import NODE_ADDRESS, NOWHERE
from .processes import Launcher, ProcessRecord

HOLDER = "sandbox"
# Paths that Kubernetes and containerd write to whatever their configuration says. Inside the sandbox each is a
# directory of ours. The empty mount points stay behind: to remove one would tear it out from under another cluster,
# since the kernel drops what is mounted on a removed directory elsewhere.
FIXED_PATHS = ("/var/lib/kubelet", "/var/lib/cni", "/var/log/containers", "/run/containerd")

_SETUP = f"""
run=$1 data=$2 holder=$3; shift 3
for place in "$@"; do mkdir -p "$data/fixed$place"; mount --bind "$data/fixed$place" "$place"; done
ip link set lo up
ip link add uplink0 type bridge
ip addr add {NODE_ADDRESS}/16 dev uplink0
ip link set uplink0 up
ip route add default via {NOWHERE} dev uplink0
echo 1 >/proc/sys/net/ipv4/ip_forward
if [ -e /proc/sys/net/bridge/bridge-nf-call-iptables ]; then echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables; fi
exec "$holder"
"""


def open_sandbox(layout: Layout, launcher: Launcher, binary: Binary, timeout: float = 20.0) -> ProcessRecord:
    """Start the process that holds the namespaces and wait until they are furnished."""
    holder_program = layout.run / HOLDER
    shutil.copy(binary.component("pause"), holder_program)
    for place in FIXED_PATHS:
        Path(place).mkdir(parents=True, exist_ok=True)
    unshare = ["unshare", "--net", "--mount", "--propagation", "slave"]
    script = ["sh", "-euc", _SETUP, HOLDER, layout.run, layout.data, holder_program, *FIXED_PATHS]
    holder = launcher.start(HOLDER, [*unshare, *script])
    deadline = time.monotonic() + timeout
    # It becomes the holder only after every step of the set-up has worked.
    while _program(holder.pid) != str(holder_program):
        if not holder.alive or time.monotonic() > deadline:
            raise ClusterError(f"the cluster's namespaces could not be set up:\n{launcher.log_tail(HOLDER)}")
        time.sleep(0.02)
    return holder


def enter(holder: ProcessRecord, *, mounts: bool) -> list[str]:
    """The command prefix that runs something in the cluster's network, and with `mounts` among its mounts.

    Not `ip netns exec`: that mounts a new /sys, in which the kubelet finds no cgroups.
    """
    spaces = [f"--net=/proc/{holder.pid}/ns/net"]
    if mounts:
        spaces.append(f"--mount=/proc/{holder.pid}/ns/mnt")
    return ["nsenter", *spaces, "--"]


def _program(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/exe").readlink())
    except OSError:
        return ""


def run_inside(holder: ProcessRecord, command: Sequence[object]) -> list[str]:
    """`command` in the cluster's network, with the machine's own mounts."""
    return [*enter(holder, mounts=False), *map(str, command)]

"""The configuration files of a local cluster, as text."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from .binary import PAUSE_IMAGE
from .layout import Layout
from .network import API_SERVER, DNS_SERVICE, NODE_ADDRESS, POD_NETWORK, pod_subnet
from .pki import User


@dataclass(frozen=True, slots=True)
class Node:
    """One kubelet and its containerd. Ports and subnet follow from `index`, which starts at 1."""

    name: str
    index: int

    @property
    def kubelet_port(self) -> int:
        """Where its kubelet serves logs and commands."""
        return 10250 + 10 * self.index

    @property
    def health_port(self) -> int:
        """Where its kubelet serves /healthz, on 127.0.0.1."""
        return 10248 + 10 * self.index

    @property
    def subnet(self) -> str:
        """Of its pods."""
        return pod_subnet(self.index)


def kubeconfig(layout: Layout, user: User) -> str:
    """JSON is YAML: a kubeconfig for one user."""
    cluster = {"server": API_SERVER, "certificate-authority": str(layout.run / "pki" / "ca.crt")}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": layout.name, "cluster": cluster}],
            "users": [{"name": user.name, "user": {"token": user.token}}],
            "contexts": [{"name": layout.name, "context": {"cluster": layout.name, "user": user.name}}],
            "current-context": layout.name,
        },
        indent=2,
    )


def cni(layout: Layout, node: Node) -> str:
    """The network of a node's pods: a bridge of its own, addresses from its own subnet."""
    ranges = [[{"subnet": node.subnet}]]
    addresses = {
        "type": "host-local",
        "ranges": ranges,
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": str(layout.run / node.name / "addresses"),
    }
    bridge = {
        "type": "bridge",
        "bridge": f"cni{node.index}",
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": addresses,
    }
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    return json.dumps({"cniVersion": "0.4.0", "name": layout.name, "plugins": [bridge, portmap]}, indent=2)


def containerd(layout: Layout, node: Node, plugins: Path) -> str:
    """A containerd that shares no path with another one on this machine."""
    run, data = layout.run / node.name, layout.data / node.name
    return f"""version = 2
root = "{data}/containerd"
state = "{run}/containerd"
disabled_plugins = [
  "io.containerd.nri.v1.nri",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]
[grpc]
  address = "{layout.socket(node.name)}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{data}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  # Machines without CAP_SYS_RESOURCE may not lower a process's OOM score; runc would fail without saying so.
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{run}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter(layout.data)}"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
"""


def snapshotter(directory: Path, mounts: str | None = None) -> str:
    """overlayfs, except on top of another overlay (a container's own root), where the kernel refuses it."""
    best, kind = "", ""
    for line in (Path("/proc/mounts").read_text() if mounts is None else mounts).splitlines():
        _, place, found, *_ = line.split(" ")
        inside = place == "/" or str(directory) == place or str(directory).startswith(place + "/")
        if inside and len(place) >= len(best):
            best, kind = place, found
    return "native" if kind in ("overlay", "overlayfs") else "overlayfs"


def kubelet(layout: Layout, node: Node) -> str:
    """A kubelet that leaves the machine's resources alone and tolerates cgroup version 1."""
    return json.dumps(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": NODE_ADDRESS,
            "port": node.kubelet_port,
            "healthzPort": node.health_port,
            "readOnlyPort": 0,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
                "x509": {"clientCAFile": str(layout.run / "pki" / "ca.crt")},
            },
            "authorization": {"mode": "AlwaysAllow"},  # reached only by those with a certificate of our authority
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{layout.name}/{node.name}",
            "failSwapOn": False,
            "failCgroupV1": False,
            "oomScoreAdj": 0,
            "containerRuntimeEndpoint": f"unix://{layout.socket(node.name)}",
            "clusterDomain": "cluster.local",
            "clusterDNS": [DNS_SERVICE],
            "resolvConf": "",
            "nodeStatusUpdateFrequency": "5s",
            "podLogsDir": str(layout.data / node.name / "pod-logs"),
            "volumePluginDir": str(layout.data / node.name / "volume-plugins"),
            "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "enforceNodeAllocatable": [],
            "imageGCHighThresholdPercent": 100,  # no collection: what is gone here cannot be pulled again
            "maxPods": 200,
        },
        indent=2,
    )


def kube_proxy(kubeconfig_path: Path, node: Node) -> str:
    """One kube-proxy serves all nodes, since they share a network namespace."""
    return json.dumps(
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "iptables",
            "oomScoreAdj": 0,
            "clusterCIDR": POD_NETWORK,
            "hostnameOverride": node.name,
            "clientConnection": {"kubeconfig": str(kubeconfig_path)},
            "conntrack": {"maxPerCore": 0},
            # A second by default: a withdrawal right after a new pod's Ready then waits for most of the tests'
            # propagation time, which is a second too.
            "iptables": {"minSyncPeriod": "100ms"},
        },
        indent=2,
    )

"""The configuration files of a local cluster: two nodes share one network, so no path and no port may be the same."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from dev.devcluster import configs
from dev.devcluster.layout import Layout
from dev.devcluster.pki import User

LAYOUT = Layout("x")
NODES = [configs.Node("node-1", 1), configs.Node("node-2", 2)]


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


def test_a_kubeconfig_is_for_one_user_and_keeps_to_one_cluster() -> None:
    found = json.loads(configs.kubeconfig(LAYOUT, User("system:kube-proxy", ("g",), "secret")))
    assert found["users"] == [{"name": "system:kube-proxy", "user": {"token": "secret"}}]
    (context,) = found["contexts"]
    assert context["name"] == found["current-context"] == "tidegate-x"
    assert context["context"] == {"cluster": "tidegate-x", "user": "system:kube-proxy"}
    assert found["clusters"][0]["cluster"]["certificate-authority"] == "/run/tidegate-x/pki/ca.crt"


def _values(found: Any) -> set[str]:
    """Every number, path and socket in a configuration."""
    if isinstance(found, dict):
        return set().union(*map(_values, found.values()), set())
    if isinstance(found, list):
        return set().union(*map(_values, found), set())
    return {str(found)}


def test_two_nodes_share_no_kubelet_port_and_no_path() -> None:
    first, second = (json.loads(configs.kubelet(LAYOUT, node)) for node in NODES)
    for key in ("port", "healthzPort", "cgroupRoot", "containerRuntimeEndpoint", "podLogsDir", "volumePluginDir"):
        assert first[key] != second[key]
    ports = [found[key] for found in (first, second) for key in ("port", "healthzPort")]
    assert len(set(ports)) == 4


def test_two_nodes_share_no_path_of_containerd_but_the_plugins() -> None:
    texts = [configs.containerd(LAYOUT, node, Path("/usr/lib/cni")) for node in NODES]
    first, second = (_values(tomllib.loads(text)) for text in texts)
    assert {value for value in first & second if "/" in value} == {"/usr/lib/cni", "tidegate.dev/pause:1"}


def test_two_nodes_have_a_bridge_and_a_subnet_each() -> None:
    bridges = [json.loads(configs.cni(LAYOUT, node))["plugins"][0] for node in NODES]
    assert [b["bridge"] for b in bridges] == ["cni1", "cni2"]
    assert [b["ipam"]["ranges"] for b in bridges] == [[[{"subnet": "10.244.1.0/24"}]], [[{"subnet": "10.244.2.0/24"}]]]
    assert bridges[0]["ipam"]["dataDir"] != bridges[1]["ipam"]["dataDir"]


def test_kube_proxy_serves_the_whole_pod_network() -> None:
    found = json.loads(configs.kube_proxy(Path("/run/x.kubeconfig"), NODES[0]))
    assert (found["clusterCIDR"], found["hostnameOverride"]) == ("10.244.0.0/16", "node-1")
    assert found["clientConnection"] == {"kubeconfig": "/run/x.kubeconfig"}

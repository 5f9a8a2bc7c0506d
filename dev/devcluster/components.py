"""The command lines of the components, and the order they are configured in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import configs
from .binary import Binary
from .configs import Node
from .errors import ClusterError
from .layout import CHECKOUT, Layout
from .network import NODE_ADDRESS, SERVICE_NETWORK
from .pki import make_certificates, make_users, token_file
from .prerequisites import find_cni_plugins
from .processes import Launcher, ProcessRecord, read_records, write_atomically
from .sandbox import enter

AUDIT_POLICY = CHECKOUT / "dev" / "audit-policy.yaml"
ETCD = "http://127.0.0.1:2379"


@dataclass(frozen=True, slots=True)
class Starter:
    """Starts the components of one cluster inside its sandbox."""

    layout: Layout
    binary: Binary
    launcher: Launcher
    holder: ProcessRecord

    def check(self) -> None:
        """Raise ClusterError with the last lines of its log when a component has died."""
        for record in read_records(self.layout.run / "pids"):
            if not record.alive:
                raise ClusterError(f"{record.name} ended:\n{self.launcher.log_tail(record.name)}")

    def write_credentials(self, nodes: list[Node]) -> None:
        """Write certificates, tokens and a kubeconfig for every component and for people."""
        make_certificates(self.layout.run / "pki")
        users = make_users([node.name for node in nodes])
        write_atomically(self.layout.run / "tokens.csv", token_file(users), mode=0o600)
        for key, user in users.items():
            target = self.layout.kubeconfig if key == "admin" else self._credentials(key)
            write_atomically(target, configs.kubeconfig(self.layout, user), mode=0o600)

    def start_control_plane(self) -> None:
        """Start etcd and the API server, which waits for etcd by itself."""
        pki, data = self.layout.run / "pki", self.layout.data
        etcd = {
            "data-dir": data / "etcd",
            "unsafe-no-fsync": "true",
            "listen-client-urls": ETCD,
            "advertise-client-urls": ETCD,
            "listen-peer-urls": "http://127.0.0.1:2380",
            "log-level": "warn",
        }
        self._start("etcd", _flags(etcd))
        api_server = {
            "etcd-servers": ETCD,
            "service-cluster-ip-range": SERVICE_NETWORK,
            "advertise-address": NODE_ADDRESS,
            "tls-cert-file": pki / "apiserver.crt",
            "tls-private-key-file": pki / "apiserver.key",
            "client-ca-file": pki / "ca.crt",
            "cert-dir": pki / "generated",
            "allow-privileged": "true",
            "service-account-key-file": pki / "sa.key",
            "service-account-signing-key-file": pki / "sa.key",
            "service-account-issuer": "https://kubernetes.default.svc",
            "token-auth-file": self.layout.run / "tokens.csv",
            "authorization-mode": "Node,RBAC",
            "enable-admission-plugins": "NodeRestriction",
            "kubelet-preferred-address-types": "InternalIP",
            "kubelet-client-certificate": pki / "kubelet-client.crt",
            "kubelet-client-key": pki / "kubelet-client.key",
            "audit-policy-file": AUDIT_POLICY,
            "audit-log-path": self.layout.audit_log,
            "audit-log-mode": "blocking",
            "audit-log-maxsize": "1000",
        }
        self._start("kube-apiserver", _flags(api_server))

    def start_controllers(self) -> None:
        """Start the controller manager and the scheduler, each as its own user."""
        pki = self.layout.run / "pki"
        manager = self._credentials("kube-controller-manager")
        options = [
            f"--kubeconfig={manager}",
            f"--authentication-kubeconfig={manager}",
            f"--authorization-kubeconfig={manager}",
            f"--service-account-private-key-file={pki / 'sa.key'}",
            f"--root-ca-file={pki / 'ca.crt'}",
            "--use-service-account-credentials",  # so that the audit log names the controller
            "--leader-elect=false",
        ]
        self._start("kube-controller-manager", options)
        scheduler = self._credentials("kube-scheduler")
        access = [f"--{kind}kubeconfig={scheduler}" for kind in ("", "authentication-", "authorization-")]
        self._start("kube-scheduler", [*access, "--leader-elect=false"])

    def start_containerd(self, node: Node) -> None:
        """Start a node's container runtime."""
        plugins = find_cni_plugins()
        if plugins is None:
            raise ClusterError("the CNI plugins are gone: install the package containernetworking-plugins")
        run = self.layout.run / node.name
        (run / "cni").mkdir(parents=True)
        (self.layout.data / node.name).mkdir()
        (run / "cni" / "10-pods.conflist").write_text(configs.cni(self.layout, node))
        (run / "containerd.toml").write_text(configs.containerd(self.layout, node, plugins))
        command = [*enter(self.holder, mounts=True), "containerd", "--config", run / "containerd.toml"]
        self.launcher.start(f"containerd-{node.name}", command)

    def start_kubelet(self, node: Node) -> None:
        """Start a node's kubelet; its containerd must listen already."""
        data = self.layout.data / node.name
        config = self.layout.run / node.name / "kubelet.json"
        config.write_text(configs.kubelet(self.layout, node))
        options = [
            f"--config={config}",
            f"--kubeconfig={self._credentials(node.name)}",
            f"--root-dir={data / 'kubelet'}",
            f"--cert-dir={self.layout.run / 'pki' / node.name}",
            f"--hostname-override={node.name}",
            f"--node-ip={NODE_ADDRESS}",
        ]
        self._start("kubelet", options, name=f"kubelet-{node.name}")

    def start_proxy(self, node: Node) -> None:
        """Start the kube-proxy of the whole cluster."""
        config = self.layout.run / "kube-proxy.json"
        config.write_text(configs.kube_proxy(self._credentials("kube-proxy"), node))
        self._start("kube-proxy", [f"--config={config}"])

    def _start(self, component: str, options: Sequence[object], name: str | None = None) -> None:
        command = [*enter(self.holder, mounts=True), self.binary.component(component), *options]
        self.launcher.start(name or component, command)

    def _credentials(self, user: str) -> Path:
        return self.layout.run / "pki" / f"{user}.kubeconfig"


def _flags(options: Mapping[str, object]) -> list[str]:
    return [f"--{name}={value}" for name, value in options.items()]

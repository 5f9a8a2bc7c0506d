"""Keys, certificates and tokens of a local cluster. They live as long as the cluster does."""

from __future__ import annotations

import secrets
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .errors import ClusterError
from .network import API_SERVICE, NODE_ADDRESS

_NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost")


@dataclass(frozen=True, slots=True)
class User:
    """One caller of the API server, known by a bearer token."""

    name: str
    groups: tuple[str, ...]
    token: str


def make_users(nodes: list[str]) -> dict[str, User]:
    """A user for each component, as in a real cluster, so that the audit log tells them apart."""
    wanted = {"admin": ("admin", ("system:masters",))}
    for component in ("kube-controller-manager", "kube-scheduler", "kube-proxy"):
        wanted[component] = (f"system:{component}", ("system:authenticated",))
    for node in nodes:
        wanted[node] = (f"system:node:{node}", ("system:nodes",))
    return {key: User(name, groups, secrets.token_hex(20)) for key, (name, groups) in wanted.items()}


def token_file(users: dict[str, User]) -> str:
    """The users in the format of kube-apiserver's --token-auth-file."""
    return "".join(f'{u.token},{u.name},{u.name},"{",".join(u.groups)}"\n' for u in users.values())


def make_certificates(directory: Path) -> None:
    """Write the authority, the API server's certificates (server, client of kubelets), and the ServiceAccounts' key."""
    directory.mkdir(mode=0o700)
    _key(directory / "sa.key")
    _key(directory / "ca.key")
    authority = ["-key", "ca.key", "-out", "ca.crt", "-days", "365", "-subj", "/CN=tidegate-ca"]
    _openssl("req", "-x509", "-new", *authority, at=directory)
    addresses = f"IP:127.0.0.1,IP:{NODE_ADDRESS},IP:{API_SERVICE}"
    names = ",".join(f"DNS:{name}" for name in _NAMES)
    _certificate(directory, "apiserver", "/CN=kube-apiserver", f"subjectAltName={names},{addresses}\n")
    # With it the API server fetches logs from kubelets and runs commands through them.
    _certificate(
        directory, "kubelet-client", "/O=system:masters/CN=apiserver-kubelet-client", "extendedKeyUsage=clientAuth\n"
    )


def _key(path: Path) -> None:
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path.name, at=path.parent)


def _certificate(directory: Path, name: str, subject: str, extensions: str) -> None:
    _key(directory / f"{name}.key")
    (directory / f"{name}.ext").write_text(extensions)
    _openssl("req", "-new", "-key", f"{name}.key", "-out", f"{name}.csr", "-subj", subject, at=directory)
    signing = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "365", "-extfile", f"{name}.ext"]
    _openssl("x509", "-req", "-in", f"{name}.csr", *signing, "-out", f"{name}.crt", at=directory)


def _openssl(*arguments: str, at: Path) -> None:
    answer = subprocess.run(["openssl", *arguments], cwd=at, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise ClusterError(f"`openssl {arguments[0]}` failed: {answer.stderr.strip()}")

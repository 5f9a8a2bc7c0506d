"""Users and certificates of a local cluster, checked with openssl as a client would."""

import csv
import stat
import subprocess
from pathlib import Path

import pytest
from dev.devcluster.errors import ClusterError
from dev.devcluster.network import API_SERVICE, NODE_ADDRESS
from dev.devcluster.pki import _openssl, make_certificates, make_users, token_file


def test_every_component_and_every_node_is_a_user_of_its_own() -> None:
    users = make_users(["node-1", "node-2"])
    assert set(users) == {"admin", "kube-controller-manager", "kube-scheduler", "kube-proxy", "node-1", "node-2"}
    assert users["node-2"].name == "system:node:node-2"
    assert users["admin"].groups == ("system:masters",)
    assert len({user.token for user in users.values()}) == len(users)


def test_the_token_file_is_csv_as_the_api_server_reads_it() -> None:
    users = make_users(["node-1"])
    rows = list(csv.reader(token_file(users).splitlines()))
    assert [[row[1], row[3]] for row in rows] == [[user.name, ",".join(user.groups)] for user in users.values()]


def _openssl_says(*arguments: str, at: Path) -> str:
    return subprocess.run(["openssl", *arguments], cwd=at, capture_output=True, text=True, check=True).stdout


def test_certificates_are_signed_by_the_authority_and_name_the_api_server(tmp_path: Path) -> None:
    pki = tmp_path / "pki"
    make_certificates(pki)
    assert stat.S_IMODE(pki.stat().st_mode) == 0o700
    for name, purpose in (("apiserver", "sslserver"), ("kubelet-client", "sslclient")):
        said = _openssl_says("verify", "-CAfile", "ca.crt", "-purpose", purpose, f"{name}.crt", at=pki)
        assert said == f"{name}.crt: OK\n"
    for address in (NODE_ADDRESS, API_SERVICE, "127.0.0.1"):
        said = _openssl_says("x509", "-in", "apiserver.crt", "-noout", "-checkip", address, at=pki)
        assert "does match" in said
    subject = ["-in", "kubelet-client.crt", "-noout", "-subject", "-nameopt", "RFC2253"]
    assert "O=system:masters" in _openssl_says("x509", *subject, at=pki)
    _openssl_says("ec", "-in", "sa.key", "-noout", at=pki)


def test_openssl_s_own_words_are_passed_on(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="`openssl x509` failed: "):
        _openssl("x509", "-in", "missing.crt", at=tmp_path)

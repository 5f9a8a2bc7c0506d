"""`tidegate operator` where there is no cluster: one sentence that names the remedy, and no trace."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.api.errors import ClusterError
from tidegate.cluster.client import connect

ROOT = Path(__file__).parents[2] / "operator"


def run(home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("KUBE", "HOME"))}
    command = [sys.executable, "-m", "tidegate", "operator", "--liveness", "", "--metrics", ""]
    env = inherited | {"HOME": str(home), "PYTHONPATH": str(ROOT)} | environment
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_without_a_cluster_it_ends_with_one_sentence(tmp_path: Path):
    done = run(tmp_path)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr + done.stdout
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stderr.startswith("tidegate operator: no access to a cluster")
    assert "set KUBECONFIG" in done.stderr


@pytest.mark.parametrize(
    "liveness", ["foo", "0.0.0.0:8080", "http://:8080/healthz", "http://0.0.0.0/healthz", "http://[::"]
)
def test_a_liveness_address_that_is_none_is_named(tmp_path: Path, liveness: str):
    command = [sys.executable, "-m", "tidegate", "operator", "--metrics", "", "--liveness", liveness]
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert "--liveness" in done.stderr and "for example http://0.0.0.0:8080/healthz" in done.stderr


BROKEN = {
    "empty": "",
    "rubbish": "{",
    "bare": "apiVersion: v1\nkind: Config\n",
    "a list": "- a",
    "a word": "cluster",
    "no such context": "current-context: x\ncontexts: []\nclusters: []\nusers: []",
    "a context of nothing": "current-context: x\ncontexts:\n- name: x\nclusters: []\nusers: []",
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN.keys())
async def test_a_kubeconfig_that_is_none_is_one_sentence_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
):
    path = tmp_path / "config"
    path.write_text(content)
    # The library reads KUBECONFIG once, when it is imported.
    monkeypatch.setattr("kubernetes.aio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(path))
    with pytest.raises(ClusterError) as caught:
        await connect("test")
    assert str(caught.value).startswith("no access to a cluster: ") and "KUBECONFIG" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1

"""The cluster under test: kubectl for what a user would type, JSON over `kubectl proxy` for what tests ask often."""

import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import httpx

CHECKOUT = Path(__file__).resolve().parents[3]
PATIENCE_SECONDS = 600.0
"""Until something must have happened: a bound for a hung cluster, no claim about speed."""
POLL_SECONDS = 0.3
Object = dict[str, Any]
T = TypeVar("T")

CRD = "llmservices.tidegate.dev"
NODES = "api/v1/nodes"
PODS = "api/v1/namespaces/{}/pods"
EVENTS = "api/v1/namespaces/{}/events"
SERVICES = "api/v1/namespaces/{}/services"
DEPLOYMENTS = "apis/apps/v1/namespaces/{}/deployments"
SLICES = "apis/discovery.k8s.io/v1/namespaces/{}/endpointslices"
REPLICASETS = "apis/apps/v1/namespaces/{}/replicasets"
LLMSERVICES = "apis/tidegate.dev/v1alpha1/namespaces/{}/llmservices"
BUDGETS = "apis/policy/v1/namespaces/{}/poddisruptionbudgets"
CONFIGMAPS = "api/v1/namespaces/{}/configmaps"
SECRETS = "api/v1/namespaces/{}/secrets"
POLICIES = "apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"


def kubectl_command(*args: str) -> list[str]:
    """KUBECTL says how to reach the cluster; absent: the one of `dev/cluster`."""
    return [*shlex.split(os.environ.get("KUBECTL", f"{CHECKOUT}/dev/cluster kubectl")), *args]


def eventually(what: str, look: Callable[[], T], seconds: float = PATIENCE_SECONDS) -> T:
    """Look until the answer is true and return it; fails with `what` after `seconds`."""
    give_up = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < give_up, f"waited {seconds:.0f} s in vain: {what}"
        time.sleep(POLL_SECONDS)
    return found


class Kube:
    """One session's way to the API server. Use as a context manager: it runs a proxy on a socket of its own.

    So there are no credentials to parse, and the cluster may be in any network.
    """

    @cached_property
    def _cluster(self) -> Object:
        """What `dev/cluster` knows of the cluster: the API server does not tell where its log is."""
        status: Object = json.loads(subprocess.check_output([f"{CHECKOUT}/dev/cluster", "status", "--json"], text=True))
        return status

    @property
    def audit_log(self) -> Path:
        path = Path(self._cluster["auditLog"] or "")
        assert path.is_file(), f"this test judges by the API server's audit log; {self._cluster['provider']} has none"
        return path

    @property
    def shared_logs(self) -> Path:
        path = Path(self._cluster["hostPathLogs"] or "")
        assert path.is_dir(), f"this test judges by logs on a hostPath; {self._cluster['provider']} has none"
        return path

    def __enter__(self) -> "Kube":
        self._directory = TemporaryDirectory()
        socket = f"{self._directory.name}/api.sock"
        command = kubectl_command("proxy", f"--unix-socket={socket}")
        # A group of its own, since KUBECTL may be a script that starts the real one.
        self._proxy = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
        eventually("kubectl proxy", lambda: self._proxy.poll() is not None or Path(socket).exists())
        assert self._proxy.poll() is None, "kubectl proxy ended: is there a cluster? dev/cluster up"
        transport = httpx.HTTPTransport(uds=socket, retries=2)
        self._http = httpx.Client(transport=transport, base_url="http://localhost", timeout=PATIENCE_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()
        with suppress(ProcessLookupError):
            os.killpg(self._proxy.pid, signal.SIGTERM)
        self._proxy.wait()
        self._directory.cleanup()

    def kubectl(self, *args: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """What a user types; the caller looks at the exit code and at what was said."""
        return subprocess.run(
            kubectl_command(*args), input=stdin, capture_output=True, text=True, timeout=PATIENCE_SECONDS
        )

    def must(self, *args: str, stdin: str | None = None) -> str:
        """The same where a refusal is a failure of the test."""
        done = self.kubectl(*args, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(args)}: {done.stderr.strip()}"
        return done.stdout

    def apply(self, namespace: str, *objects: Object) -> None:
        """As a user does from a file, taking over what `kubectl scale` or `set image` wrote before."""
        text = "\n---\n".join(json.dumps(item) for item in objects)
        self.must("-n", namespace, "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)

    def install_crd(self) -> None:
        """The CustomResourceDefinition of this checkout; the API server may take it up a moment later."""
        self.must("apply", "--server-side", "--force-conflicts", "-k", str(CHECKOUT / "crds"))
        self.must("wait", "--for=condition=Established", f"crd/{CRD}", f"--timeout={PATIENCE_SECONDS:.0f}s")

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None, **params: str) -> httpx.Response:
        """One request; the caller looks at the answer. PATCH merges."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        return self._http.request(method, f"/{path}", json=body, params=params, headers={"Content-Type": kind})

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Object:
        """The same where a refusal is a failure of the test."""
        answer = self.call(method, path, body)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return dict(answer.json())

    def post_text(self, path: str, text: str) -> None:
        """To an endpoint of a pod's own, through the API server's proxy."""
        answer = self._http.post(f"/{path}", content=text.encode())
        assert answer.is_success, f"POST {path}: {answer.status_code} {answer.text}"

    def get(self, path: str, **params: str) -> Object | None:
        """The object, None if there is none."""
        answer = self.call("GET", path, **params)
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        assert answer.is_success, f"GET {path}: {answer.status_code} {answer.text}"
        found: Object = answer.json()
        return found

    def items(self, path: str, **params: str) -> list[Object]:
        found = self.get(path, **params)
        return list(found["items"]) if found else []

    def raw(self, path: str) -> str:
        return self._http.get(f"/{path}").raise_for_status().text

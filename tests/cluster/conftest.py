"""Fixtures of the tests that need the operator, services and load; see the modules of `harness`."""

import json
import os
import secrets
import shutil
from collections.abc import Iterator

import pytest

from cluster.harness import policies
from cluster.harness.audit import Audit
from cluster.harness.kube import NODES, Kube, eventually
from cluster.harness.operator import Operator
from cluster.harness.record import MakeRecord, Record
from cluster.harness.service import MakeDevices, Namespace


@pytest.fixture(scope="session")
def kube() -> Iterator[Kube]:
    """kubectl and the API."""
    with Kube() as found:
        yield found


@pytest.fixture(scope="session")
def operator(kube: Kube) -> Iterator[Operator]:
    """The operator in the cluster; any request that its shipped role did not allow fails the session at its end."""
    found = Operator(kube)
    found.install()
    yield found
    refused = found.refused_calls()
    if not os.environ.get("KEEP"):
        found.uninstall()
    assert not refused, "the operator's role is too small:\n" + "\n".join(refused)


@pytest.fixture(scope="module")
def policed_namespace(kube: Kube) -> Iterator[str]:
    """A namespace of the module's own in which the shipped policies are in force."""
    policies.install(kube)
    with policies.policed_namespace(kube) as name:
        yield name


@pytest.fixture(scope="session")
def leavings(kube: Kube) -> Iterator[list[Namespace]]:
    """Namespaces on their way out, which is waited for once: a pod that drains in place takes a while to go."""
    found: list[Namespace] = []
    yield found
    for item in found:
        eventually(f"{item.name} is gone", lambda name=item.name: kube.get(f"api/v1/namespaces/{name}") is None)
        shutil.rmtree(item.directory)


@pytest.fixture
def namespace(kube: Kube, leavings: list[Namespace]) -> Iterator[Namespace]:
    """A namespace of the test's own, deleted after it however it ends."""
    found = Namespace(kube, f"test-{secrets.token_hex(4)}")
    for directory in (found.directory, found.directory / "pods", found.directory / "clients"):
        directory.mkdir()
        directory.chmod(0o1777)
    kube.must("create", "namespace", found.name)
    leavings.append(found)
    yield found
    kube.must("delete", "namespace", found.name, "--wait=false", "--ignore-not-found")


@pytest.fixture
def devices(kube: Kube) -> Iterator[MakeDevices]:
    """`devices(3)` puts three of a kind of their own on one node and returns the limits that ask for one of them."""
    node = kube.items(NODES)[0]["metadata"]["name"]
    made: list[str] = []

    def patch(*operations: dict[str, str]) -> None:
        kube.must("patch", "node", node, "--subresource=status", "--type=json", "-p", json.dumps(operations))

    def make(count: int) -> dict[str, str]:
        made.append(f"tidegate.test/{secrets.token_hex(4)}")
        patch({"op": "add", "path": device_path(made[-1]), "value": str(count)})
        return {made[-1]: "1"}

    yield make
    patch(*({"op": "remove", "path": device_path(name)} for name in made))


def device_path(resource: str) -> str:
    return f"/status/capacity/{resource.replace('/', '~1')}"


@pytest.fixture
def audit(kube: Kube) -> Audit:
    """The API server's audit log from here on."""
    return Audit(kube.audit_log)


@pytest.fixture
def record(kube: Kube, namespace: Namespace) -> Iterator[MakeRecord]:
    """`record(labels)` begins to watch the namespace's pods and Deployments; ask it after its `catch_up`."""
    made: list[Record] = []

    def make(labels: str) -> Record:
        made.append(Record(kube, namespace.name, labels))
        return made[-1]

    yield make
    for item in made:
        item.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the schema and the policies come first: an operator would take part in what they write."""
    items.sort(key=lambda item: "operator" in getattr(item, "fixturenames", ()))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Beside a failure, what the cluster looked like: when the fixtures have gone, nobody can look any more."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    namespace = getattr(item, "funcargs", {}).get("namespace")
    if not (report.failed and call.when == "call" and isinstance(namespace, Namespace)):
        return
    kube = namespace.kube
    described = kube.kubectl("-n", namespace.name, "describe", "llmservices").stdout
    pods = kube.kubectl("-n", namespace.name, "get", "pods", "-o", "wide", "--show-labels").stdout
    log = item.funcargs["operator"].log() if "operator" in item.funcargs else ""
    report.sections += [("LLMServices", described), ("pods", pods), ("operator", log[-6000:])]

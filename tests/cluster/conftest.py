"""Fixtures of the tests on a real cluster, and which of them may run side by side; see the modules of `harness`.

`--part` selects one of three parts, which `make test-cluster` runs one after the other:

- `without-operator`: an operator would take part in what these tests write. Side by side, file by file.
- `side-by-side`: each test has a namespace of its own and looks at nothing else.
- `alone`: the test stops the operator, or judges by the whole cluster.

Without `--part` all tests run in this order, in one process.
"""

import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
def operator(kube: Kube, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """The operator in the cluster; any request that its shipped role did not allow fails the session at its end.

    Workers of pytest-xdist share it: the first installs it, and none removes it, since others may still need it.
    """
    found, run = Operator(kube), os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run:
        with once_per_run(tmp_path_factory.getbasetemp().parent / f"operator-{run}") as first:
            if first:
                found.install()
    else:
        found.install()
    yield found
    refused = found.refused_calls()
    if not run and not os.environ.get("KEEP"):
        found.uninstall()
    assert not refused, "the operator's role is too small:\n" + "\n".join(refused)


@contextmanager
def once_per_run(stamp: Path) -> Iterator[bool]:
    """Whether nobody has done it yet, of the workers that share `stamp`. One enters the block at a time.

    Where the block fails the others fail at once, with the same error: each would wait as long in its turn.
    """
    with stamp.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        done = file.read()
        assert done in ("", "done"), f"another worker has failed to do it: {done}"
        try:
            yield not done
        except BaseException as error:
            file.write(repr(error))
            raise
        file.write("" if done else "done")


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


WITHOUT_OPERATOR, SIDE_BY_SIDE, ALONE = PARTS = ("without-operator", "side-by-side", "alone")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", choices=PARTS, help="only this part of the tests on a real cluster")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "alone: stops the operator or judges by the whole cluster; nothing runs beside")
    config.addinivalue_line("markers", "begins_first: takes minutes; the others find their place beside it")


def part_of(item: pytest.Item) -> str:
    """Long tests take the whole machine, so nothing runs beside them either."""
    if "operator" not in getattr(item, "fixturenames", ()):
        return WITHOUT_OPERATOR
    return ALONE if item.get_closest_marker("alone") or item.get_closest_marker("long") else SIDE_BY_SIDE


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: (PARTS.index(part_of(item)), item.get_closest_marker("begins_first") is None))
    if wanted := config.getoption("part", None):
        others = [item for item in items if part_of(item) != wanted]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]


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

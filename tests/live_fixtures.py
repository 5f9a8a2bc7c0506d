"""Fixtures of tests that need no operator: the API, the shipped policies, a namespace that goes in the end."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from live_api import CHECKOUT, KUBECTL, Api, eventually, in_force, kubectl, new_namespace


@pytest.fixture(scope="module")
def live_api() -> Iterator[Api]:
    with TemporaryDirectory() as directory:
        socket = f"{directory}/api.sock"
        # A group of its own, since KUBECTL may be a script that starts the real one.
        command = [*KUBECTL, "proxy", f"--unix-socket={socket}"]
        proxy = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
        try:
            eventually("kubectl proxy", lambda: proxy.poll() is not None or Path(socket).exists())
            assert proxy.poll() is None, "kubectl proxy ended: is there a cluster? dev/cluster up"
            client = Api(socket)
            yield client
            client.close()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(proxy.pid, signal.SIGTERM)
            proxy.wait(timeout=30)


@pytest.fixture(scope="module")
def live_policies(live_api: Api) -> None:
    """The shipped policies; a namespace waits until they count."""
    applied = kubectl("apply", "--server-side", "--force-conflicts", "-k", str(CHECKOUT / "manifests/cluster"))
    assert applied.returncode == 0, applied.stderr


@pytest.fixture(scope="module")
def policed_namespace(live_api: Api, live_policies: None) -> Iterator[str]:
    name = new_namespace(live_api)
    try:
        eventually("the policies in force", lambda: in_force(live_api, name))
        yield name
    finally:
        live_api.call("DELETE", f"api/v1/namespaces/{name}")
        eventually(f"namespace {name} gone", lambda: not live_api.exists(f"api/v1/namespaces/{name}"))

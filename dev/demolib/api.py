"""The API server, reached through one `kubectl proxy` on a private socket.

So the demo works wherever `dev/cluster kubectl` does, with one process instead of one for every question.
"""

import asyncio
import contextlib
import json
import os
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from .errors import DemoError

CLUSTER = Path(__file__).resolve().parents[1] / "cluster"
START_SECONDS = 20.0
KUBECTL_SECONDS = 120.0
PAUSE_SECONDS = 0.5
UNREADY_TRIES = 40
Object = dict[str, Any]


async def kubectl(*arguments: str) -> str:
    """Run kubectl to its end and return what it printed; raises DemoError with its own words."""
    process = await asyncio.create_subprocess_exec(
        str(CLUSTER), "kubectl", *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        async with asyncio.timeout(KUBECTL_SECONDS):
            out, err = await process.communicate()
    except TimeoutError:
        raise DemoError(f"`kubectl {' '.join(arguments)}` took more than {KUBECTL_SECONDS:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise DemoError(f"`kubectl {' '.join(arguments)}` failed: {err.decode().strip()}")
    return out.decode()


class Api:
    """Raw access: paths and JSON as the API server has them."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls) -> AsyncIterator["Api"]:
        """Start the proxy, and end it when the block is left; raises DemoError if no cluster answers."""
        with tempfile.TemporaryDirectory(prefix="tidegate-demo-") as directory:
            socket = Path(directory) / "api.sock"
            # A session of its own: Ctrl-C must not take it from under the cleaning up.
            process = await asyncio.create_subprocess_exec(
                str(CLUSTER), "kubectl", "proxy", f"--unix-socket={socket}",
                stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
            try:
                await _until_listening(process, socket)
                transport = httpx.AsyncHTTPTransport(uds=str(socket))
                async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=30.0) as client:
                    yield cls(client)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
                await process.wait()

    async def get(self, path: str) -> Object | None:
        """One object or list; None if there is none. Asks again while the API server is not ready to answer."""
        for _ in range(UNREADY_TRIES):
            answer = await self._client.get(path)
            # A resource whose definition is seconds old is answered so.
            if answer.status_code not in (429, 503):
                break
            await asyncio.sleep(PAUSE_SECONDS)
        return None if answer.status_code == 404 else _checked(answer)

    async def apply(self, path: str, body: Mapping[str, Any]) -> Object:
        """Server-side apply."""
        answer = await self._client.patch(
            path,
            params={"fieldManager": "tidegate-demo", "force": "true"},
            headers={"Content-Type": "application/apply-patch+yaml"},
            content=json.dumps(body),
        )
        return _checked(answer)

    async def delete(self, path: str) -> None:
        """Delete; nothing there is well too."""
        answer = await self._client.delete(path, params={"propagationPolicy": "Background"})
        if answer.status_code not in (404, 409):
            _checked(answer)

    async def watch(self, path: str) -> AsyncIterator[tuple[str, Any]]:
        """("LIST", objects) first and after every interruption, then (ADDED | MODIFIED | DELETED, object)."""
        while True:
            listed = await self.get(path) or {"items": [], "metadata": {"resourceVersion": ""}}
            yield "LIST", listed["items"]
            parameters = {"watch": "1", "resourceVersion": listed["metadata"]["resourceVersion"]}
            async for line in self._lines(path, parameters):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    break
                yield event["type"], event["object"]
            await asyncio.sleep(PAUSE_SECONDS)

    async def log(self, namespace: str, pod: str) -> AsyncIterator[str]:
        """The lines of a pod's log as they come, until its container has ended."""
        async for line in self._lines(f"/api/v1/namespaces/{namespace}/pods/{pod}/log", {"follow": "true"}):
            yield line

    async def _lines(self, path: str, parameters: Mapping[str, str]) -> AsyncIterator[str]:
        limits = httpx.Timeout(30.0, read=None)
        with contextlib.suppress(httpx.TransportError):
            async with self._client.stream("GET", path, params=parameters, timeout=limits) as answer:
                if answer.status_code == 200:
                    async for line in answer.aiter_lines():
                        if line:
                            yield line


def image_of(pod: Mapping[str, Any]) -> str:
    """The tag of the serving container's image."""
    containers: Sequence[Mapping[str, Any]] = pod["spec"]["containers"]
    return str(containers[0]["image"]).rpartition(":")[2]


async def _until_listening(process: asyncio.subprocess.Process, socket: Path) -> None:
    deadline = asyncio.get_running_loop().time() + START_SECONDS
    while not os.access(socket, os.W_OK):
        if process.returncode is not None:
            assert process.stderr is not None  # noqa: S101 - it is piped
            raise DemoError((await process.stderr.read()).decode().strip() or "`kubectl proxy` ended at once")
        if asyncio.get_running_loop().time() > deadline:
            raise DemoError(f"`dev/cluster kubectl proxy` does not listen after {START_SECONDS:.0f} s")
        await asyncio.sleep(0.05)


def _checked(answer: httpx.Response) -> Object:
    try:
        body = answer.json()
    except ValueError:
        body = {"message": answer.text[:500]}
    if answer.is_error or not isinstance(body, dict):
        path = answer.request.url.path
        raise DemoError(f"{answer.request.method} {path}: {answer.status_code} {dict(body).get('message', '')}")
    return body

"""The server as a subprocess on free ports, for the tests: calls, streams, signals, and what it wrote down."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from apps.check import Client, Exchange, Target

ROOT = Path(__file__).parent.parent
PATHS = f"{ROOT}:{ROOT.parent / 'operator'}"
"""Where a program of `apps` finds its modules, and the drain contract."""
LIMIT_SECONDS = 30.0  # shorter than the waits asked for: an answer that comes by time-out alone is a failure
KEY = "drain-key"


@dataclass(frozen=True, slots=True)
class Answered:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> dict[str, object]:
        result = json.loads(self.body)
        assert isinstance(result, dict)
        return result


@dataclass(slots=True)
class Server:
    """One running server."""

    process: asyncio.subprocess.Process
    directory: Path
    port: int = 0
    admin: int = 0

    @property
    def events(self) -> list[dict[str, object]]:
        return read_events(self.directory / "pod-0.jsonl")

    def named(self, event: str) -> list[dict[str, object]]:
        return [entry for entry in self.events if entry["event"] == event]

    async def logged(self, event: str, count: int = 1) -> list[dict[str, object]]:
        """Wait until the event was written so often."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while len(found := self.named(event)) < count:  # noqa: ASYNC110  (another process writes it)
                await asyncio.sleep(0.01)
        return found

    @property
    def keys(self) -> Path:
        """Where its drain keys are read from."""
        return self.directory / "keys"

    async def begun(self, count: int = 1) -> None:
        """Wait until so many streams have begun and are counted."""
        await self.logged("stream-start", count)
        async with asyncio.timeout(LIMIT_SECONDS):
            while (await self.state())["streams"] != count:  # noqa: ASYNC110  (another process counts)
                await asyncio.sleep(0.01)

    async def call(self, method: str, path: str, body: object = None, key: str | None = KEY) -> Answered:
        """One call of the admin port on a connection of its own."""
        payload = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        return await call(self.admin, method, path, payload, {"Tidegate-Key": key} if key else {})

    async def drain(self, drain_id: str = "d", **numbers: object) -> dict[str, object]:
        answer = await self.call("POST", "/drain", {"id": drain_id, **numbers})
        assert answer.status == 202
        return answer.json()

    async def state(self, wait: str = "0s", since: object = -1) -> dict[str, object]:
        answer = await self.call("GET", f"/drain?wait={wait}&since={since}")
        assert answer.status == 200
        return answer.json()

    async def sealed(self) -> dict[str, object]:
        """Wait, by the contract's own waiting GET, until it is sealed."""
        async with asyncio.timeout(LIMIT_SECONDS):
            state = await self.state()
            while state["state"] != "sealed":
                state = await self.state("60s", state["sequence"])
        return state

    def stream(
        self, tokens: int, rate: float, name: str = "s", *, keep_alive: bool = False
    ) -> "asyncio.Task[Exchange]":
        """A checked stream in a task; it raises what the client saw."""
        return asyncio.create_task(self.ask(Client(self.target, keep_alive=keep_alive), name, tokens, rate))

    async def ask(self, client: Client, name: str, tokens: int, rate: float, *, stream: bool = True) -> Exchange:
        exchange = Exchange(name, tokens, rate)
        await client.ask(exchange, stream=stream)
        return exchange

    @property
    def target(self) -> Target:
        return Target("127.0.0.1", self.port, LIMIT_SECONDS)

    def signal(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    async def exited(self) -> int:
        async with asyncio.timeout(LIMIT_SECONDS):
            return await self.process.wait()


def read_events(path: Path) -> list[dict[str, object]]:
    """The whole lines of a log of JSON objects; one that is being written is none yet."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


async def call(
    port: int, method: str, path: str, payload: bytes = b"", headers: Mapping[str, str] | None = None
) -> Answered:
    """One HTTP request, read until the server closes."""
    async with asyncio.timeout(LIMIT_SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        fields = {"Host": "x", "Connection": "close", "Content-Length": str(len(payload)), **(headers or {})}
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + payload)
        try:
            head, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
        finally:
            writer.close()
    status, *rest = head.decode().split("\r\n")
    pairs = (line.partition(": ") for line in rest)
    return Answered(int(status.split(" ")[1]), {name.lower(): value for name, _, value in pairs}, body)


@contextmanager
def held_port() -> Iterator[int]:
    """A port on which nobody listens until a server is told to: given to no other socket meanwhile."""
    with socket.socket() as holder:
        # Beside one that only holds it, a server may bind it, as often as it likes.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield int(holder.getsockname()[1])


@asynccontextmanager
async def server(
    directory: Path, *, listen: bool = True, key: str | None = KEY, module: str = "apps.server", **env: str
) -> AsyncIterator[Server]:
    """Start a server with quick numbers; `listen=False` does not wait for its ports. It is killed at the end."""
    keys = directory / "keys"
    keys.mkdir(exist_ok=True)
    if key:
        (keys / "current").write_text(key + "\n")
    environment = {
        "PATH": os.environ["PATH"], "PYTHONPATH": PATHS, "HOST": "127.0.0.1", "PORT": "0", "ADMIN_PORT": "0",
        "HOSTNAME": "pod-0", "LOG_DIR": str(directory), "TIDEGATE_KEY_DIR": str(keys), "TIDEGATE_GRACE_SECONDS": "20",
        "TIDEGATE_PROPAGATION_SECONDS": "0.3", "TIDEGATE_QUIET_SECONDS": "0.1", "TIDEGATE_FLUSH_SECONDS": "0.5", **env,
    }  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, env=environment, stdout=asyncio.subprocess.DEVNULL
    )
    running = Server(process, directory)
    try:
        if listen:
            ports = (await running.logged("listening"))[-1]
            assert isinstance(ports["port"], int)
            assert isinstance(ports["adminPort"], int)
            running.port, running.admin = ports["port"], ports["adminPort"]
            if "slow-start" not in env.get("MISBEHAVE", "") and "START_SECONDS" not in env:
                await running.logged("serving")
        yield running
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()

"""The gateway as a process of its own in front of the service, driven like the service alone."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from apps.running import KEY, LIMIT_SECONDS, Answered, Server, call, read_events, server

OPERATOR = Path(__file__).parents[2] / "operator"
FAST = {
    "TIDEGATE_GRACE_SECONDS": "20", "TIDEGATE_PROPAGATION_SECONDS": "0.3", "TIDEGATE_QUIET_SECONDS": "0.1",
    "TIDEGATE_FLUSH_SECONDS": "0.5",
}  # fmt: skip


@dataclass(slots=True)
class Gateway(Server):
    """A running gateway; `engine` is what it stands in front of, `process` the gateway's own."""

    engine: Server | None = None
    own: Path = field(default_factory=Path)

    @property
    def keys(self) -> Path:
        return self.directory / "gateway-keys"

    @property
    def events(self) -> list[dict[str, object]]:
        behind = [] if self.engine is None else self.engine.events
        return [*behind, *read_events(self.own)]

    async def until(self, **wanted: object) -> dict[str, object]:
        """Wait until the state has these values."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while True:
                state = await self.state()
                if wanted.items() <= state.items():
                    return state
                await asyncio.sleep(0.01)

    async def metrics(self) -> dict[str, float]:
        page = (await self.call("GET", "/metrics", key=None)).body.decode()
        lines = (line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
        return {name.removeprefix("tidegate_gateway_"): float(value) for name, value in lines}

    async def post(self, body: Mapping[str, object], headers: Mapping[str, str] | None = None) -> Answered:
        """One completion, read to the end of its connection."""
        return await call(self.port, "POST", "/v1/completions", json.dumps(body).encode(), headers)


@asynccontextmanager
async def gateway(
    directory: Path, upstream: int, *, key: str | None = KEY, listen: bool = True, ready: bool = True, **env: str
) -> AsyncIterator[Gateway]:
    """Start a gateway with quick numbers in front of a port of this machine. It is killed at the end."""
    keys, log = directory / "gateway-keys", directory / "gateway.jsonl"
    keys.mkdir(exist_ok=True)
    if key:
        (keys / "current").write_text(key + "\n")
    environment = {
        "PATH": os.environ["PATH"], "PYTHONPATH": str(OPERATOR), "TIDEGATE_LISTEN": "127.0.0.1:0",
        "TIDEGATE_ADMIN": "127.0.0.1:0", "TIDEGATE_UPSTREAM": f"127.0.0.1:{upstream}", "TIDEGATE_KEY_DIR": str(keys),
        **FAST, **env,
    }  # fmt: skip
    with log.open("ab") as out:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tidegate", "gateway", env=environment, stdout=out
        )
    running = Gateway(process, directory, own=log)
    try:
        if listen:
            ports = (await running.logged("listening"))[-1]
            assert isinstance(ports["port"], int)
            assert isinstance(ports["adminPort"], int)
            running.port, running.admin = ports["port"], ports["adminPort"]
            if ready:
                await running.logged("serving")
        yield running
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def gateway_and_engine(
    directory: Path, *, listen: bool = True, key: str | None = KEY, **env: str
) -> AsyncIterator[Gateway]:
    """The service, told to drain by nobody, and a gateway in front of it that is told everything in its place."""
    behind, ours = directory / "engine", {name: value for name, value in env.items() if name.startswith("TIDEGATE_")}
    behind.mkdir(exist_ok=True)
    rest = {name: value for name, value in env.items() if name not in ours}
    async with (
        server(behind, key=None, **rest) as engine,
        gateway(directory, engine.port, key=key, ready="START_SECONDS" not in env, **ours) as front,
    ):
        front.engine = engine
        yield front

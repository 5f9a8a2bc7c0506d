"""An engine as most are: `python -m apps.plain` streams on one port, knows no drain, and SIGTERM cuts what it streams.

The environment is that of apps.server; ADMIN_PORT, keys and waits are not used. GET /health is 200 once it is started
and 503 before; after POST /sicken it is 500 for good, as of an engine whose worker has died while the rest streams on.
POST /upload says what came; GET /socket is a WebSocket on which somebody counts.
"""

import asyncio
import contextlib
import hashlib
import os
import sys
from collections.abc import Mapping

from apps import websocket
from apps.completions import Completions
from apps.server import Process
from apps.service import Service
from apps.wire import Connection, HttpServer, Request
from tidegate.contract.terms import State

COUNTS_EVERY_SECONDS = 0.2


class Plain:
    """The serving port."""

    def __init__(self, service: Service, version: str) -> None:
        self._service = service
        self._completions = Completions(service, version or "numbers")
        self._sick = False

    async def handle(self, connection: Connection, request: Request) -> bool:
        """Answer one request; whether the connection stays open."""
        if (request.method, request.path) == ("POST", "/sicken"):
            self._sick = True
            self._service.log.write("sick")
            await connection.answer(200, {"status": "sick"})
        elif request.path == "/health":
            started = self._service.contract.state is not State.STARTING
            status = 500 if self._sick else 200 if started else 503
            await connection.answer(status, {"started": started, "sick": self._sick})
        elif (request.method, request.path) == ("POST", "/upload"):
            digest = hashlib.sha256(request.body).hexdigest()
            await connection.answer(200, {"bytes": len(request.body), "sha256": digest}, close=not request.keep_alive)
        elif request.path == "/socket":
            await self._count(connection, request.headers)
            return False
        else:
            return await self._completions.handle(connection, request)
        return request.keep_alive and not connection.writer.is_closing()

    async def _count(self, connection: Connection, headers: Mapping[str, str]) -> None:
        """A WebSocket on which 1, 2, 3 ... are said until the client closes it."""
        reader, writer = connection.reader, connection.writer
        fields = {
            **connection.headers,
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Accept": websocket.accept(headers.get("sec-websocket-key", "")),
        }
        lines = ["HTTP/1.1 101 Switching Protocols", *(f"{name}: {value}" for name, value in fields.items())]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        counting = asyncio.create_task(_say_numbers(writer))
        said = 0
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while (heard := await websocket.read(reader))[0] != websocket.CLOSE:
                said += 1
            writer.write(websocket.frame(*heard))
        counting.cancel()
        self._service.log.write("socket-end", heard=said)


async def _say_numbers(writer: asyncio.StreamWriter) -> None:
    number = 0
    while not writer.is_closing():
        number += 1
        writer.write(websocket.frame(websocket.TEXT, str(number).encode()))
        await asyncio.sleep(COUNTS_EVERY_SECONDS)


class PlainProcess(Process):
    """The process of apps.server without its admin port."""

    async def _listen(self) -> None:
        environment = self._environment
        headers = {"X-Pod": self._pod, "X-Version": self._version}
        serving = HttpServer(Plain(self._service, self._version).handle, headers)
        port = await serving.listen(environment.get("HOST", "0.0.0.0"), int(environment.get("PORT", "8000")))
        self._log.write("listening", port=port, adminPort=port)


async def main() -> int:
    """Run the process that the environment describes."""
    try:
        return await PlainProcess(os.environ | {"MISBEHAVE": "exit-on-sigterm"}).run()
    except (ValueError, OSError) as error:
        sys.stderr.write(f"the environment does not fit: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))

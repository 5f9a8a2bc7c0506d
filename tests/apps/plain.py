"""An engine as most are: `python -m apps.plain` streams on one port, knows no drain, and SIGTERM cuts what it streams.

The environment is that of apps.server; ADMIN_PORT, keys and waits are not used. GET /health is 200 once it is started
and 503 before; after POST /sicken it is 500 for good, as of an engine whose worker has died while the rest streams on.
"""

import asyncio
import os
import sys

from apps.completions import Completions
from apps.server import Process
from apps.service import Service
from apps.terms import State
from apps.wire import Connection, HttpServer, Request


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
        else:
            return await self._completions.handle(connection, request)
        return request.keep_alive and not connection.writer.is_closing()


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

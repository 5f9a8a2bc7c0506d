"""Services that drain themselves without speaking the contract: `python -m apps.foreign`, all on one port.

KIND says which; the rest of the environment is that of apps.server (its ADMIN_PORT, keys and waits are not used):

    blocking-get   GET /internal/drain answers when the last request has ended
    blocking-post  POST /internal/drain does
    counting       POST /internal/drain answers at once, GET /internal/stats counts, itself included
    litellm        GET /health/drain answers when the last request has ended or after GRACEFUL_SHUTDOWN_TIMEOUT (30)
                   seconds, 200 either way, GET /health/backlog counts, itself included, and with the drain readiness
                   and *liveness* turn to 503: what LiteLLM does

With DRAIN_ENDPOINT_TOKEN drain and count need it in the header X-Drain-Token (401 otherwise). All but litellm refuse
requests from the drain on with 503, so whoever calls too early is seen to.
"""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from apps.completions import HURRY, Completions
from apps.server import Process
from apps.service import Service
from apps.wire import Connection, HttpServer, Request
from tidegate.contract.terms import Settings

HEADER = "x-drain-token"
PROBES = ("/health/readiness", "/health/liveliness", "/health/liveness")


@dataclass(frozen=True, slots=True)
class Kind:
    """What one kind of service has."""

    method: str
    path: str
    waits: bool = True
    count: str = ""
    litellm: bool = False


KINDS = {
    "blocking-get": Kind("GET", "/internal/drain"),
    "blocking-post": Kind("POST", "/internal/drain"),
    "counting": Kind("POST", "/internal/drain", waits=False, count="/internal/stats"),
    "litellm": Kind("GET", "/health/drain", count="/health/backlog", litellm=True),
}


class ForeignDrain:
    """The endpoints of one kind, before those that carry requests."""

    def __init__(self, kind: Kind, service: Service, environment: Mapping[str, str]) -> None:
        self._kind, self._service = kind, service
        self._token = environment.get("DRAIN_ENDPOINT_TOKEN", "")
        patience = environment.get("GRACEFUL_SHUTDOWN_TIMEOUT", "30")
        self._patience = float(patience) if kind.litellm else None
        self._completions = Completions(service, environment.get("VERSION") or "numbers")
        self.draining = False

    async def handle(self, connection: Connection, request: Request) -> bool:
        """Answer one request; whether the connection stays open."""
        kind, service = self._kind, self._service
        if request.path in (kind.path, kind.count) and self._token and request.headers.get(HEADER) != self._token:
            service.log.write("unauthorized", path=request.path)
            await connection.answer(401, {"detail": "Invalid or missing X-Drain-Token"})
        elif (request.method, request.path) == (kind.method, kind.path):
            await self._drain(connection)
        elif request.path == kind.count:
            active = service.contract.in_flight + 1
            body = {"in_flight_requests": active} if kind.litellm else {"requests": {"active": active}}
            await connection.answer(200, body)
        elif kind.litellm and request.path in PROBES:
            service.log.write("probed", path=request.path, draining=self.draining)
            words = {"status": "shutting_down"} if self.draining else {"status": "healthy"}
            await connection.answer(503 if self.draining else 200, words)
        elif self.draining and not kind.litellm and request.path != HURRY:
            service.log.write("refused", path=request.path)
            await connection.answer(503, {"error": "draining"}, close=True, headers={"Retry-After": "1"})
            return False
        else:
            return await self._completions.handle(connection, request)
        return request.keep_alive and not connection.writer.is_closing()

    async def _drain(self, connection: Connection) -> None:
        service = self._service
        held = [work.id for work in service.contract.works() if work.streaming]
        if not self.draining:
            service.log.write("withdrawn", withdrawnAt=round(time.time(), 4), streams=held)
        self.draining = True
        service.log.write("drain-call", streams=held)
        if self._kind.waits and not await self._until(connection, lambda: service.contract.in_flight == 0):
            service.log.write("drain-caller-gone")
            return
        left = service.contract.in_flight
        service.log.write("drain-answer", inFlight=left)
        if self._kind.waits:
            await connection.answer(200, {"status": "drained", "drained_requests": len(held) - left})
        else:
            await connection.answer(202, {"draining": True})

    async def _until(self, connection: Connection, condition: Callable[[], bool]) -> bool:
        """Wait for the condition, no longer than this kind does; whether the caller stayed."""
        gone = asyncio.ensure_future(connection.reader.gone.wait())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                while not gone.done():
                    changed = self._service.changed()
                    if condition():
                        break
                    wake = asyncio.ensure_future(changed.wait())
                    try:
                        await asyncio.wait((wake, gone), return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        wake.cancel()
        stayed = not gone.done()
        gone.cancel()
        return stayed


class ForeignProcess(Process):
    """The process of apps.server with other endpoints, on one port; at SIGTERM it waits for its requests alone."""

    def _settings(self) -> Settings:
        return replace(super()._settings(), propagation=0.0, quiet=0.0)

    async def _listen(self) -> None:
        kind = KINDS.get(self._environment.get("KIND", ""))
        if kind is None:
            raise ValueError(f"KIND must be one of {', '.join(KINDS)}")
        headers = {"X-Pod": self._pod, "X-Version": self._version}
        serving = HttpServer(ForeignDrain(kind, self._service, self._environment).handle, headers)
        self._service.on_seal = serving.close_idle
        port = await serving.listen(
            self._environment.get("HOST", "0.0.0.0"), int(self._environment.get("PORT", "8000"))
        )
        self._log.write("listening", port=port, adminPort=port)


async def main() -> int:
    """Run the process that the environment describes."""
    try:
        return await ForeignProcess(os.environ).run()
    except (ValueError, OSError) as error:
        sys.stderr.write(f"the environment does not fit: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))

"""The admin port: the drain contract for the operator and the kubelet, and the test's own switch for misbehaviour."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable

from apps.keys import HEADER, Keys
from apps.misbehave import FLAP_PROBES, Misbehaviour
from apps.service import Service
from apps.wire import Connection, Request
from tidegate.contract.calls import parse_wait
from tidegate.contract.terms import DrainConflictError, DrainRequest, InvalidDrainError, State

HANG_SECONDS = 3600.0
ENDLESS_CHUNK = b"0123456789abcdef" * 4096


class Admin:
    """Answers the admin port's requests; nothing here is work or an arrival."""

    def __init__(self, service: Service, keys: Keys, apply: Callable[[Misbehaviour], None]) -> None:
        self._service = service
        self._keys = keys
        self._apply = apply
        self._probed = 0
        self._routes: dict[tuple[str, str], Callable[[Connection, Request], Awaitable[None]]] = {
            ("POST", "/drain"): self._post,
            ("DELETE", "/drain"): self._delete,
            ("GET", "/drain"): self._get,
            ("GET", "/drain/prestop"): self._prestop,
            ("GET", "/readyz"): self._readyz,
            ("GET", "/livez"): self._livez,
            ("POST", "/misbehave"): self._misbehave,
        }

    async def handle(self, connection: Connection, request: Request) -> bool:
        """Answer one request; whether the connection stays open."""
        if (request.path == "/drain" or request.path.startswith("/drain/")) and not self._allowed(request):
            await connection.answer(401, {"error": "the header Tidegate-Key is missing or wrong"})
            return request.keep_alive
        methods = [method for method, path in self._routes if path == request.path]
        if not methods:
            await connection.answer(404, {"error": f"no such path: {request.path}"})
        elif request.method not in methods:
            allow = {"Allow": ", ".join(methods)}
            await connection.answer(405, {"error": f"{request.method} is not one of {allow['Allow']}"}, headers=allow)
        elif not request.path.startswith("/drain") or not await self._misbehaves(connection):
            await self._routes[request.method, request.path](connection, request)
        return request.keep_alive and not connection.writer.is_closing()

    def _allowed(self, request: Request) -> bool:
        given = request.headers.get(HEADER)
        return (
            self._keys.prestop_allowed(given) if request.path == "/drain/prestop" else self._keys.drain_allowed(given)
        )

    async def _post(self, connection: Connection, request: Request) -> None:
        try:
            drain = DrainRequest.from_json(request.body)
        except InvalidDrainError as error:
            await connection.answer(400, {"error": str(error)})
        else:
            self._service.post(drain)
            await connection.answer(202, self._service.answer())

    async def _delete(self, connection: Connection, request: Request) -> None:
        try:
            self._service.undrain(request.query.get("id"))
        except DrainConflictError as error:
            await connection.answer(409, {"error": str(error), **self._service.answer()})
        else:
            await connection.answer(200, self._service.answer())

    async def _get(self, connection: Connection, request: Request) -> None:
        try:
            wait = parse_wait(request.query.get("wait", "0s"))
            since = int(request.query["since"]) if "since" in request.query else -1
        except ValueError as error:
            await connection.answer(400, {"error": f"wait or since: {error}"})
            return
        contract = self._service.contract
        await self._until(connection, lambda: contract.sequence > since or contract.state is State.SEALED, wait)
        if not connection.reader.gone.is_set():
            await connection.answer(200, self._service.answer())

    async def _prestop(self, connection: Connection, request: Request) -> None:
        self._service.prestop()
        over = self._service.contract.prestop_over
        await self._until(connection, lambda: over(time.monotonic()), None)
        if not connection.reader.gone.is_set():
            await connection.answer(200, self._service.answer())

    async def _until(self, connection: Connection, condition: Callable[[], bool], seconds: float | None) -> None:
        """Wait for the condition, at most `seconds`, no longer than the caller stays."""
        gone = asyncio.ensure_future(connection.reader.gone.wait())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    changed = self._service.changed()
                    if condition() or gone.done():
                        break
                    wake = asyncio.ensure_future(changed.wait())
                    try:
                        await asyncio.wait((wake, gone), return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        wake.cancel()
        gone.cancel()

    async def _readyz(self, connection: Connection, request: Request) -> None:
        wrong = self._service.misbehaviour
        flapped = "flap" in wrong and self._probed % FLAP_PROBES > 0
        self._probed += 1
        ready = self._service.contract.state is State.SERVING and "never-ready" not in wrong and not flapped
        await connection.answer(200 if ready else 503, {"state": self._service.contract.state.value})

    async def _livez(self, connection: Connection, request: Request) -> None:
        await connection.answer(200, {"state": self._service.contract.state.value})

    async def _misbehave(self, connection: Connection, request: Request) -> None:
        try:
            wrong = Misbehaviour.parse(request.body.decode())
        except ValueError as error:
            await connection.answer(400, {"error": str(error)})
        else:
            await connection.answer(200, {"misbehave": wrong.ways})
            self._apply(wrong)

    async def _misbehaves(self, connection: Connection) -> bool:
        """Answer wrongly where told so; whether that was done."""
        wrong = self._service.misbehaviour
        if "hang" in wrong:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(connection.reader.gone.wait(), HANG_SECONDS)
        elif "status-500" in wrong:
            await connection.answer(500, {"error": "told to misbehave"})
        elif "status-404" in wrong:
            await connection.answer(404, {"error": "told to misbehave"})
        elif "rubbish" in wrong:
            await connection.answer(200, b"{ this is not JSON")
        elif "redirect" in wrong:
            await connection.answer(302, b"", headers={"Location": "http://elsewhere.invalid/drain"})
        elif "endless" in wrong:
            await connection.begin(200, "application/json", close=True)
            while not connection.reader.gone.is_set():
                await connection.chunk(ENDLESS_CHUNK)
                await asyncio.sleep(0.01)
        else:
            return False
        return True

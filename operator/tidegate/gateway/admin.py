"""The admin port: the drain contract for the operator and the kubelet, readiness, liveness and metrics."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl

from tidegate.api.names import KEY_HEADER
from tidegate.contract.calls import parse_wait
from tidegate.contract.terms import DrainConflictError, DrainRequest, InvalidDrainError, State
from tidegate.gateway import failures
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.heads import END, MAX_HEAD_BYTES, HeadError, RequestHead, parse_request
from tidegate.gateway.metrics import CONTENT_TYPE

MAX_BODY_BYTES = 64 * 1024
OTHER_SECONDS = 5.0
"""How long the serving container's preStop hook may come after another one's: the kubelet calls all hooks at once."""
CALL_SECONDS = 10.0
"""How long a caller may take to send a request, from the start of its connection or the end of the last request."""
JSON = "application/json"


class _CallerGone(Exception):
    """The caller has closed its connection."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request of the admin port."""

    head: RequestHead
    query: Mapping[str, str]
    body: bytes
    reader: asyncio.StreamReader


@dataclass(frozen=True, slots=True)
class Reply:
    """One response of the admin port."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def json(cls, status: int, document: Mapping[str, object]) -> Reply:
        """A reply with a JSON document."""
        return cls(status, json.dumps(document).encode() + b"\n")

    @classmethod
    def error(cls, status: int, message: str, **more: object) -> Reply:
        """A reply with an error message, and with further fields."""
        return cls.json(status, {"error": message, **more})


class Admin:
    """Answers calls. None of them counts as a request or an arrival."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._drain = gateway.drain
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self._routes: dict[tuple[bytes, str], Callable[[Call], Awaitable[Reply]]] = {
            (b"POST", "/drain"): self._post,
            (b"DELETE", "/drain"): self._delete,
            (b"GET", "/drain"): self._get,
            (b"GET", "/drain/prestop"): self._prestop,
            (b"GET", "/readyz"): self._readyz,
            (b"GET", "/livez"): self._livez,
            (b"HEAD", "/readyz"): self._readyz,
            (b"HEAD", "/livez"): self._livez,
            (b"GET", "/metrics"): self._metrics,
        }

    async def listen(self) -> int:
        """Open the port; returns its number. Raises OSError."""
        admin = self._gateway.options.admin
        self._server = await asyncio.start_server(self._serve, admin.host or None, admin.port, limit=MAX_HEAD_BYTES)
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    async def end(self) -> None:
        """Stop listening, and let go of every caller."""
        self.close()
        # A task that is cancelled before its first step fails in asyncio's own callback: let those begin that are new.
        await asyncio.sleep(0)
        while self._serving:
            for task in self._serving:
                task.cancel()
            await asyncio.wait(self._serving)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)
        await self._answer_calls(reader, writer)

    async def _answer_calls(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(
            ConnectionError, TimeoutError, asyncio.IncompleteReadError, _CallerGone, asyncio.CancelledError
        ):
            while True:
                bodiless = False
                try:
                    async with asyncio.timeout(CALL_SECONDS):
                        call = await self._read(reader)
                    reply, close = await self._answer(call), not call.head.keep_alive
                    bodiless = call.head.method == b"HEAD"
                except HeadError as error:
                    reply, close = Reply.error(error.status, str(error)), True
                answer = failures.response(reply.status, reply.body, close=close, headers=reply.headers)
                if writer.is_closing():
                    # The caller reset the connection after it was last read from; uvloop raises on a write.
                    break
                async with asyncio.timeout(CALL_SECONDS):
                    writer.write(answer.removesuffix(reply.body) if bodiless else answer)
                    await writer.drain()
                if close:
                    break
        with contextlib.suppress(OSError, RuntimeError):
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> Call:
        try:
            raw = await reader.readuntil(END)
        except asyncio.LimitOverrunError:
            raise HeadError(431, "the head of the request is too long") from None
        head = parse_request(raw)
        if not 0 <= head.length <= MAX_BODY_BYTES:
            raise HeadError(413, f"the body must have a Content-Length of at most {MAX_BODY_BYTES}")
        query = dict(parse_qsl(head.target.partition(b"?")[2].decode("ascii"), keep_blank_values=True))
        return Call(head, query, await reader.readexactly(head.length), reader)

    async def _answer(self, call: Call) -> Reply:
        path = call.head.path
        if (path == "/drain" or path.startswith("/drain/")) and not self._allowed(call.head):
            return Reply.error(401, f"the header {KEY_HEADER} is missing or wrong")
        methods = [method.decode() for method, known in self._routes if known == path]
        if not methods:
            return Reply.error(404, f"no such path: {path}")
        handler = self._routes.get((call.head.method, path))
        if handler is None:
            allow = ", ".join(methods)
            error = Reply.error(405, f"{call.head.method.decode()} is not one of {allow}")
            return Reply(405, error.body, (("Allow", allow),))
        return await handler(call)

    def _allowed(self, head: RequestHead) -> bool:
        given, keys = head.get(KEY_HEADER.lower().encode()), self._gateway.keys
        return keys.prestop_allowed(given) if head.path == "/drain/prestop" else keys.drain_allowed(given)

    async def _post(self, call: Call) -> Reply:
        try:
            drain = DrainRequest.from_json(call.body)
        except InvalidDrainError as error:
            return Reply.error(400, str(error))
        self._drain.post(drain)
        return Reply.json(202, self._drain.snapshot())

    async def _delete(self, call: Call) -> Reply:
        try:
            self._drain.undrain(call.query.get("id"))
        except DrainConflictError as error:
            return Reply.error(409, str(error), **self._drain.snapshot())
        return Reply.json(200, self._drain.snapshot())

    async def _get(self, call: Call) -> Reply:
        try:
            wait = parse_wait(call.query.get("wait", "0s"))
            since = int(call.query["since"]) if "since" in call.query else -1
        except ValueError as error:
            return Reply.error(400, f"wait or since: {error}")
        contract = self._drain.contract
        await self._wait_until(call, lambda: contract.sequence > since or contract.state is State.SEALED, wait)
        return Reply.json(200, self._drain.snapshot())

    async def _prestop(self, call: Call) -> Reply:
        """The preStop hook of the serving container; with `container=other` that of any other container.

        The latter does not withdraw the pod. When the pod is deleted, the kubelet calls the hooks of all containers,
        and this one returns together with the serving container's. If the serving container's hook is not called, the
        kubelet restarts the other container alone: the engine lives on, and nothing would undo a withdrawal.
        """
        contract = self._drain.contract
        container = call.query.get("container")
        if container is None:
            self._drain.prestop()
        elif container == "other":
            await self._wait_until(call, lambda: contract.stopping, OTHER_SECONDS)
        else:
            return Reply.error(400, "container must be other, or absent for the serving container")
        await self._wait_until(call, lambda: not contract.stopping or self._drain.prestop_over(), None)
        if container is None:
            self._drain.prestop_returns()
        return Reply.json(200, self._drain.snapshot())

    async def _wait_until(self, call: Call, condition: Callable[[], bool], seconds: float | None) -> None:
        """Wait for the condition, at most `seconds`. Raises _CallerGone when the caller disconnects."""
        if condition() or seconds == 0:
            return
        # A waiting caller sends nothing more: whatever arrives on its socket means that it has left.
        gone = asyncio.ensure_future(call.reader.read(1))
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    wake = asyncio.ensure_future(self._drain.changed().wait())
                    try:
                        await asyncio.wait((wake, gone), return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        wake.cancel()
                    if gone.done():
                        raise _CallerGone
        except TimeoutError:
            pass
        finally:
            gone.cancel()
            # It holds the reader until it has ended; the next call on this connection could not be read before.
            await asyncio.wait((gone,))

    async def _readyz(self, _call: Call) -> Reply:
        state = self._drain.contract.state
        return Reply.json(200 if state is State.SERVING else 503, {"state": state.value})

    async def _livez(self, _call: Call) -> Reply:
        return Reply.json(200, {"state": self._drain.contract.state.value})

    async def _metrics(self, _call: Call) -> Reply:
        page = self._gateway.metrics.render(self._drain.snapshot(), self._drain.contract.ever_cut)
        return Reply(200, page, (("Content-Type", CONTENT_TYPE),))

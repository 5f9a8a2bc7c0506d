"""The serving port: an OpenAI-compatible server whose answer is "1 2 3 ..." at the rate that the request asks for.

POST /hurry is a test's word that it has seen enough: what runs then sends the rest of its tokens at once.
"""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from apps.service import Running, Service
from apps.wire import Connection, Request
from tidegate.contract.terms import Admission, State
from tidegate.contract.token import Shutdown

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
HURRY = "/hurry"
REFUSAL = {
    "error": {
        "message": "this server is draining; retry",
        "type": "server_error",
        "param": None,
        "code": "server_draining",
    }
}
MAX_TOKENS = 1_000_000


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: how many tokens, at what rate a second (0: as fast as possible), after how long in the queue."""

    id: str
    chat: bool
    stream: bool
    usage: bool
    tokens: int
    rate: float
    first_after: float

    @classmethod
    def parse(cls, request: Request, body: object) -> "Ask":
        """Raises ValueError that names the field."""
        if not isinstance(body, dict):
            raise ValueError("the body must be a JSON object")  # noqa: TRY004
        test = body.get("tidegate_test") or {}
        options = body.get("stream_options") or {}
        tokens = body.get("max_completion_tokens", body.get("max_tokens", 16))
        if not isinstance(tokens, int) or not 0 <= tokens <= MAX_TOKENS:
            raise ValueError(f"max_tokens must be a whole number from 0 to {MAX_TOKENS}")
        rate, first_after = test.get("rate", 0), test.get("first_after", 0)
        if not all(isinstance(value, int | float) and value >= 0 for value in (rate, first_after)):
            raise ValueError("tidegate_test.rate and tidegate_test.first_after must be numbers of at least 0")
        return cls(
            id=request.headers.get("x-request-id") or f"cmpl-{secrets.token_hex(8)}",
            chat=request.path == CHAT,
            stream=bool(body.get("stream", False)),
            usage=bool(options.get("include_usage", False)),
            tokens=tokens,
            rate=rate,
            first_after=first_after,
        )


class ClientGone(Exception):
    """The client closed its connection before its answer was whole."""


class Completions:
    """Answers the serving port's requests."""

    def __init__(self, service: Service, model: str) -> None:
        self._service = service
        self._model = model

    async def handle(self, connection: Connection, request: Request) -> bool:
        """Answer one request; whether the connection stays open."""
        close = not request.keep_alive or self._service.contract.state in (State.DRAINING, State.SEALED)
        if request.path == "/v1/models" and request.method == "GET":
            models = [{"id": self._model, "object": "model", "created": 0, "owned_by": "tidegate"}]
            await connection.answer(200, {"object": "list", "data": models}, close=close)
            return not close
        if request.path == HURRY and request.method == "POST":
            self._service.hurry()
            await connection.answer(200, {"running": len(self._service.running)}, close=close)
            return not close
        if request.path not in (CHAT, TEXT) or request.method != "POST":
            status = 405 if request.path in (CHAT, TEXT) else 404
            await connection.answer(status, _error(f"{request.method} {request.path} is not served"), close=close)
            return not close
        try:
            ask = Ask.parse(request, request.json())
        except ValueError as error:
            await connection.answer(400, _error(str(error)), close=close)
            return not close
        return await self._complete(connection, request, ask)

    async def _complete(self, connection: Connection, request: Request, ask: Ask) -> bool:
        work_id = ask.id if ask.id not in self._service.running else f"{ask.id}-{secrets.token_hex(4)}"
        running = Running(abort=connection.abort, expected=ask.tokens)
        admission = self._service.arrive(work_id, running, streaming=ask.stream, queued=ask.first_after > 0)
        if admission is Admission.REFUSE:
            await connection.answer(503, REFUSAL, close=True, headers={"Retry-After": "1"})
            return False
        close = not request.keep_alive or admission is Admission.SERVE_AND_CLOSE
        by = "client-gone"
        answer = Answer(self._service, connection, ask, work_id, running, self._model)
        try:
            by = await (answer.stream(close) if ask.stream else answer.whole(close))
        except (ClientGone, ConnectionError):
            close = True
        finally:
            answer.close()
            # At exit everything still running was ended already, in the process's name.
            if work_id in self._service.running:
                self._service.finish(work_id, by)
        return not close


class Answer:
    """One answer on its way."""

    def __init__(
        self, service: Service, connection: Connection, ask: Ask, work_id: str, running: Running, model: str
    ) -> None:
        self._service = service
        self._connection = connection
        self._ask = ask
        self._id = work_id
        self._running = running
        self._common = {
            "id": work_id,
            "object": "chat.completion" if ask.chat else "text_completion",
            "created": int(time.time()),
            "model": model,
        }
        if ask.stream and ask.chat:
            self._common["object"] = "chat.completion.chunk"
        # Made once: three tasks a token would be most of the server's work.
        interrupts = (connection.reader.gone, running.end, service.hurried)
        self._interrupts = [asyncio.ensure_future(event.wait()) for event in interrupts]

    def close(self) -> None:
        """To be called when the answer is over, however it ended."""
        for interrupt in self._interrupts:
            interrupt.cancel()

    async def stream(self, close: bool) -> str:
        """Send server-sent events; returns how it ended, `done` or `token`. Raises ClientGone, ConnectionError."""
        connection, contract = self._connection, self._service.contract
        if not await self._sleep_until(time.monotonic() + self._ask.first_after):
            return await self._refuse_late()
        contract.dequeue(self._id)
        await connection.begin(200, "text/event-stream", close=close)
        if self._ask.chat:
            await self._event(self._choice({"role": "assistant", "content": ""}))
        async for number in self._numbers():
            await self._event(self._choice({"content": f"{number} "}) if self._ask.chat else self._choice(f"{number} "))
            self._running.tokens = number
            contract.progress(self._id, time.monotonic())
        by = "done" if contract.generated(self._id) else "token"
        if by == "token":
            await connection.chunk(b"data: " + json.dumps(self.token()).encode() + b"\n\n")
        else:
            await self._event(self._choice({} if self._ask.chat else "", finish="stop"))
            if self._ask.usage:
                await self._event({**self._common, "choices": [], "usage": self._usage()})
        await connection.chunk(b"data: [DONE]\n\n")
        await connection.end()
        return by

    async def whole(self, close: bool) -> str:
        """Send one JSON answer; returns how it ended."""
        contract = self._service.contract
        if not await self._sleep_until(time.monotonic() + self._ask.first_after):
            return await self._refuse_late()
        contract.dequeue(self._id)
        async for number in self._numbers():
            self._running.tokens = number
        if not contract.generated(self._id):
            return await self._refuse_late()
        text = "".join(f"{number} " for number in range(1, self._ask.tokens + 1))
        content = {"message": {"role": "assistant", "content": text}} if self._ask.chat else {"text": text}
        choice = {"index": 0, "finish_reason": "stop", **content}
        await self._connection.answer(200, {**self._common, "choices": [choice], "usage": self._usage()}, close=close)
        return "done"

    def token(self) -> dict[str, object]:
        """The shutdown token of this request; it cannot be resumed."""
        return Shutdown(self._service.contract.shutdown_reason, self._id, self._running.tokens, None).document()

    async def _refuse_late(self) -> str:
        """No byte of the answer is out: a retryable refusal that carries the token's fields."""
        await self._connection.answer(503, self.token(), close=True, headers={"Retry-After": "1"})
        return "token"

    async def _numbers(self) -> AsyncIterator[int]:
        """The numbers in their time, until all are out or the shutdown token is asked for."""
        begun = time.monotonic()
        for number in range(1, self._ask.tokens + 1):
            if self._ask.rate and not await self._sleep_until(begun + number / self._ask.rate):
                return
            if "stall-streams" in self._service.misbehaviour and number > 1 and not await self._sleep_until(None):
                return
            if self._running.end.is_set():
                return
            if self._connection.reader.gone.is_set():
                raise ClientGone
            yield number

    async def _sleep_until(self, moment: float | None) -> bool:
        """Sleep, for ever if `moment` is None; False if the shutdown token was asked for meanwhile. Raises ClientGone.

        One that is told to hurry does not sleep.
        """
        timeout = None if moment is None else max(moment - time.monotonic(), 0)
        await asyncio.wait(self._interrupts, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if self._connection.reader.gone.is_set():
            raise ClientGone
        return not self._running.end.is_set()

    async def _event(self, data: Mapping[str, object]) -> None:
        await self._connection.chunk(b"data: " + json.dumps(data).encode() + b"\n\n")

    def _choice(self, content: object, finish: str | None = None) -> dict[str, object]:
        name = "delta" if self._ask.chat else "text"
        return {**self._common, "choices": [{"index": 0, name: content, "finish_reason": finish}]}

    def _usage(self) -> dict[str, int]:
        return {"prompt_tokens": 1, "completion_tokens": self._ask.tokens, "total_tokens": self._ask.tokens + 1}


def _error(message: str) -> dict[str, object]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}}

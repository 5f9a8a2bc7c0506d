"""Real client libraries, as people use them: streams by openai (sync and async) and LangChain, each judged on its own.

Every stream asks for a number of tokens that the model never ends before. It is whole when so many came, the finish
reason is `length` and the engine's usage says the same. The lines are those of `apps.load`, so one harness reads both.
"""

import argparse
import asyncio
import json
import random
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai
from langchain_openai import ChatOpenAI

QUESTION = [{"role": "user", "content": "Say something."}]
KEY = "unused"
OVER_SECONDS = 0.1


@dataclass(slots=True)
class Answer:
    """What one stream brought, by the client's own objects."""

    pieces: int = 0
    finish_reason: str | None = None
    usage: int | None = None


@dataclass(slots=True)
class Book:
    """One line per stream, and how many run; written by several threads."""

    out: Path
    lock: threading.Lock = field(default_factory=threading.Lock)
    counts: Counter[str] = field(default_factory=Counter)

    def begin(self) -> None:
        with self.lock:
            self.counts["started"] += 1
            self.counts["running"] += 1

    def end(self, line: dict[str, Any]) -> None:
        with self.lock:
            self.counts["running"] -= 1
            self.counts[line["result"]] += 1
            self._write(line)

    def progress(self) -> None:
        with self.lock:
            self._write({"progress": {"running": self.counts["running"]}})

    def summary(self) -> None:
        names = ("started", "running", "complete", "cut", "refused", "abandoned")
        with self.lock:
            self._write({"summary": {name: self.counts[name] for name in names}})

    def _write(self, line: dict[str, Any]) -> None:
        with self.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def judged(answer: Answer, tokens: int) -> dict[str, Any]:
    """A stream that ended without any error of the client's: it may still lack something."""
    whole = answer.pieces == tokens and answer.finish_reason == "length" and answer.usage == tokens
    return {
        "result": "complete" if whole else "cut",
        "tokens": answer.pieces,
        "expected": tokens,
        "finishReason": answer.finish_reason,
        "usage": answer.usage,
    }


def failed(error: Exception, answer: Answer, tokens: int) -> dict[str, Any]:
    """What the client raised: its class, and what of the shutdown token can be read from it."""
    body = getattr(error, "body", None)
    status = getattr(error, "status_code", None)
    return {
        "result": "refused" if status is not None and answer.pieces == 0 else "cut",
        "tokens": answer.pieces,
        "expected": tokens,
        "error": type(error).__name__,
        "status": status,
        "apiError": isinstance(error, openai.APIError),
        "body": body if isinstance(body, dict) else None,
        "message": str(error)[:300],
    }


def take(answer: Answer, chunk: Any) -> None:
    """Count one chunk of the openai package."""
    if chunk.usage:
        answer.usage = chunk.usage.completion_tokens
    for choice in chunk.choices:
        answer.pieces += bool(choice.delta.content)
        answer.finish_reason = choice.finish_reason or answer.finish_reason


def wanted(tokens: int) -> dict[str, Any]:
    return {
        "model": "test",
        "messages": QUESTION,
        "max_tokens": tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


class Sync:
    """openai.OpenAI, a thread per stream."""

    def __init__(self, url: str) -> None:
        self.client = openai.OpenAI(base_url=url, api_key=KEY)

    def stream(self, tokens: int, answer: Answer) -> None:
        for chunk in self.client.chat.completions.create(**wanted(tokens)):
            take(answer, chunk)


class Async:
    """openai.AsyncOpenAI, on one event loop in a thread of its own."""

    def __init__(self, url: str) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.client = openai.AsyncOpenAI(base_url=url, api_key=KEY)

    def stream(self, tokens: int, answer: Answer) -> None:
        asyncio.run_coroutine_threadsafe(self._stream(tokens, answer), self.loop).result()

    async def _stream(self, tokens: int, answer: Answer) -> None:
        async for chunk in await self.client.chat.completions.create(**wanted(tokens)):
            take(answer, chunk)


class LangChain:
    """langchain_openai.ChatOpenAI, a thread per stream."""

    def __init__(self, url: str) -> None:
        self.url = url

    def stream(self, tokens: int, answer: Answer) -> None:
        model = ChatOpenAI(base_url=self.url, api_key=KEY, model="test", max_tokens=tokens, stream_usage=True)
        for chunk in model.stream(QUESTION[0]["content"]):
            answer.pieces += bool(chunk.content)
            answer.finish_reason = chunk.response_metadata.get("finish_reason") or answer.finish_reason
            if chunk.usage_metadata:
                answer.usage = chunk.usage_metadata["output_tokens"]


CLIENTS = {"openai": Sync, "openai-async": Async, "langchain": LangChain}


def run_one(client: Any, kind: str, tokens: int, book: Book) -> None:
    book.begin()
    answer = Answer()
    try:
        client.stream(tokens, answer)
        line = judged(answer, tokens)
    except Exception as error:  # every way in which a client can fail is a result
        line = failed(error, answer, tokens)
    book.end({"client": kind, **line})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True, help="http://HOST:PORT")
    parser.add_argument("--streams", type=int, default=2, help="streams at once, of each client")
    parser.add_argument("--tokens", default="100-400", metavar="LOW-HIGH")
    parser.add_argument("--total", type=int, default=2000, help="streams of each slot at most")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    low, high = (int(part) for part in options.tokens.split("-"))
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    book = Book(options.out)
    clients = {kind: make(f"{options.url}/v1") for kind, make in CLIENTS.items()}

    def slot(kind: str, number: int) -> None:
        dice = random.Random(f"{kind}{number}")
        for _ in range(options.total):
            if stop.is_set():
                return
            run_one(clients[kind], kind, dice.randint(low, high), book)
            time.sleep(OVER_SECONDS)

    with ThreadPoolExecutor(options.streams * len(clients)) as pool:
        running = [pool.submit(slot, kind, number) for kind in clients for number in range(options.streams)]
        while not all(future.done() for future in running):
            book.progress()
            time.sleep(1)
        for future in running:
            future.result()
    book.summary()


if __name__ == "__main__":
    main()

"""Bytes that are nearly HTTP, the same ones for the same seed."""

from __future__ import annotations

import random

from .book import HEADER

TOKENS = (
    b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"\x00", b" ", b"\t", b":", b";", b"0\r\n\r\n", b"ffffffffffffffff\r\n",
    b"-1\r\n",
    b"Content-Length: 5\r\n", b"Content-Length: 0\r\n", b"Content-Length: 99999999999999999999\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip, chunked\r\n", b"Connection: close\r\n",
    b"Connection: upgrade\r\n", b"Upgrade: websocket\r\n", b"Expect: 100-continue\r\n",
    b"Tidegate-Deadline-Seconds: 0.2\r\n",
    b"HTTP/2.0", b"PRI * HTTP/2.0\r\n\r\n", b"\x16\x03\x01", b"data: ", b"\n\n", b"data: [DONE]\n\n",
    b"\xff" * 9, b"x" * 9000,
)  # fmt: skip
PATHS = (
    b"/v1/completions",
    b"/v1/chat/completions",
    b"/v1/messages",
    b"/v1/responses",
    b"/health",
    b"/",
    b"*",
    b"/x?y=%00",
)
EVENTS = (
    b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"abort"}]}\n\n',
    b'event: message_start\ndata: {"type":"message_start"}\n\n',
    b'event: error\ndata: {"type":"error","error":{}}\n\n',
    b'data: {"type":"response.created","sequence_number":1}\r\n\r\n',
    b": ping\n\n", b"data: [DONE]\n\n", b"data: " + b"x" * 5000 + b"\n\n", b"data: {[\n\n", b"\r\r",
)  # fmt: skip
SERVER_FRAMES = (b"\x81\x01x", b"\x88\x02\x03\xe8", b"\x82\x7e\x01\x00" + bytes(256), b"\x01\x01x", b"\x8a\x00")


def chunk(payload: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def mutated(data: bytes, rng: random.Random) -> bytes:
    """The same with up to four small faults."""
    for _ in range(rng.randrange(5)):
        at = rng.randrange(len(data) + 1)
        what = rng.randrange(5)
        if what == 0:
            data = data[:at] + rng.choice(TOKENS) + data[at:]
        elif what == 1:
            data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
        elif what == 2:
            data = data[:at] + data[at + rng.randrange(1, 12) :]
        elif what == 3:
            data = data[:at] + data[max(at - rng.randrange(1, 20), 0) :]
        elif rng.random() < 0.3:
            data = data[:at]
    return data


def request(name: str, rng: random.Random) -> bytes:
    """A request with the id `name`, in good form."""
    body = rng.randbytes(rng.choice([1, 5, 300, 40_000])) if rng.random() < 0.6 else b""
    method = (
        rng.choice([b"POST", b"POST", b"PUT"]) if body else rng.choice([b"GET", b"POST", b"OPTIONS", b"HEAD", b"BREW"])
    )
    version = rng.choice([b"1.1"] * 8 + [b"1.0", b"1.3"])
    lines = [b"%b %b HTTP/%b" % (method, rng.choice(PATHS), version), b"Host: e", f"{HEADER}: {name}".encode()]
    if rng.random() < 0.1:
        lines.append(b"Expect: 100-continue")
    if rng.random() < 0.1:
        lines += [b"Connection: Upgrade", b"Upgrade: websocket"]
    if rng.random() < 0.1:
        lines.append(b"Connection: close")
    if body and version != b"1.0" and rng.random() < 0.5:
        lines.append(b"Transfer-Encoding: chunked")
        size = rng.choice([1, 7, 4096])
        parts = [chunk(body[at : at + size]) for at in range(0, min(len(body), 5000), size)]
        body = b"".join(parts) + b"0\r\n\r\n"
    elif body or method in (b"POST", b"PUT"):
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def response(rng: random.Random) -> tuple[bytes, bool]:
    """A response of an engine in good form, and whether its connection can be kept after it."""
    kind = rng.randrange(6)
    if kind == 0:
        body = rng.choice([b"{}", b'{"choices":[{"finish_reason":"abort"}]}', b"x" * 70_000])
        return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(
            body
        ) + body, True
    if kind == 1:
        return rng.choice([b"HTTP/1.1 204 No\r\n\r\n", b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"]), True
    if kind == 2:
        return b"HTTP/1.1 101 On\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + _some(
            SERVER_FRAMES, rng
        ), False
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    events = [rng.choice(EVENTS) for _ in range(rng.randrange(1, 30))]
    if kind == 3:
        return head + b"\r\n" + b"".join(events), False
    interim = rng.choice([b"", b"", b"HTTP/1.1 102 Wait\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n" * 20])
    framed = (
        b"".join(map(chunk, events)) if rng.random() < 0.7 else b"".join(chunk(b"%c" % x) for x in b"".join(events))
    )
    return interim + head + b"Transfer-Encoding: chunked\r\n\r\n" + framed + b"0\r\n\r\n", True


def pieces(data: bytes, rng: random.Random) -> list[bytes]:
    """The same in pieces as a network may cut it."""
    size = rng.choice([3, 50, 1000, len(data) + 1])
    # Not thousands of pieces: the lane shares the machine with the gateway.
    size = max(size, len(data) // 60 + 1)
    return [data[at : at + size] for at in range(0, len(data), size)]


def call(rng: random.Random, key: str) -> bytes:
    """A call of the admin port that changes nothing: without the key, or refused, or only a question."""
    if rng.random() < 0.4:
        path = rng.choice([b"/drain", b"/drain?id=x", b"/drain/prestop", b"/metrics", b"/livez", b"/readyz", b"/x"])
        method = rng.choice([b"GET", b"POST", b"DELETE", b"HEAD", b"PUT"])
        body = rng.choice([b"", b"{}", b'{"id":"noise","remainingSeconds":0}'])
        head = b"%b %b HTTP/1.1\r\nHost: a\r\nTidegate-Key: wrong\r\nContent-Length: %d\r\n\r\n" % (
            method,
            path,
            len(body),
        )
        return mutated(head + body, rng)
    line, body = rng.choice([
        (b"GET /drain?wait=0.3s&since=999999999", b""), (b"GET /drain?wait=x", b""), (b"GET /drain?since=%00", b""),
        (b"DELETE /drain?id=of-nobody", b""), (b"POST /drain", b"{"), (b"POST /drain", b'{"id":7}'),
        (b"POST /drain", b'{"id":"x","remainingSeconds":"soon"}'), (b"POST /drain", b"[" * 3000),
        (b"GET /metrics", b""), (b"GET /readyz", b""), (b"GET /drain/prestop?container=x", b""),
    ])  # fmt: skip
    head = b"%b HTTP/1.1\r\nHost: a\r\nTidegate-Key: %b\r\nContent-Length: %d\r\n\r\n" % (line, key.encode(), len(body))
    return head + body


def _some(parts: tuple[bytes, ...], rng: random.Random) -> bytes:
    return b"".join(rng.choice(parts) for _ in range(rng.randrange(8)))

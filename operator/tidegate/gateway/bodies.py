"""Response bodies on their way: the bytes to send on, and what must be known of them."""

from __future__ import annotations

from typing import Protocol

from tidegate.gateway.framing import LAST_CHUNK, Chunks, Counted, FramingError, chunk
from tidegate.gateway.heads import CHUNKED, UNTIL_CLOSE, ResponseHead
from tidegate.gateway.sse import CHAT_STREAM, END_OF_EVENT, Reader, StreamForm, last_end

MAX_HELD_BYTES = 1024 * 1024


class Body(Protocol):
    """One response body. `done`: all of it has come."""

    done: bool
    produced: bool
    """Whether the last piece held output of the engine, and not only a comment."""

    def feed(self, data: bytes) -> bytes:
        """Take a piece from the engine; returns what goes to the client now. Raises FramingError."""

    def eof(self) -> bool:
        """The engine has closed; whether that is the body's proper end."""


class Opaque:
    """Any body that nothing can be written into: it is passed on as it comes."""

    intercepted = False

    def __init__(self, length: int) -> None:
        self.produced = True
        self._framing = None if length == UNTIL_CLOSE else Chunks() if length == CHUNKED else Counted(length)
        self.done = self._framing is not None and self._framing.done

    def feed(self, data: bytes) -> bytes:
        if self._framing is None:
            return data
        self._framing.feed(data)
        self.done = self._framing.done
        if self._framing.excess:
            raise FramingError("the engine sent more than its response")
        return data

    def eof(self) -> bool:
        return self._framing is None


class Events:
    """A stream of server-sent events.

    What the client has always ends with a whole event in a whole chunk, so that something can be written into the
    stream at any moment. Where the engine's pieces end so by themselves, which is nearly always, they go on as they
    are; else the unfinished event is held back until its end has come, and the chunks around it are framed anew.
    """

    def __init__(self, length: int, form: StreamForm) -> None:
        self.done = False
        self.produced = False
        self.reader = Reader(form)
        self.intercepted = False
        """Whether it was stopped before an end by which the engine hides that the answer is not whole."""
        self._intercept = False
        self._chunks = Chunks() if length == CHUNKED else None
        self._held = b""
        self._torn = False

    def feed(self, data: bytes) -> bytes:
        chunks = self._chunks
        if chunks is None:
            return self._slowly(data)
        whole = not self._held and chunks.between
        spans = chunks.feed(data)
        if chunks.excess:
            raise FramingError("the engine sent more than its response")
        self.done = chunks.done
        if whole and (chunks.done or chunks.between) and spans:
            if len(spans) == 1:
                start, end = spans[0]
                payload = data[start:end]
            else:
                payload = b"".join([data[start:end] for start, end in spans])
            if payload.endswith(END_OF_EVENT) and not (self._intercept and self._suspicious(payload)):
                self.produced = self.reader.read(payload)
                return data
            return self._slowly(payload)
        return self._slowly(b"".join([data[start:end] for start, end in spans]))

    def eof(self) -> bool:
        self.done = self._chunks is None
        self.intercepted = self.intercepted or (self.done and self._intercept and self.reader.unfinished)
        return self.done

    def drain_changed(self, draining: bool) -> None:
        """While draining, look for an end by which the engine hides that the answer is not whole."""
        self._intercept = draining

    def insert(self, payload: bytes) -> bytes:
        """What writes `payload`, whole events, into the stream at this moment."""
        if self._torn:
            self._torn, payload = False, b"\n\n" + payload
        return payload if self._chunks is None else chunk(payload)

    def end(self, payload: bytes) -> bytes:
        """What ends the stream now, in good form, with `payload` as its last events."""
        return self.insert(payload) + (b"" if self._chunks is None else LAST_CHUNK)

    def rest(self) -> bytes:
        """What was held back when a body that ends with its connection has ended."""
        held, self._held = self._held, b""
        return held

    def _suspicious(self, payload: bytes) -> bool:
        return self.done or self.reader.before_hidden_end(payload) is not None

    def _slowly(self, payload: bytes) -> bytes:
        """Send the events that are whole, hold the rest, frame anew."""
        held = self._held + payload
        end = len(held) if self.done else last_end(held)
        if not end and len(held) > MAX_HELD_BYTES:
            # No event of an engine is as long: rather a torn event than a stream that stands still.
            end, self._torn = len(held), True
        events, self._held = held[:end], held[end:]
        if self._intercept:
            kept = self.reader.before_hidden_end(events)
            if kept is not None:
                self.intercepted = True
                events, self._held = events[:kept], b""
        self.produced = self.reader.read(events) if events else False
        if self._intercept and self.done and self.reader.unfinished:
            self.intercepted = True
        if self._chunks is None:
            return events
        out = chunk(events) if events else b""
        return out + LAST_CHUNK if self.done and not self.intercepted else out


def body_of(head: ResponseHead, form: StreamForm = CHAT_STREAM) -> Opaque | Events:
    """The reader for the body that follows `head`; `form`: that of the API which was asked."""
    if head.events and head.length in (CHUNKED, UNTIL_CLOSE):
        return Events(head.length, form)
    return Opaque(head.length)

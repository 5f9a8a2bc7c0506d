"""Response bodies in transit: the bytes to forward, and what the gateway must know about them."""

from __future__ import annotations

from typing import Protocol

from tidegate.gateway.framing import LAST_CHUNK, Chunks, Counted, FramingError, chunk
from tidegate.gateway.heads import CHUNKED, UNTIL_CLOSE, ResponseHead
from tidegate.gateway.sse import CHAT_STREAM, END_OF_EVENT, LONGEST_END, Reader, StreamForm, last_end

MAX_HELD_BYTES = 1024 * 1024


class Body(Protocol):
    """One response body. `done`: all of it has arrived."""

    done: bool

    @property
    def answering(self) -> bool:
        """Whether the engine has begun to answer; a head alone, pings and blanks come from its queue as well."""

    def feed(self, data: bytes) -> bytes:
        """Take a piece from the engine; returns what to send to the client now. Raises FramingError."""

    def eof(self) -> bool:
        """The engine has closed the connection; returns whether that is the proper end of the body."""


class Opaque:
    """Any body that nothing can be inserted into; it is forwarded as it arrives."""

    intercepted = False

    def __init__(self, length: int, *, plain: bool = False) -> None:
        self.answering = False
        self._plain = plain
        self._framing = None if length == UNTIL_CLOSE else Chunks() if length == CHUNKED else Counted(length)
        self.done = self._framing is not None and self._framing.done

    def feed(self, data: bytes) -> bytes:
        """See `Body`."""
        spans = [(0, len(data))] if self._framing is None else self._framing.feed(data)
        if not self.answering:
            self.answering = any(data[start:end].strip() for start, end in spans)
        if self._framing is None:
            return data
        self.done = self._framing.done
        if self._framing.excess:
            raise FramingError("the engine sent more than its response")
        return b"".join([data[start:end] for start, end in spans]) if self._plain else data

    def eof(self) -> bool:
        """See `Body`."""
        return self._framing is None


class Events:
    """A stream of server-sent events.

    What the client has received always ends with a complete event in a complete chunk, so that an event can be inserted
    at any moment. The engine's pieces nearly always end that way, and are forwarded as they are. Otherwise the
    incomplete event is held back until the rest of it arrives, and its chunks are framed anew.
    """

    def __init__(self, length: int, form: StreamForm, *, plain: bool = False) -> None:
        self.done = False
        self.reader = Reader(form)
        self.intercepted = False
        """Whether the stream was stopped before an end that would hide that the response is truncated."""
        self.intercept = False
        """Whether to look for such an end, since the engine may have been told to stop."""
        self._chunks = Chunks() if length == CHUNKED else None
        self._plain = plain or self._chunks is None
        self._held = bytearray()
        self._event_split = False

    @property
    def answering(self) -> bool:
        """See `Body`."""
        return self.reader.answering

    def feed(self, data: bytes) -> bytes:
        """See `Body`."""
        chunks = self._chunks
        if chunks is None:
            return self._reframe(data)
        whole = not self._held and chunks.between and not self._plain
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
            if payload.endswith(END_OF_EVENT) and not (self.intercept and self._may_end_silently(payload)):
                self.reader.read(payload)
                return data
            return self._reframe(payload)
        return self._reframe(b"".join([data[start:end] for start, end in spans]))

    def eof(self) -> bool:
        """See `Body`. A process that dies closes its connections as well, so a stream must have had its own end."""
        if self._chunks is not None:
            return False
        if self.reader.unfinished and not self.intercept:
            return False
        self.done = True
        self.intercepted = self.intercepted or self.reader.unfinished
        return True

    def insert(self, payload: bytes) -> bytes:
        """The bytes that insert `payload`, complete events, into the stream now."""
        if self._event_split:
            self._event_split, payload = False, b"\n\n" + payload
        return payload if self._plain else chunk(payload)

    def end(self, payload: bytes) -> bytes:
        """The bytes that end the stream properly now, with `payload` as its last events; empty: with nothing more."""
        last = self.insert(payload) if payload else b""
        return last + (b"" if self._plain else LAST_CHUNK)

    def rest(self) -> bytes:
        """What was held back of a body that ends with its connection, once it has ended."""
        held = bytes(self._held)
        self._held.clear()
        return held

    def _may_end_silently(self, payload: bytes) -> bool:
        return self.done or self.reader.find_silent_end(payload) is not None

    def _reframe(self, payload: bytes) -> bytes:
        """Send the complete events in new chunks and hold back the rest."""
        held = self._held
        # An end may have begun in the last piece; what is before it has been searched.
        start = max(len(held) - LONGEST_END + 1, 0)
        held += payload
        end = len(held) if self.done else last_end(held, start)
        if not end and len(held) > MAX_HELD_BYTES:
            # No engine sends such a long event. Better to split it than to stall the stream.
            end, self._event_split = len(held), True
        events = bytes(held[:end])
        del held[:end]
        if self.intercept:
            kept = self.reader.find_silent_end(events)
            if kept is not None:
                self.intercepted = True
                events = events[:kept]
                held.clear()
        self.reader.read(events)
        if self.intercept and self.done and self.reader.unfinished:
            self.intercepted = True
        if self._plain:
            return events
        out = chunk(events) if events else b""
        return out + LAST_CHUNK if self.done and not self.intercepted else out


def body_of(head: ResponseHead, form: StreamForm = CHAT_STREAM, *, plain: bool = False) -> Opaque | Events:
    """The reader for the body that follows `head`; `form`: the stream format of the API that was called.

    `plain`: the client takes no chunks, so that a chunked body is forwarded without its framing.
    """
    if head.events and head.length in (CHUNKED, UNTIL_CLOSE):
        return Events(head.length, form, plain=plain)
    return Opaque(head.length, plain=plain)

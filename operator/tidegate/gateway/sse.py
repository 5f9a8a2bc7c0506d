"""Reads OpenAI's and Anthropic's server-sent events, decoding no more than necessary.

How engines end a stream that they cut was observed with vLLM, SGLang and llama.cpp: with `finish_reason: "abort"` and
`[DONE]`, or with `[DONE]` alone, and without an error in HTTP. vLLM's other two APIs are translated from that: a
`message_delta` without a `stop_reason`, and `response.completed` of a response whose status is `cancelled`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any

END_OF_EVENT = (b"\n\n", b"\n\r\n", b"\r\r")
LONGEST_END = max(map(len, END_OF_EVENT))
# Quotation marks inside a JSON string are escaped, so generated text cannot match these patterns.
_CONTENT = re.compile(
    rb'"(?:content|text|reasoning|reasoning_content|arguments|thinking|delta|partial_json|refusal)"\s*:\s*"[^"]'
)
_CHAT = b'"content":'
_LINE = rb"(?<![^\r\n])"
_DONE = re.compile(_LINE + rb"data: ?\[DONE\]")
_EVENT_END = re.compile(rb"\r?\n\r?\n|\r\r")
_NAME = re.compile(_LINE + rb"event: ?([^\r\n]*)")
# Some engines write `"error": null` into every event.
_PERHAPS_ERROR = re.compile(_LINE + rb'event: ?error|"error"\s*:\s*[^\sn]|"(?:type|object)"\s*:\s*"error"')
_NOTICES = frozenset({"response.created", "response.queued", "response.in_progress", "message_start"})
_PINGS = frozenset({"ping", "keepalive", "keep-alive", "heartbeat"})
_COUNTED = re.compile(rb'"(?:completion|output)_tokens"')
_LATER_CHOICE = re.compile(rb'"index"\s*:\s*[1-9]')
_SEQUENCE = re.compile(rb'"sequence_number"\s*:\s*([0-9]{1,15})')


@dataclass(frozen=True, slots=True)
class StreamForm:
    """How an API's streams show their progress.

    `begun`: bytes in one of the first events of a response. `finish`: it is complete, or has failed in a way that the
    client notices. `delta`: the only events with newly generated text, where others repeat it; None: nothing is
    repeated. `cut`: the engine cut it. `numbered`: events have sequence numbers. `choices`: one stream may contain
    several responses, each with an end of its own.
    """

    begun: bytes
    finish: re.Pattern[bytes]
    delta: re.Pattern[bytes] | None = None
    cut: re.Pattern[bytes] | None = None
    numbered: bool = False
    choices: bool = False


CHAT_STREAM = StreamForm(
    b'"choices"',
    # Some engines write an empty reason until there is one.
    re.compile(rb'"finish_reason"\s*:\s*"[^"]'),
    cut=re.compile(rb'"finish_reason"\s*:\s*"abort"'),
    choices=True,
)
RESPONSES_STREAM = StreamForm(
    b'"response.created"',
    re.compile(rb'"type"\s*:\s*"(?:response\.(?:completed|failed|incomplete|cancelled)|error)"'),
    delta=re.compile(rb'"type"\s*:\s*"response\.[a-z_.]+\.delta"'),
    cut=re.compile(rb'\A(?=.*"type"\s*:\s*"response\.completed")(?=.*"status"\s*:\s*"cancelled")', re.DOTALL),
    numbered=True,
)
MESSAGES_STREAM = StreamForm(
    b'"message_start"',
    re.compile(rb'"type"\s*:\s*"(?:message_stop|error)"'),
    delta=re.compile(rb'"type"\s*:\s*"content_block_delta"'),
    # In this API it is null in `message_start` alone.
    cut=re.compile(rb'\A(?=.*"type"\s*:\s*"message_delta")(?=.*"stop_reason"\s*:\s*(?:null|"abort"))', re.DOTALL),
)


def last_end(data: bytes | bytearray, start: int = 0) -> int:
    """The position after the last end of an event that begins at `start` or later; 0 if there is none."""
    return max(at + len(mark) if (at := data.rfind(mark, start)) >= 0 else 0 for mark in END_OF_EVENT)


@dataclass(slots=True)
class Progress:
    """The progress of a stream's responses.

    `failed`: the stream contains an error, which the client notices. `choices`: those that have begun, `over`: those
    whose end was announced. `other_form`: there are events, but none of a response in this form.
    """

    begun: bool = False
    failed: bool = False
    other_form: bool = False
    choices: frozenset[int] = frozenset((0,))
    over: frozenset[int] = frozenset()

    @property
    def finished(self) -> bool:
        """Whether nothing is missing without the client noticing."""
        return self.failed or self.choices <= self.over

    def take(self, event: bytes, form: StreamForm) -> None:
        """Read one event."""
        if not self.begun:
            self.begun = event.find(form.begun) >= 0
            if self.begun or not self.other_form:
                self.other_form = not (self.begun or _DONE.search(event) or _is_ping(event))
        if form.choices and _LATER_CHOICE.search(event):
            self.choices |= {index for index, _ in _choices(event)}
        if form.finish.search(event):
            ended = {index for index, reason in _choices(event) if reason} if form.choices else set()
            self.over |= ended or self.choices
        elif event.find(b"error") >= 0 and _is_error(event):
            self.failed = True


class Reader:
    """Counts what a stream has contained so far."""

    __slots__ = ("_form", "_last", "_progress", "_usage", "answering", "contents", "done")

    def __init__(self, form: StreamForm = CHAT_STREAM) -> None:
        self.contents = 0
        """Events with generated text: the fallback for the count of tokens."""
        self.answering = False
        """Whether the engine has begun to answer: pings and notices are sent from its queue as well."""
        self.done = False
        self._form = form
        self._progress = Progress()
        self._usage = self._last = b""

    @property
    def generated(self) -> int:
        """Tokens generated so far: the engine's own count if the stream contains one that is up to date."""
        usage = _tokens(self._usage) if self._usage else None
        # The first event of a message tells a usage too, of the time before its first token.
        return max(self.contents, usage or 0)

    @property
    def unfinished(self) -> bool:
        """Whether a response has begun and its end has not been announced."""
        return self._progress.begun and not self._progress.finished and not self.done

    @property
    def over(self) -> bool:
        """Whether the client has received all that its API sends: an end, or an error."""
        return self.done or self._progress.failed or (self._progress.finished and not self._form.choices)

    @property
    def next_sequence(self) -> int:
        """The number of the next event, where the API numbers them."""
        numbers = _SEQUENCE.findall(self._last)
        return int(numbers[-1]) + 1 if numbers else 0

    def read(self, events: bytes) -> None:
        """Read complete events."""
        # `in` costs an exception inside CPython each time, `find` does not.
        if events.find(b"data:") < 0:
            return
        form = self._form
        delta = form.delta
        if form.numbered:
            self._last = events
        # Nearly always one event; before the first, each counts for itself, also those without data.
        for event in (events,) if self.answering and events.count(b"data:") == 1 else _EVENT_END.split(events):
            if (delta is None or delta.search(event)) and _has_content(event):
                self.contents += 1
            if event.find(b'"usage"') >= 0 and _COUNTED.search(event):
                self._usage = event
            self._progress.take(event, form)
            if not self.answering:
                self.answering = not _only_announces(event)
            if not self.done and event.find(b"[DONE]") >= 0 and _DONE.search(event):
                self.done = True

    def find_silent_end(self, events: bytes) -> int | None:
        """The position of an end that hides a truncated response; None if there is none."""
        form, progress = self._form, copy(self._progress)
        for start, end in _spans(events):
            event = events[start:end]
            if form.cut is not None and not progress.failed and form.cut.search(event):
                return start
            progress.take(event, form)
            if not progress.finished and not progress.other_form and _DONE.search(event):
                return start
        return None


def _has_content(event: bytes) -> bool:
    # This runs for every chunk of every stream: searching for bytes costs a fraction of a pattern match.
    at = event.find(_CHAT)
    if at >= 0:
        text = event[at + len(_CHAT) : at + len(_CHAT) + 3].lstrip()
        if text[:1] == b'"' and text[1:2] not in (b'"', b""):
            return True
    return _CONTENT.search(event) is not None


def _spans(events: bytes) -> list[tuple[int, int]]:
    spans, start = [], 0
    for match in _EVENT_END.finditer(events):
        spans.append((start, match.end()))
        start = match.end()
    if start < len(events):
        spans.append((start, len(events)))
    return spans


def _data(event: bytes) -> bytes:
    """The event's data, which may be spread over several lines."""
    return b"\n".join(line[5:] for line in event.splitlines() if line.startswith(b"data:"))


def _document(event: bytes) -> dict[str, Any]:
    """The JSON object that the event consists of; empty if it is none."""
    try:
        document = json.loads(_data(event))
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _name(event: bytes) -> str:
    found = _NAME.search(event)
    return "" if found is None else found[1].decode(errors="replace")


def _is_ping(event: bytes) -> bool:
    """Whether it only shows that the engine is alive: a comment, or an event without content."""
    if not _data(event).strip():
        return True
    return bool(_PINGS & {_name(event), str(_document(event).get("type"))})


def _only_announces(event: bytes) -> bool:
    """Whether it comes before the first token: a ping, or the notice that there will be a response."""
    if _is_ping(event):
        return True
    document = _document(event)
    if _NOTICES & {_name(event), str(document.get("type"))}:
        return True
    choices = document.get("choices")
    return isinstance(choices, list) and not document.get("error") and not any(map(_has_output, choices))


def _has_output(choice: object) -> bool:
    """Whether a choice has more than the role, with which some engines begin every stream before its first token."""
    if not isinstance(choice, dict) or choice.get("finish_reason"):
        return True
    delta = choice.get("delta")
    if isinstance(delta, dict):
        return any(value for name, value in delta.items() if name != "role")
    return bool(choice.get("text", True))


def _is_error(event: bytes) -> bool:
    """Whether it is an error by its name or its content, wherever that stands in the object."""
    if not _PERHAPS_ERROR.search(event):
        return False
    document = _document(event)
    return bool(document.get("error")) or "error" in (_name(event), document.get("type"), document.get("object"))


def _choices(event: bytes) -> Iterator[tuple[int, object]]:
    """Index and finish_reason of each choice in an event."""
    choices = _document(event).get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict):
            index = choice.get("index")
            yield index if isinstance(index, int) else 0, choice.get("finish_reason")


def _tokens(event: bytes) -> int | None:
    """The response's tokens so far, as reported in OpenAI's and Anthropic's APIs."""
    usage = _document(event).get("usage")
    for name in ("completion_tokens", "output_tokens"):
        tokens = usage.get(name) if isinstance(usage, dict) else None
        if isinstance(tokens, int) and not isinstance(tokens, bool) and tokens >= 0:
            return tokens
    return None

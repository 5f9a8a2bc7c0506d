"""The heads of requests and responses: parsed strictly, and written anew.

The client's own framing never reaches the engine, so the two cannot disagree about where a request ends. Ambiguous
heads are refused (RFC 9112, sections 2.2, 5 and 6). The checks here run on the raw bytes before httptools splits them,
because httptools tolerates more than is safe between two parsers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import httptools

MAX_HEAD_BYTES = 32 * 1024
MAX_FIELDS = 128
MAX_SHOWN_BYTES = 32
END = b"\r\n\r\n"

# Control characters, a CR or LF that is not part of a CRLF, and a folded line.
_UNSAFE = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|(?<!\r)\n|\r(?!\n)|\r\n[ \t]")
_REQUEST_LINE = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32} ([\x21-\x7e]+) HTTP/([0-9])\.([0-9])")
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] [1-9][0-9][0-9](?: [^\r\n]*)?\Z")
_FIELD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:")
_DIGITS = re.compile(rb"[0-9]{1,18}\Z")
_HOST = re.compile(rb"[A-Za-z0-9._~:%!$&'()*+,;=\[\]-]*\Z")
_ABSOLUTE = re.compile(rb"https?://([^/?#@]+)([/?].*)?\Z", re.IGNORECASE)
_VIA = b"Via: 1.1 tidegate"
_VERSION = b"HTTP/1."
_PREFACE = b"PRI * HTTP/2.0"

HOP_BY_HOP = frozenset({
    b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"proxy-authorization", b"te", b"trailer",
    b"transfer-encoding", b"upgrade",
})  # fmt: skip
CHUNKED = -1
UNTIL_CLOSE = -2

Fields = list[tuple[bytes, bytes]]


class HeadError(ValueError):
    """The head is not acceptable; `status` is the status of the response to it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A request's head. `length`: bytes of the body, or CHUNKED. `upgrade`: the requested protocol in lower case."""

    method: bytes
    target: bytes
    minor: int
    fields: Fields
    length: int
    keep_alive: bool
    expects: bool
    upgrade: bytes

    def get(self, name: bytes) -> bytes | None:
        """The first value of a field, by its lower-case name."""
        return next((value for key, value in self.fields if key.lower() == name), None)

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition(b"?")[0].decode("ascii")


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """A response's head. `length`: bytes of the body, CHUNKED or UNTIL_CLOSE."""

    status: int
    line: bytes
    fields: Fields
    length: int
    keep_alive: bool

    def get(self, name: bytes) -> bytes | None:
        """The first value of a field, by its lower-case name."""
        return next((value for key, value in self.fields if key.lower() == name), None)

    @property
    def events(self) -> bool:
        """Whether the body is a stream of readable server-sent events, into which events can be inserted."""
        return self._reads_as(b"text/event-stream")

    @property
    def json(self) -> bool:
        """Whether the body is readable JSON of a known length."""
        return self.length > 0 and self._reads_as(b"application/json")

    def _reads_as(self, wanted: bytes) -> bool:
        kind, encoding = self.get(b"content-type") or b"", self.get(b"content-encoding") or b"identity"
        return kind.lower().startswith(wanted) and encoding.lower() == b"identity"


class _Collector:
    """Receives the callbacks of httptools."""

    def __init__(self) -> None:
        self.fields: Fields = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name, value.strip(b" \t")))


_Parser = httptools.HttpRequestParser | httptools.HttpResponseParser


def parse_request(raw: bytes) -> RequestHead:
    """Parse a head, including its final empty line. Raises HeadError."""
    if raw.startswith(_PREFACE):
        raise HeadError(
            505, "HTTP/2 is not supported: use HTTP/1.1, and terminate TLS and HTTP/2 in a mesh or proxy in front"
        )
    if len(raw) > MAX_HEAD_BYTES:
        raise HeadError(431, f"the head of the request is longer than {MAX_HEAD_BYTES} bytes")
    if _UNSAFE.search(raw):
        raise HeadError(400, "the head contains a control character, a bare CR or LF, or a folded line")
    line, *lines = raw[: -len(END)].split(b"\r\n")
    match = _REQUEST_LINE.fullmatch(line)
    if match is None:
        raise HeadError(400, "the first line is not METHOD TARGET HTTP/1.1")
    if match[2] != b"1":
        raise HeadError(505, "only HTTP/1.1 and HTTP/1.0 are supported")
    # A later minor version is compatible: it is served as the latest that is known (RFC 9110, section 2.5).
    minor = min(int(match[3]), 1)
    raw = b"%b%d%b" % (line[:-1], minor, raw[len(line) :])
    collector = _Collector()
    parser = httptools.HttpRequestParser(collector)
    fields = _fields(raw, lines, parser, collector, 400)
    method: bytes = parser.get_method()
    if method == b"CONNECT":
        raise HeadError(501, "CONNECT is not supported: this is not a forward proxy")
    target, fields = _origin(method, match[1], fields, minor)
    connection = _tokens(fields, b"connection")
    upgrade = _upgrade(fields) if minor == 1 and b"upgrade" in connection else b""
    return RequestHead(
        method=method,
        target=target,
        minor=minor,
        fields=fields,
        length=_request_length(fields, minor),
        # HTTP/1.0 cannot mark the end of a chunked body: one request per connection.
        keep_alive=minor == 1 and b"close" not in connection,
        expects=minor == 1 and (_single(fields, b"expect") or b"").lower() == b"100-continue",
        upgrade=upgrade,
    )


def parse_response(raw: bytes, *, bodiless: bool) -> ResponseHead:
    """Parse an engine's head; `bodiless`: the request was HEAD. Raises HeadError."""
    check_partial_response(raw)
    line, *lines = raw[: -len(END)].split(b"\r\n")
    collector = _Collector()
    parser = httptools.HttpResponseParser(collector)
    fields = _fields(raw, lines, parser, collector, 502)
    status: int = parser.get_status_code()
    connection = _tokens(fields, b"connection")
    length = _response_length(fields)
    if bodiless or status in (204, 304) or status < 200:
        length = 0
    keep_alive = length != UNTIL_CLOSE and b"close" not in connection
    if line.startswith(b"HTTP/1.0"):
        keep_alive = keep_alive and b"keep-alive" in connection
    return ResponseHead(status, line[9:], fields, length, keep_alive)


def check_partial_response(data: bytes | bytearray, checked: int = 0) -> None:
    """Raise HeadError if the beginning of an engine's head cannot become valid, whatever follows.

    `checked`: so many bytes of it have been checked before.
    """
    if not data.startswith(_VERSION[: len(data)]) or (len(data) > len(_VERSION) and data[len(_VERSION)] not in b"01"):
        raise HeadError(502, f"it begins with {_shown(data)}")
    # The last byte may be half of a CRLF.
    if _UNSAFE.search(data, max(checked - len(END) + 1, 0), len(data) - data.endswith(b"\r")):
        raise HeadError(502, "its head contains a control character, a bare CR or LF, or a folded line")
    end = data.find(b"\r\n")
    if end >= checked - 1 and end >= 0 and not _STATUS_LINE.fullmatch(data[:end]):
        raise HeadError(502, f"its status line is {_shown(data[:end])}")
    if len(data) > MAX_HEAD_BYTES:
        raise HeadError(502, f"its head is longer than {MAX_HEAD_BYTES} bytes")


def _shown(data: bytes | bytearray) -> str:
    """The beginning of what an engine has sent, for a message."""
    if data[:1] in (b"\x15", b"\x16") and data[1:2] in (b"", b"\x03"):
        return "TLS, which belongs in a mesh or proxy"
    return ascii(data[:MAX_SHOWN_BYTES].decode("latin-1"))


def write_request(head: RequestHead, extra: Iterable[tuple[bytes, bytes]], *, drop: frozenset[bytes]) -> bytes:
    """The head for the engine: without hop-by-hop fields and `drop`, with the framing's own fields and `extra`."""
    named = HOP_BY_HOP | drop | _tokens(head.fields, b"connection") - {b"host", b"content-length"}
    # A proxy's messages have its own version, also on behalf of clients of HTTP/1.0 (RFC 9110, section 2.5).
    lines = [b"%b %b HTTP/1.1" % (head.method, head.target)]
    lines += [b"%b: %b" % field for field in head.fields if field[0].lower() not in named]
    if head.length == CHUNKED:
        lines.append(b"Transfer-Encoding: chunked")
    if head.upgrade:
        lines += [b"Connection: Upgrade", b"Upgrade: " + head.upgrade]
    lines.append(_VIA)
    lines += [b"%b: %b" % field for field in extra]
    return b"\r\n".join(lines) + END


def write_response(
    head: ResponseHead, extra: Iterable[tuple[bytes, bytes]], *, close: bool, plain: bool = False
) -> bytes:
    """The head for the client; `close`: the connection ends with this response; `plain`: its body has no chunks."""
    named = HOP_BY_HOP | _tokens(head.fields, b"connection") - {b"content-length"}
    if head.status == 101:
        named = named - {b"connection", b"upgrade"}
    if head.status < 200 or head.status == 204:
        # They have no body, and so no length (RFC 9110, section 8.6).
        named = named | {b"content-length"}
    lines = [b"HTTP/1.1 " + head.line]
    lines += [b"%b: %b" % field for field in head.fields if field[0].lower() not in named]
    if head.length == CHUNKED and not plain:
        lines.append(b"Transfer-Encoding: chunked")
    if close:
        lines.append(b"Connection: close")
    lines += [b"%b: %b" % field for field in extra]
    return b"\r\n".join(lines) + END


def _fields(raw: bytes, lines: list[bytes], parser: _Parser, collector: _Collector, status: int) -> Fields:
    if len(lines) > MAX_FIELDS:
        raise HeadError(431 if status == 400 else status, f"more than {MAX_FIELDS} header fields")
    if not all(map(_FIELD.match, lines)):
        raise HeadError(status, "a header line is not of the form NAME: VALUE")
    try:
        parser.feed_data(raw)
    except httptools.HttpParserUpgrade:
        pass
    except httptools.HttpParserInvalidMethodError:
        raise HeadError(501, "the method is not known") from None
    except httptools.HttpParserError as error:
        raise HeadError(status, f"the head is invalid: {error}") from None
    if len(collector.fields) != len(lines):
        raise HeadError(status, "the head is invalid: two parsers disagree about its fields")
    return collector.fields


def _origin(method: bytes, target: bytes, fields: Fields, minor: int) -> tuple[bytes, Fields]:
    """The target in origin form, and the fields with the matching Host (RFC 9112, section 3.2)."""
    hosts = [value for name, value in fields if name.lower() == b"host"]
    if len(hosts) > 1 or (minor == 1 and not hosts):
        raise HeadError(400, "HTTP/1.1 requires exactly one Host")
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is not None:
        others = [field for field in fields if field[0].lower() != b"host"]
        # OPTIONS of a whole server is asked with `*` (RFC 9112, section 3.2.4).
        whole = b"*" if method == b"OPTIONS" else b"/"
        hosts, fields, target = [absolute[1]], [(b"Host", absolute[1]), *others], absolute[2] or whole
        if target.startswith(b"?"):
            target = b"/" + target
    if any(not _HOST.fullmatch(host) for host in hosts):
        raise HeadError(400, "the Host is not a valid host name")
    if not target.startswith(b"/") and (target, method) != (b"*", b"OPTIONS"):
        raise HeadError(400, "the request target is neither a path nor a URL")
    return target, fields


def _request_length(fields: Fields, minor: int) -> int:
    coding, length = _single(fields, b"transfer-encoding"), _single(fields, b"content-length")
    if coding is not None:
        if length is not None or minor == 0:
            raise HeadError(400, "Transfer-Encoding together with Content-Length, or in HTTP/1.0")
        if coding.lower() != b"chunked":
            raise HeadError(501, "chunked is the only supported Transfer-Encoding")
        return CHUNKED
    return 0 if length is None else _number(length, 400)


def _response_length(fields: Fields) -> int:
    codings = [value.lower() for name, value in fields if name.lower() == b"transfer-encoding"]
    lengths = {value for name, value in fields if name.lower() == b"content-length"}
    if codings:
        if codings != [b"chunked"] or lengths:
            raise HeadError(502, "it has a Transfer-Encoding other than chunked, or two lengths")
        return CHUNKED
    if len(lengths) > 1:
        raise HeadError(502, "it has two lengths")
    return _number(lengths.pop(), 502) if lengths else UNTIL_CLOSE


def _number(value: bytes, status: int) -> int:
    if not _DIGITS.fullmatch(value):
        raise HeadError(status, "Content-Length is not a number")
    return int(value)


def _single(fields: Fields, name: bytes) -> bytes | None:
    values = [value for key, value in fields if key.lower() == name]
    if len(values) > 1:
        raise HeadError(400, f"more than one {name.decode()}")
    return values[0] if values else None


def _upgrade(fields: Fields) -> bytes:
    """The requested protocols without HTTP/2, whose requests the gateway could not count."""
    asked = _members(fields, b"upgrade")
    return b", ".join(name for name in asked if name != b"h2c")


def _tokens(fields: Fields, name: bytes) -> frozenset[bytes]:
    return frozenset(_members(fields, name))


def _members(fields: Fields, name: bytes) -> list[bytes]:
    """The members of a comma list, lower case, over all its lines."""
    values = b",".join(value for key, value in fields if key.lower() == name)
    return list(filter(None, (token.strip().lower() for token in values.split(b","))))

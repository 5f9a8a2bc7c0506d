"""A drain endpoint of the application's own, which does not speak the contract: what to call, and when it is over.

There is a path and no host anywhere: only pods that the operator owns are ever called.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field, StrictBool

from tidegate.api.rules import Model, Rule, bounded, matching

PATH = r"^/([A-Za-z0-9._~!$&*+,;=:@%?-][A-Za-z0-9._~!$&*+,;=:@%/?-]*)?$"
POINTER = r"^(/([^/~]|~[01])*)*$"
HEADER_NAME = r"^[A-Za-z0-9_-]+$"
SUBDOMAIN = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
DATA_KEY = r"^[-._a-zA-Z0-9]+$"
OURS = ("accept-encoding", "connection", "content-length", "host", "te", "trailer", "transfer-encoding", "upgrade")
"""Headers, in lower case, that say whom is spoken to and how: never the user's."""

EndpointPath = Annotated[
    str,
    Field(max_length=1024),
    matching(
        PATH,
        "must be an absolute path such as /internal/drain, a query allowed: write it without scheme, host and "
        "port, since only the service's own pods are called",
    ),
]


class Method(StrEnum):
    """The HTTP method of the call that begins a drain."""

    GET = "GET"
    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"
    DELETE = "DELETE"


class Count(Model):
    """Where the application says how many requests it holds."""

    path: EndpointPath
    """Path that is read with GET and answers JSON, on the same port as the drain endpoint."""
    pointer: Annotated[
        str,
        Field(max_length=256),
        matching(
            POINTER,
            "must be a JSON pointer (RFC 6901) such as /active, with ~0 for ~ and ~1 for / in a name: write / "
            "before each step; the empty string is the whole answer",
        ),
    ]
    """JSON pointer (RFC 6901) to the whole number in that answer."""
    offset: int = bounded(0, 0, 1000)
    """What the number shows when nothing is in flight, for example 1 if the reading itself is counted; absent: 0."""


class SecretKeyRef(Model):
    """A key of a Secret in the namespace of the LLMService."""

    name: Annotated[
        str,
        Field(max_length=253),
        matching(
            SUBDOMAIN, "must be the name of a Secret in this namespace: use lower-case letters, digits, '-' and '.'"
        ),
    ]
    """Name of the Secret."""
    key: Annotated[
        str,
        Field(max_length=253),
        matching(DATA_KEY, "must be a key of the Secret's data: use letters, digits, '-', '_' and '.'"),
    ]
    """Key in the Secret's data."""


class Header(Model):
    """A header whose value is secret."""

    name: Annotated[
        str,
        Field(max_length=128),
        Rule(
            cel=f"self.matches(r'{HEADER_NAME}') && !(self.lowerAscii() in {list(OURS)})",
            message="must be the name of a header that carries a secret, such as X-Drain-Token: use letters, digits, "
            "'-' and '_', and none of the headers that HTTP itself needs (Host, Connection and the like)",
            holds=lambda name: bool(re.fullmatch(HEADER_NAME, name)) and name.lower() not in OURS,
        ),
    ]
    """Name of the header."""
    secret_key_ref: SecretKeyRef
    """Where its value is read."""


class Foreign(Model):
    """A drain endpoint of the application's own. It has to bear being called again, as after a restart of the
    operator, and it cannot be undone: a pod that was wanted again is replaced."""

    method: Method
    """HTTP method of the call that begins the drain. A GET that answers when the drain is over and needs no header also
    serves as preStop hook; for anything else the hook only sleeps."""
    path: EndpointPath
    """Path of that call, on `spec.drain.native.port`. The call is made when the pod has left the endpoints and
    propagationSeconds have passed."""
    answers_when_over: StrictBool = False
    """Whether the call itself returns, with a 2xx status, when the last request has ended; absent: false. With a count,
    the count must be 0 at that moment, otherwise the call is made again: for endpoints that give up waiting."""
    count: Count | None = None
    """Where the number of requests in flight is read. Two reads of 0 mean that the drain is over, unless the call says
    so itself."""
    header: Header | None = None
    """Header that is sent with the call and with the reads of the count."""

    rules: ClassVar = (
        Rule(
            field="answersWhenOver",
            cel="(has(self.answersWhenOver) && self.answersWhenOver) || has(self.count)",
            message="nothing says when the drain is over: set it to true if the call returns when the last request has "
            "ended, or say with count where the number of requests is read",
            holds=lambda foreign: foreign.answers_when_over or foreign.count is not None,
        ),
    )

    @property
    def serves_as_hook(self) -> bool:
        """Whether the kubelet can make the call itself: it only knows GET, and reads no Secret."""
        return self.method is Method.GET and self.answers_when_over and self.header is None

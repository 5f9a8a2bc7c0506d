"""A drain endpoint of the application's own, which does not implement the contract: what to call, and when it is over.

There are only paths here, no hosts: the operator calls nothing but pods that it owns.
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
"""Headers, in lower case, that HTTP itself needs: users cannot set them."""

EndpointPath = Annotated[
    str,
    Field(max_length=1024),
    matching(
        PATH,
        "must be an absolute path such as /internal/drain, optionally with a query: write it without scheme, host and "
        "port, since only the service's own pods are called",
    ),
]


class Method(StrEnum):
    """The HTTP method of the call that starts a drain."""

    GET = "GET"
    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"
    DELETE = "DELETE"


class Count(Model):
    """Where the application reports how many requests are in flight."""

    path: EndpointPath
    """Path that answers GET with JSON, on the same port as the drain endpoint."""
    pointer: Annotated[
        str,
        Field(max_length=256),
        matching(
            POINTER,
            "must be a JSON pointer (RFC 6901) such as /active: write / before each name, with ~0 for ~ and ~1 for / "
            'in a name, or "" for the complete answer',
        ),
    ]
    """JSON pointer (RFC 6901) to the number in that answer. It must be an integer."""
    offset: int = bounded(0, 0, 1000)
    """The number when nothing is in flight, for example 1 if the request for it is counted too; absent: 0."""


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
    """A header whose value is in a Secret."""

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
    """The Secret key that holds the value."""


class Foreign(Model):
    """A drain endpoint of the application's own. It must accept repeated calls, as after a restart of the operator. Its
    drain cannot be undone: if a draining pod is wanted again, it is replaced."""

    method: Method
    """HTTP method of the call that starts the drain. A GET that answers when the drain is over and needs no header is
    also used as the preStop hook; otherwise the hook only sleeps."""
    path: EndpointPath
    """Path of that call, on `spec.drain.native.port`. The call is made when the pod has left the endpoints and
    propagationSeconds have passed."""
    answers_when_over: StrictBool = False
    """Whether the call itself returns, with a 2xx status, when the last request has ended; absent: false. If count is
    set too, the call is repeated until it returns while the count is 0: for endpoints with a timeout of their own."""
    count: Count | None = None
    """Where the number of requests in flight is read. The drain is over when two reads give 0, unless
    answersWhenOver is true."""
    header: Header | None = None
    """Header that is sent with the call and with the reads of the count."""

    rules: ClassVar = (
        Rule(
            field="answersWhenOver",
            cel="(has(self.answersWhenOver) && self.answersWhenOver) || has(self.count)",
            message="must be true if the call returns when the last request has ended. Otherwise Tidegate cannot know "
            "when the drain is over: set count to where it can read the number of requests",
            holds=lambda foreign: foreign.answers_when_over or foreign.count is not None,
        ),
    )

    @property
    def serves_as_hook(self) -> bool:
        """Whether the kubelet can make the call in a preStop hook: a hook can only GET and cannot read a Secret."""
        return self.method is Method.GET and self.answers_when_over and self.header is None

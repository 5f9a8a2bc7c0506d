"""Builds the gateway from its parts, and admits requests: served and counted, or refused."""

from __future__ import annotations

import asyncio
import re
import secrets

from tidegate.contract.terms import Admission
from tidegate.gateway import failures
from tidegate.gateway.clock import Clock
from tidegate.gateway.connection import ClientConnection
from tidegate.gateway.dialects import dialect_of
from tidegate.gateway.draining import Drain
from tidegate.gateway.engine import Engine
from tidegate.gateway.exchange import RETRY_AFTER, Exchange
from tidegate.gateway.failures import ErrorReply, Failure
from tidegate.gateway.heads import RequestHead
from tidegate.gateway.keys import Keys
from tidegate.gateway.log import Log
from tidegate.gateway.metrics import Metrics
from tidegate.gateway.options import Options
from tidegate.gateway.shared import Shared
from tidegate.gateway.timeouts import DEADLINE_HEADER, parse_deadline
from tidegate.gateway.upstream import Pool

BACKLOG = 1024
PROBES = frozenset({"/health", "/healthz", "/livez", "/readyz", "/ready", "/ping", "/metrics"})
"""Paths of probes and scrapers: they are not counted, and must not delay the end of a drain."""
_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}\Z")


class Gateway:
    """One gateway in front of one engine."""

    def __init__(self, options: Options, log: Log, instance: str, clock: Clock) -> None:
        self.options = options
        self.metrics = Metrics()
        self.keys = Keys(options.key_dir, options.prestop_key)
        self.drain = Drain(options.settings, instance, log, clock, self.close_idle)
        self.pool = Pool(options.upstream.host, options.upstream.port, clock)
        self.engine = Engine(options, self.drain, log, clock)
        self._shared = Shared(clock, self.drain, self.engine, self.keys, self.metrics, self.pool)
        self._connections: set[ClientConnection] = set()
        self._server: asyncio.Server | None = None
        self._probes = PROBES | {options.ready_path}

    async def listen(self) -> int:
        """Open the port for clients; returns its number. Raises OSError."""
        listen, clock, keep_alive = self.options.listen, self._shared.clock, self.options.keep_alive

        def accept() -> ClientConnection:
            return ClientConnection(self, self.metrics, clock, keep_alive)

        self._server = await asyncio.get_running_loop().create_server(
            accept, listen.host or None, listen.port, backlog=BACKLOG
        )
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
        self.pool.close()

    # -- connections

    def opened(self, connection: ClientConnection) -> None:
        """A client has connected."""
        self.metrics.connection_opened()
        self._connections.add(connection)

    def closed(self, connection: ClientConnection) -> None:
        """A client's connection is closed."""
        self._connections.discard(connection)

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._connections)

    def close_idle(self) -> None:
        """Close every connection without a request, with FIN."""
        for connection in tuple(self._connections):
            connection.close_idle()

    # -- requests

    def admit(self, client: ClientConnection, head: RequestHead) -> Exchange | None:
        """Admit a request or answer it; None: it has been answered, and the connection must be closed."""
        given = head.get(b"x-request-id")
        known = given is not None and _REQUEST_ID.match(given) is not None
        request_id = given.decode() if known and given is not None else f"req-{secrets.token_hex(12)}"
        timeouts = self.options.profiles.of(head.path)
        left = head.get(DEADLINE_HEADER)
        deadline = None
        if left is not None:
            try:
                seconds = parse_deadline(left)
            except ValueError as error:
                self._answer(client, head, failures.bad_request(400, str(error)))
                return None
            if seconds <= 0:
                self.metrics.failed(Failure.TOTAL)
                late = failures.error_reply(Failure.TOTAL.value, "the deadline set by the client", request_id)
                self._answer(client, head, late)
                return None
            deadline = self._shared.clock.monotonic() + seconds
            timeouts = timeouts.within(seconds)
        exchange = Exchange(self._shared, client, head, request_id=request_id, timeouts=timeouts, deadline=deadline)
        # An upgrade on the path of a probe starts another protocol, so it is not a probe.
        if head.method in (b"GET", b"HEAD") and head.path in self._probes and not head.upgrade:
            return exchange
        if exchange.arrive() is Admission.REFUSE:
            self.metrics.request_refused()
            self.metrics.failed(Failure.DRAINED)
            self._answer(client, head, failures.error_reply(Failure.DRAINED.value, "", request_id), RETRY_AFTER)
            return None
        return None if exchange.over else exchange

    def _answer(
        self, client: ClientConnection, head: RequestHead, error: ErrorReply, headers: tuple[tuple[str, str], ...] = ()
    ) -> None:
        before = client.sent
        body = dialect_of(head.path).body(error)
        client.write(failures.response(error.status, body, close=True, headers=headers))
        self.metrics.answered(error.status, client.sent - before)

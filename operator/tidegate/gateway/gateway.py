"""What the parts share, and the door: which request is counted, served or refused."""

from __future__ import annotations

import asyncio
import re
import secrets
import time

from tidegate.contract.terms import Admission
from tidegate.gateway import failures
from tidegate.gateway.connection import ClientConnection
from tidegate.gateway.dialects import dialect_of
from tidegate.gateway.draining import Drain
from tidegate.gateway.ending import RETRY_AFTER
from tidegate.gateway.engine import Engine
from tidegate.gateway.exchange import Exchange
from tidegate.gateway.failures import Failure, Trouble
from tidegate.gateway.heads import RequestHead
from tidegate.gateway.keys import Keys
from tidegate.gateway.log import Log
from tidegate.gateway.metrics import Metrics
from tidegate.gateway.options import Options
from tidegate.gateway.timeouts import DEADLINE_HEADER, parse_deadline
from tidegate.gateway.upstream import Pool

BACKLOG = 1024
PROBES = frozenset({"/health", "/healthz", "/livez", "/readyz", "/ready", "/ping", "/metrics"})
"""Paths that probes and scrapers GET: they are no work, and must not put off the end of a drain."""
_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}\Z")


class Gateway:
    """One gateway in front of one engine."""

    def __init__(self, options: Options, log: Log, instance: str) -> None:
        self.options = options
        self.metrics = Metrics()
        self.keys = Keys(options.key_dir, options.prestop_key)
        self.drain = Drain(options.settings, instance, log)
        self.drain.on_seal = self.close_idle
        self.pool = Pool(options.upstream.host, options.upstream.port)
        self.engine = Engine(options, self.drain, log)
        self._connections: set[ClientConnection] = set()
        self._server: asyncio.Server | None = None
        self._probes = PROBES | {options.ready_path}

    async def listen(self) -> int:
        """Open the port for clients; returns its number. Raises OSError."""
        listen = self.options.listen
        self._server = await asyncio.get_running_loop().create_server(
            lambda: ClientConnection(self), listen.host or None, listen.port, backlog=BACKLOG
        )
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
        self.pool.close()

    # -- connections

    def opened(self, connection: ClientConnection) -> None:
        self.metrics.connections += 1
        self._connections.add(connection)

    def closed(self, connection: ClientConnection) -> None:
        self._connections.discard(connection)

    @property
    def connections(self) -> int:
        return len(self._connections)

    def close_idle(self) -> None:
        """FIN to every connection without a request."""
        for connection in tuple(self._connections):
            if connection.idle:
                connection.close()

    # -- requests

    def admit(self, client: ClientConnection, head: RequestHead) -> Exchange | None:
        """Let a request in, or answer it; None: it was refused, and its connection is to be closed."""
        given = head.get(b"x-request-id")
        known = given is not None and _REQUEST_ID.match(given) is not None
        request_id = given.decode() if known and given is not None else f"req-{secrets.token_hex(12)}"
        timeouts = self.options.profiles.of(head.path)
        rest = head.get(DEADLINE_HEADER)
        deadline = None
        if rest is not None:
            try:
                seconds = parse_deadline(rest)
            except ValueError as error:
                self._answer(client, head, failures.bad_request(400, str(error)))
                return None
            if seconds <= 0:
                self.metrics.failed(Failure.TOTAL)
                late = failures.trouble(Failure.TOTAL.value, "the client's own deadline", request_id)
                self._answer(client, head, late)
                return None
            deadline = time.monotonic() + seconds
            timeouts = timeouts.within(seconds)
        exchange = Exchange(self, client, head, request_id=request_id, timeouts=timeouts, deadline=deadline)
        # What begins on such a path as another protocol is no probe.
        if head.method in (b"GET", b"HEAD") and head.path in self._probes and not head.upgrade:
            return exchange
        work_id = request_id if not self.drain.known(request_id) else f"{request_id}-{secrets.token_hex(4)}"
        # Known to the exchange beforehand: the arrival itself may be the moment in which everything ends.
        exchange.work_id = work_id
        if self.drain.arrive(work_id, exchange.ending) is Admission.REFUSE:
            self.metrics.refused += 1
            self.metrics.failed(Failure.DRAINED)
            self._answer(client, head, failures.trouble(Failure.DRAINED.value, "", request_id), RETRY_AFTER)
            return None
        if exchange.over:
            return None
        exchange.watch.work = self.drain.work(work_id)
        return exchange

    def _answer(
        self, client: ClientConnection, head: RequestHead, trouble: Trouble, headers: tuple[tuple[str, str], ...] = ()
    ) -> None:
        before = client.sent
        body = dialect_of(head.path).body(trouble)
        client.write(failures.response(trouble.status, body, close=True, headers=headers))
        self.metrics.answered(trouble.status, client.sent - before)

"""The address that Prometheus scrapes, served by a thread of its own, so that a scrape never delays a drain."""

import contextlib
from collections.abc import Iterator

from prometheus_client import start_http_server

from tidegate.api.errors import CannotListen

from .instruments import Metrics


@contextlib.contextmanager
def serving(metrics: Metrics, address: tuple[str, int] | None) -> Iterator[None]:
    """Serve GET /metrics at (host, port) inside the block; None: not at all. Raises `CannotListen` with the remedy."""
    if address is None:
        yield
        return
    host, port = address
    try:
        server, thread = start_http_server(port, host, metrics.registry)
    except OSError as error:
        raise CannotListen(
            f"cannot serve metrics on {host}:{port}: {error.strerror or error}. Set another address with --metrics"
        ) from error
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

"""The gateway's process: ports, signals, start and exit."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import resource
import secrets
import signal
import socket
import sys
from collections.abc import Awaitable, Callable

from tidegate.gateway.address import Address
from tidegate.gateway.admin import Admin
from tidegate.gateway.clock import Clock
from tidegate.gateway.connection import LINGER_SECONDS
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.log import Log
from tidegate.gateway.options import Options

EXIT_MARGIN_SECONDS = 0.5
"""How long before the deadline the process exits, and at most half the flush time: the tokens must be sent before."""


class CannotListenError(Exception):
    """A port cannot be opened; the text names the option and the remedy."""


async def serve(options: Options) -> int:
    """Serve until the drain after SIGTERM is over; returns the exit code. Raises CannotListenError."""
    # Different for every process: a restarted process must not be taken for its predecessor.
    instance = secrets.token_hex(8)
    clock = Clock()
    log = Log(instance, clock)
    gateway = Gateway(options, log, instance, clock)
    admin = Admin(gateway)
    terminated = asyncio.Event()

    def on_sigterm() -> None:
        gateway.drain.sigterm()
        terminated.set()

    loop = asyncio.get_running_loop()
    # PID 1 of a container has no default action for signals: without a handler SIGTERM would be ignored.
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_sigterm)
    admin_port = await _listen("admin", options.admin, admin.listen)
    port = await _listen("listen", options.listen, gateway.listen)
    log.write("listening", port=port, adminPort=admin_port, engine=options.engine, pid=os.getpid())
    watching = asyncio.create_task(gateway.engine.watch())
    # Everything allocated so far lives as long as the process: the garbage collector can skip it from now on.
    gc.collect()
    gc.freeze()
    await terminated.wait()
    await end(gateway, log, clock)
    watching.cancel()
    await admin.end()
    gateway.close()
    return 0


async def _listen(option: str, address: Address, listen: Callable[[], Awaitable[int]]) -> int:
    try:
        return await listen()
    except OSError as error:
        raise CannotListenError(f"--{option}: cannot listen on {address.host}:{address.port}: {_why(error)}") from error


def _why(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "the port is in use; give another one, or end what listens there"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "not permitted; give a port above 1023"
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return "no address of this machine; leave the host out to listen on all of them"
    return error.strerror or type(error).__name__


async def end(gateway: Gateway, log: Log, clock: Clock) -> None:
    """Wait for the seal and a moment more, but end what is left before the kubelet's SIGKILL does."""
    settings, drain = gateway.options.settings, gateway.drain
    deadline = drain.contract.killed_at or clock.monotonic() + settings.grace
    margin = min(EXIT_MARGIN_SECONDS, settings.flush / 2)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(deadline - margin - clock.monotonic()):
            await drain.sealed.wait()
            await asyncio.sleep(LINGER_SECONDS)
    in_time = drain.sealed.is_set()
    drain.expire()
    if not in_time:
        # Whoever waits for the state of the drain is still told of its end.
        await asyncio.sleep(margin / 2)
    contract = drain.contract
    log.write("exit", code=0, cut=contract.cut, everCut=contract.ever_cut, inFlight=contract.in_flight)


def run(options: Options) -> int:
    """Run a gateway, on uvloop if it is installed; returns the exit code."""
    _raise_descriptor_limit()
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(serve(options))
    except CannotListenError as error:
        print(f"tidegate gateway: {error}", file=sys.stderr)
        return 2


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def _raise_descriptor_limit() -> None:
    """Raise the soft limit to the hard one: each request has two connections, and 1024 descriptors are too few."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

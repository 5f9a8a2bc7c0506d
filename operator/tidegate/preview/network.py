"""Addresses of pods, and the operator's calls to them.

`Network` implements the port `tidegate.drain.sessions.Talk`. Answers pass through the operator's own check of them, so
that a lie is refused by the code that refuses it in a cluster.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from random import Random

from tidegate.api.errors import KeyRefused, PodTrouble, TooLate
from tidegate.contract.terms import DrainConflictError, DrainRequest
from tidegate.core.planner.actions import DrainOrder
from tidegate.core.state.snapshot import Reading
from tidegate.drain import contract
from tidegate.drain.contract import Address

from .pods import Process


class Network:
    """Addresses of pods, and the operator's calls to them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rng: Random) -> None:
        self._loop, self._rng = loop, rng
        self.hosts: dict[str, Process] = {}
        self.keys: Callable[[Address], frozenset[str]] = lambda _: frozenset()
        self.wait_seconds = contract.WAIT_SECONDS
        """After how long a pod answers that there is no news."""
        self.severed = ""
        """How every call from the operator fails, `refused` or `dropped`; empty while the network works."""
        self.calls = 0
        self.posted: Callable[[str], None] = lambda _: None
        """Called with the uid of each pod that gets a POST /drain."""

    async def ask(self, address: Address, key: str, now: float) -> Reading:
        """GET /drain, answered at once."""
        process = await self._reach(address, key, contract.CALL_SECONDS)
        return _said(process, address, now)

    async def start(
        self, address: Address, key: str, order: DrainOrder, since_withdrawal: float, now: float
    ) -> Reading:
        """POST /drain."""
        process = await self._reach(address, key, contract.CALL_SECONDS)
        deadline = order.record.deadline
        self.posted(process.uid)
        if process.conduct != "ignores":
            request = DrainRequest(
                id=order.record.id,
                reason=order.record.reason,
                remaining=None if deadline is None else max(deadline - now, 0.0),
                since_withdrawal=since_withdrawal,
                propagation=order.propagation_seconds,
                quiet=order.quiet_seconds,
                flush=order.flush_seconds,
                stalled_after=order.stalled_after_seconds,
            )
            process.contract.post(request, self._loop.time())
            process.touch()
        return _said(process, address, now)

    async def wait(self, address: Address, key: str, sequence: int, now: float) -> Reading:
        """GET /drain, answered when there is news after `sequence`, or after `wait_seconds`."""
        process = await self._reach(address, key, contract.WAIT_SECONDS + 5)
        await process.change(sequence, self.wait_seconds)
        if not process.alive:
            raise PodTrouble("broken", "the connection was lost (ReadError)")
        return _said(process, address, now)

    async def undo(self, address: Address, key: str, drain_id: str) -> None:
        """DELETE /drain. Raises `TooLate`."""
        process = await self._reach(address, key, contract.CALL_SECONDS)
        try:
            process.contract.undrain(drain_id)
        except DrainConflictError as error:
            raise TooLate("too-late", "the pod is already sealed, or drains under another id (409)") from error
        process.touch()

    async def _reach(self, address: Address, key: str, patience: float) -> Process:
        self.calls += 1
        await asyncio.sleep(0.001 + 0.003 * self._rng.random())
        process = self.hosts.get(address.ip)
        fault = self.severed or (process.conduct if process is not None else "refused")
        if fault == "dropped":
            await asyncio.sleep(contract.CALL_SECONDS)
            raise PodTrouble("timeout", "connection timed out after 3 s: packets may be dropped")
        if process is None or fault == "refused":
            raise PodTrouble("refused", "connection refused: nothing listens on that port")
        if fault == "hangs":
            await asyncio.sleep(patience)
            raise PodTrouble("timeout", "connected, but no answer in time")
        if key not in self.keys(address):
            raise KeyRefused("unauthorized", "the pod refuses the key of the Secret (401)")
        if fault in ("500", "404"):
            raise PodTrouble("status", f"HTTP {fault} instead of 2xx")
        if fault == "rubbish":
            raise PodTrouble("rubbish", "the answer is not JSON")
        return process


def _said(process: Process, address: Address, now: float) -> Reading:
    said = contract.reading(process.document(), now)
    # A custom endpoint has no name for its run: the kubelet's stands for it.
    return said if address.peer is None else replace(said, instance=address.peer.run)

"""Whom a pod is spoken to like: the contract, or the endpoint that it has instead."""

from tidegate.api.errors import TooLate
from tidegate.core.planner.actions import DrainOrder
from tidegate.core.state.snapshot import Reading

from .contract import Address, Contract
from .foreign import ForeignEndpoints


class Dialects:
    """`sessions.Talk` for every pod."""

    def __init__(self, contract: Contract, foreign: ForeignEndpoints) -> None:
        self._contract, self._foreign = contract, foreign

    async def ask(self, address: Address, key: str, now: float) -> Reading:
        """What the pod holds now."""
        if address.peer is not None:
            return await self._foreign.ask(address, now)
        return await self._contract.ask(address, key, now)

    async def start(
        self, address: Address, key: str, order: DrainOrder, since_withdrawal: float, now: float
    ) -> Reading:
        """Begin the drain of `order`, or carry on with it."""
        if address.peer is not None:
            return await self._foreign.start(address, order, since_withdrawal, now)
        return await self._contract.start(address, key, order, since_withdrawal, now)

    async def wait(self, address: Address, key: str, sequence: int, now: float) -> Reading:
        """Answered when something changes, or after a few seconds."""
        if address.peer is not None:
            return await self._foreign.wait(address, sequence, now)
        return await self._contract.wait(address, key, sequence, now)

    async def undo(self, address: Address, key: str, drain_id: str) -> None:
        """Back to serving. No endpoint of an application's own says how: its pod is replaced."""
        if address.peer is not None:
            raise TooLate("too-late", "an endpoint of the application's own cannot be undone")
        await self._contract.undo(address, key, drain_id)

"""Chooses how to call a pod: through the contract, or through its foreign endpoint."""

from tidegate.api.errors import TooLate
from tidegate.core.planner.actions import DrainOrder
from tidegate.core.state.snapshot import Reading

from .contract import Address, Contract
from .foreign import ForeignEndpoints


class Dialects:
    """Implements `sessions.Talk` for pods of both kinds. Every method raises `PodTrouble` and nothing else."""

    def __init__(self, contract: Contract, foreign: ForeignEndpoints) -> None:
        self._contract, self._foreign = contract, foreign

    async def ask(self, address: Address, key: str, now: float) -> Reading:
        """The pod's state and requests in flight."""
        if address.peer is not None:
            return await self._foreign.ask(address, now)
        return await self._contract.ask(address, key, now)

    async def start(
        self, address: Address, key: str, order: DrainOrder, since_withdrawal: float, now: float
    ) -> Reading:
        """Start the drain of `order`, or continue it."""
        if address.peer is not None:
            return await self._foreign.start(address, order, since_withdrawal, now)
        return await self._contract.start(address, key, order, since_withdrawal, now)

    async def wait(self, address: Address, key: str, sequence: int, now: float) -> Reading:
        """Answered on a change, or after `WAIT_SECONDS`."""
        if address.peer is not None:
            return await self._foreign.wait(address, sequence, now)
        return await self._contract.wait(address, key, sequence, now)

    async def undo(self, address: Address, key: str, drain_id: str) -> None:
        """Back to serving. A foreign endpoint has no call for that: its pod is replaced."""
        if address.peer is not None:
            raise TooLate("too-late", "a drain through the application's own endpoint cannot be undone")
        await self._contract.undo(address, key, drain_id)

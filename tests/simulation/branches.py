"""One run that forks at each write of the operator: what can happen there happens in a child, which goes on to the end.

So the way to a write is gone once, by the parent, instead of once for each thing that can happen at the write.
"""

import asyncio
import os
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

from simulation.port import Write

AT_ONCE = max((os.cpu_count() or 1) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")), 1)
"""Children that run at the same time: the processors are shared with the other workers of pytest."""
CHILD_SECONDS = 900
"""By the machine's clock. A child takes a second or so; one that hangs must not hang the tests."""


@dataclass(frozen=True, slots=True)
class Branch:
    """One child: `variant` at the write of this number, counted from 1."""

    write: int
    variant: str

    def __str__(self) -> str:
        return f"{self.variant} write {self.write}"


class Branches(list[Write]):
    """The operator's log of writes, to be set as `World.sent`: a write that is appended is about to be sent.

    For each variant a child is forked there; in it `strike(branch)` arranges what happens, and `here` is its branch.
    The parent's run goes on undisturbed, and its `here` stays None. After `last` writes, if given, nothing is forked.
    """

    def __init__(self, variants: tuple[str, ...], last: int | None = None) -> None:
        super().__init__()
        self.variants, self.last = variants, last
        self.strike: Callable[[Branch], None]
        """To be set before the run begins."""
        self.here: Branch | None = None
        self._results: dict[Branch, Any] = {}
        self._running: dict[Connection, tuple[int, Branch]] = {}
        self._report: Connection | None = None

    def append(self, write: Write) -> None:
        super().append(write)
        if self.here is not None or (self.last is not None and len(self) > self.last):
            return
        for variant in self.variants:
            branch = Branch(len(self), variant)
            if self._fork(branch):
                self.strike(branch)
                return

    def report(self, result: Any) -> None:
        """In a child, its end: `result`, which can be pickled, is what its branch came to. In the parent, nothing."""
        if self._report is None:
            return
        try:
            self._report.send(result)
        finally:
            # Not `sys.exit`: pytest, its plugins and its buffers belong to the parent.
            os._exit(0)

    def collect(self) -> dict[Branch, Any]:
        """Wait for the children that still run. What each has reported, or an EOFError that says how it ended."""
        while self._running:
            self._reap()
        return self._results

    def close(self) -> None:
        """End the children that still run, where nobody wants to know any more."""
        for pid, _ in self._running.values():
            os.kill(pid, signal.SIGKILL)
        self.collect()

    def _fork(self, branch: Branch) -> bool:
        """Whether this is the child now."""
        while len(self._running) >= AT_ONCE:
            self._reap()
        loop, chance = asyncio.get_running_loop(), random.getstate()
        receiver, sender = Pipe(duplex=False)
        pid = os.fork()
        if pid:
            sender.close()
            self._running[receiver] = (pid, branch)
            return False
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(CHILD_SECONDS)
        self.here, self._report, self._running = branch, sender, {}
        # A fork takes both from a child, so that it does not share them. This one goes on with its own copy.
        asyncio.set_event_loop(loop)
        asyncio._set_running_loop(loop)
        random.setstate(chance)
        return True

    def _reap(self) -> None:
        """Wait for one child or more."""
        for receiver in wait(list(self._running)):
            assert isinstance(receiver, Connection)
            pid, branch = self._running.pop(receiver)
            lost = None
            try:
                self._results[branch] = receiver.recv()
            except EOFError as error:
                lost = error
            receiver.close()
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            if lost is not None:
                self._results[branch] = EOFError(f"the process ended with {code} and reported nothing")

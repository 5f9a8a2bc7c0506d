"""A streaming service that drains itself: `python -m apps.server`; everything is told by the environment.

PORT 8000, ADMIN_PORT 9901, HOST 0.0.0.0, VERSION, START_SECONDS 0, LOG_DIR, MISBEHAVE (see apps.misbehave),
TIDEGATE_KEY_DIR, TIDEGATE_PRESTOP_KEY, TIDEGATE_GRACE_SECONDS 30, TIDEGATE_PROPAGATION_SECONDS 5,
TIDEGATE_QUIET_SECONDS 2, TIDEGATE_FLUSH_SECONDS 5, TIDEGATE_STALLED_AFTER_SECONDS 300. Without keys the drain endpoint
answers 401; SIGTERM drains all the same.
"""

import asyncio
import contextlib
import os
import secrets
import signal
import sys
import time
from collections.abc import Mapping

from apps.admin import Admin
from apps.completions import Completions
from apps.events import EventLog
from apps.keys import Keys
from apps.misbehave import Misbehaviour
from apps.service import Service
from apps.wire import LINGER_SECONDS, HttpServer
from tidegate.contract.terms import DrainRequest, Settings

EXIT_MARGIN_SECONDS = 0.5  # at most, and half the flush time at most: the tokens must be out before


class Process:
    """The process around the service: ports, signals, start and end."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._instance = secrets.token_hex(8)
        self._pod = environment.get("HOSTNAME", "local")
        self._version = environment.get("VERSION", "")
        self._log = EventLog(self._pod, self._instance, environment.get("LOG_DIR"))
        misbehaviour = Misbehaviour.parse(environment.get("MISBEHAVE", ""))
        self._service = Service(self._settings(), self._instance, self._log, misbehaviour)
        self._terminated = asyncio.Event()
        self._crash: asyncio.TimerHandle | None = None

    async def run(self) -> int:
        """Serve until SIGTERM has been obeyed; returns the exit code."""
        if "crash-at-start" in self._service.misbehaviour:
            self._log.write("exit", code=1, why="crash-at-start")
            return 1
        self._log.write("start", version=self._version, pid=os.getpid(), misbehave=self._service.misbehaviour.ways)
        loop = asyncio.get_running_loop()
        # PID 1 has no default action for signals: without a handler SIGTERM would be ignored.
        loop.add_signal_handler(signal.SIGTERM, self._on_sigterm)
        loop.add_signal_handler(signal.SIGINT, self._on_sigterm)
        timekeeper = asyncio.create_task(self._service.keep_time())
        await self._listen()
        self._apply(self._service.misbehaviour)
        starting = asyncio.create_task(self._start())
        await self._terminated.wait()
        await self._drained()
        starting.cancel()
        timekeeper.cancel()
        self._service.unfinished("exit")
        self._log.write("exit", code=0, why="sigterm")
        return 0

    async def _listen(self) -> None:
        host, environment = self._environment.get("HOST", "0.0.0.0"), self._environment
        headers = {"X-Pod": self._pod, "X-Version": self._version}
        serving = HttpServer(Completions(self._service, self._version or "numbers").handle, headers)
        keys = Keys(environment.get("TIDEGATE_KEY_DIR"), environment.get("TIDEGATE_PRESTOP_KEY"))
        admin = HttpServer(Admin(self._service, keys, self._apply).handle, headers)
        self._service.on_seal = serving.close_idle
        port = await serving.listen(host, int(environment.get("PORT", "8000")))
        admin_port = await admin.listen(host, int(environment.get("ADMIN_PORT", "9901")))
        self._log.write("listening", port=port, adminPort=admin_port)

    async def _start(self) -> None:
        slow = self._service.misbehaviour.ways.get("slow-start")
        await asyncio.sleep(float(self._environment.get("START_SECONDS", "0")) if slow is None else slow)
        self._service.contract.started()
        self._log.write("serving")
        self._service.touch()

    def _apply(self, misbehaviour: Misbehaviour) -> None:
        """Take over another misbehaviour; what acts by itself acts now."""
        self._service.misbehaviour = misbehaviour
        if self._crash is not None:
            self._crash.cancel()
        after = misbehaviour.ways.get("crash-after")
        loop = asyncio.get_running_loop()
        self._crash = None if after is None else loop.call_later(after, self._exit_now, 1, "crash-after")
        if "crash-at-start" in misbehaviour:
            loop.call_soon(self._exit_now, 1, "crash-at-start")
        if "foreign-id" in misbehaviour:
            self._service.post(DrainRequest(f"foreign-{self._instance}", "Foreign"))

    def _on_sigterm(self) -> None:
        if "exit-on-sigterm" in self._service.misbehaviour:
            self._service.sigterm()
            self._exit_now(143, "exit-on-sigterm")
        self._service.sigterm()
        self._terminated.set()

    def _exit_now(self, code: int, why: str) -> None:
        self._service.unfinished("exit")
        self._log.write("exit", code=code, why=why)
        os._exit(code)

    async def _drained(self) -> None:
        """Wait for the seal and a moment more, but be gone before the kubelet's SIGKILL."""
        deadline = self._service.contract.deadline
        assert deadline is not None
        margin = min(EXIT_MARGIN_SECONDS, self._settings().flush / 2)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(deadline - margin - time.monotonic()):
                await self._service.sealed.wait()
                await asyncio.sleep(LINGER_SECONDS)

    def _settings(self) -> Settings:
        def seconds(name: str, default: float) -> float:
            return float(self._environment.get(f"TIDEGATE_{name}_SECONDS", default))

        return Settings(
            grace=seconds("GRACE", 30),
            propagation=seconds("PROPAGATION", 5),
            quiet=seconds("QUIET", 2),
            flush=seconds("FLUSH", 5),
            stalled_after=seconds("STALLED_AFTER", 300),
        )


async def main() -> int:
    """Run the process that the environment describes."""
    try:
        return await Process(os.environ).run()
    except (ValueError, OSError) as error:
        sys.stderr.write(f"the environment does not fit: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))

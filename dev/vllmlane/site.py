"""The processes of one run, where they listen, and what they say of themselves."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MODEL = "tiny"
TIMEOUT_SECONDS = 300
MOST_REQUESTS = 8
OFFLINE = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
ONE_THREAD = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@dataclass(frozen=True)
class Site:
    """Where everything listens, and the key of the drain calls."""

    engine: int = field(default_factory=free_port)
    front: int = field(default_factory=free_port)
    admin: int = field(default_factory=free_port)
    key: str = field(default_factory=lambda: secrets.token_urlsafe(16))

    def drain(self, method: str, query: str = "", body: dict[str, Any] | None = None) -> dict[str, Any]:
        """One call of the drain contract; returns the state."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Tidegate-Key": self.key, "Content-Type": "application/json"}
        url = f"http://127.0.0.1:{self.admin}/drain{query}"
        with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method), timeout=60) as answer:
            return dict(json.load(answer))

    def running(self) -> int:
        """Requests that vLLM itself says it runs."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.engine}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return sum(int(float(line.split()[-1])) for line in lines if line.startswith("vllm:num_requests_running{"))

    def engine_command(self, vllm: Path, model: Path) -> list[str]:
        """vLLM, serving the model in the directory `model`."""
        return [
            *(sys.executable, str(vllm), "serve", str(model), "--served-model-name", MODEL),
            *("--load-format", "dummy", "--dtype", "float32", "--enforce-eager"),
            *("--max-model-len", "8192", "--max-num-seqs", str(MOST_REQUESTS)),
            *("--host", "127.0.0.1", "--port", str(self.engine)),
        ]

    def gateway_command(self, tidegate: Path, keys: Path) -> list[str]:
        """The gateway before vLLM, with its key in the directory `keys`."""
        return [
            *(str(tidegate), "gateway", "--engine", "VLLM", "--ready-path", "/health"),
            *("--listen", f"127.0.0.1:{self.front}", "--admin", f"127.0.0.1:{self.admin}"),
            *("--upstream", f"127.0.0.1:{self.engine}", "--key-dir", str(keys)),
        ]


@contextlib.contextmanager
def process(command: list[str], log: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of our own, ended by SIGTERM, and by SIGKILL where that is not obeyed."""
    with log.open("wb") as out:
        made = subprocess.Popen(command, stdout=out, stderr=out, env=os.environ | environment)
        try:
            yield made
        finally:
            made.terminate()
            try:
                made.wait(30)
            except subprocess.TimeoutExpired:
                made.kill()
                made.wait()


def until(what: str, look: Callable[[], object]) -> None:
    """Wait for it; ends the lane when it does not come."""
    end = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < end:
        with contextlib.suppress(OSError, urllib.error.URLError):
            if look():
                return
        time.sleep(0.2)
    raise SystemExit(f"lane-vllm: waited {TIMEOUT_SECONDS} s in vain: {what}")

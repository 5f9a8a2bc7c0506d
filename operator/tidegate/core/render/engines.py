"""What is known of each engine: where it listens, how it says that it works, and which flags a pod of it needs.

Of their sources and documentation; which of them ran here is in docs/reference/engines.md.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tidegate.api.gateway import Engine

Container = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Preset:
    """One engine. `probe_seconds` is how long a busy one may take to answer its health path."""

    port: int | None = None
    """Where it listens unless told."""
    path: str | None = None
    """Fails until the engine can take requests, and when it has failed for good; None: only its port is known."""
    probe_seconds: int = 10
    port_variable: str | None = None
    """Environment variable that says the port too."""
    local: bool = False
    """Whether it listens on the loopback alone unless told: the gateway reaches it there, the kubelet's probes do not.
    """


PRESETS: Final[Mapping[Engine, Preset]] = {
    Engine.VLLM: Preset(8000, "/health"),
    # Its health check generates a token, after a second's sleep, and gives up after 20 s by itself.
    Engine.SGLANG: Preset(30_000, "/health", probe_seconds=30, local=True),
    # Its published image says port 80; so does its own chart.
    Engine.TGI: Preset(80, "/health", port_variable="PORT"),
    # Alone it would listen on the loopback too; its published image listens everywhere.
    Engine.LLAMA_CPP: Preset(8080, "/health", port_variable="LLAMA_ARG_PORT"),
    Engine.CUSTOM: Preset(),
}


def missing_flags(engine: Engine, container: Container, port: int | None) -> Iterator[str]:
    """Flags that the template's command line lacks, each with its reason.

    Nothing is said where the command line is not in the template, or reads a file: the image may say it all.
    """
    preset = PRESETS[engine]
    words = [str(word) for key in ("command", "args") for word in container.get(key) or []]
    line = " ".join(words)
    if not words or _has(line, "config"):
        return
    if preset.port not in (None, port) and not _says_port(line, container, preset):
        yield f"--port {port} (by default it listens on {preset.port}, but spec.port is {port})"
    if preset.local and not _has(line, "host"):
        yield "--host 0.0.0.0 (by default it listens on the loopback interface only, where probes cannot reach it)"


def _has(line: str, option: str) -> bool:
    return re.search(rf"(^|\s)--{option}(\s|=|$)", line) is not None


def _says_port(line: str, container: Container, preset: Preset) -> bool:
    variables = {item.get("name") for item in container.get("env") or []}
    # Whole sets of variables may come from elsewhere.
    return _has(line, "port") or preset.port_variable in variables or bool(container.get("envFrom"))

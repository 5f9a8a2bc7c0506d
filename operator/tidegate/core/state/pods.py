"""What the containers of one pod tell: why it does not come up, and what proves that it holds no work."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from tidegate.api import names
from tidegate.api.conditions import PodState

from .snapshot import ContainerStatus, Pod, Reading

FAILED_WAITING: Final = frozenset(
    (
        "ImagePullBackOff",
        "ErrImagePull",
        "InvalidImageName",
        "ErrImageNeverPull",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
        "CrashLoopBackOff",
    )
)
"""Waiting reasons of the kubelet that do not heal by waiting alone."""


class Emptiness(Enum):
    """What proves that a pod holds no work."""

    NOTHING_RUNS = auto()
    NOT_STARTED = auto()
    GATEWAY_DOWN = auto()
    """Whatever came through the gateway ended with it."""
    SAYS_STARTING = auto()


@dataclass(frozen=True, slots=True)
class NoWork:
    """The proof that a pod holds no work; the rest is what the kubelet says of a container that does not run."""

    proof: Emptiness
    waiting_reason: str = ""
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a container does not come up, in the words of the kubelet; `exit_code` is None without a crash."""

    container: str
    """The sidecar's name; empty for the serving container."""
    reason: str
    message: str
    exit_code: int | None = None
    exit_reason: str = ""
    restarts: int = 0


def by_age(pods: Iterable[Pod]) -> list[Pod]:
    """The oldest first; names break ties, so that a repeat repeats."""
    return sorted(pods, key=lambda p: (p.created, p.name))


def no_work(pod: Pod, reading: Reading | None, now: float) -> NoWork | None:
    """What proves that the pod holds no work; None when it may hold some.

    Unknown is never zero: only a container that does not run or has not started proves it, or the pod's own word.
    """
    c = pod.container
    if not pod.any_running or not c.running:
        return NoWork(Emptiness.NOTHING_RUNS, c.waiting_reason, c.exit_code)
    if not c.started:
        return NoWork(Emptiness.NOT_STARTED)
    if pod.gateway is not None and not pod.gateway.running:
        return NoWork(Emptiness.GATEWAY_DOWN)
    if pod.ready or reading is None or reading.state != "starting" or now - reading.at > 1:
        return None
    # An engine that has closed its port may still generate.
    return NoWork(Emptiness.SAYS_STARTING) if reading.in_flight == 0 else None


def failure(pod: Pod) -> Failure | None:
    """Why the pod does not come up, by the kubelet; None when nothing is known to fail."""
    if pod.state != PodState.SERVING:
        return None
    # The engine waits for its gateway.
    before = _failure(pod.gateway, names.GATEWAY) if pod.gateway is not None else None
    return before or _failure(pod.container, "")


def _failure(c: ContainerStatus, container: str) -> Failure | None:
    crashed = c.restarts > 0 and c.exit_code is not None
    if c.waiting_reason == "CrashLoopBackOff" or (crashed and not c.waiting_reason):
        code = c.exit_code if crashed else None
        return Failure(
            container, c.waiting_reason or "Crashed", c.waiting_message, code, c.exit_reason or "Error", c.restarts
        )
    if c.waiting_reason in FAILED_WAITING:
        return Failure(container, c.waiting_reason, c.waiting_message)
    return None

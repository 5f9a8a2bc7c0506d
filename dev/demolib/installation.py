"""What the demo needs on the cluster, and taking the demo off it again."""

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path

from . import manifests
from .api import Api, kubectl
from .errors import DemoError

CHECKOUT = Path(__file__).resolve().parents[2]
GONE_SECONDS = 120.0


async def begin_removal(api: Api, namespaces: list[str]) -> None:
    """Delete load and services, without waiting for their pods."""
    for namespace in namespaces:
        # Without their clients, the streams end at once and no pod has to be waited for.
        await api.delete(f"/api/v1/namespaces/{namespace}/pods/{manifests.LOAD}")
        await api.delete(manifests.deployment_path(namespace))
        await api.delete(manifests.llmservice_path(namespace))


async def remove(api: Api, namespaces: list[str]) -> None:
    """Delete namespaces and all in them, and wait until they are gone; raises DemoError if they stay."""
    await begin_removal(api, namespaces)
    # The namespace goes last: its controller looks again only after half the longest grace period of a pod.
    await _until_gone(api, {name: f"/api/v1/namespaces/{name}/pods" for name in namespaces})
    for namespace in namespaces:
        await api.delete(f"/api/v1/namespaces/{namespace}")
    left = await _until_gone(api, {name: f"/api/v1/namespaces/{name}" for name in namespaces})
    if left:
        raise DemoError(f"the namespaces {', '.join(left)} are not gone after {GONE_SECONDS:.0f} s")


async def _until_gone(api: Api, paths: Mapping[str, str]) -> list[str]:
    """Wait until there is nothing at each path; what is left after GONE_SECONDS."""
    left = list(paths)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(GONE_SECONDS):
            while left:
                found = {name: await api.get(paths[name]) for name in left}
                left = [name for name, body in found.items() if body and body.get("items", True)]
                await asyncio.sleep(0.5 if left else 0)
    return left


async def install() -> None:
    """Tidegate as an administrator installs it, the operator in the cluster under its own role."""
    there = await kubectl("get", "deployment", "-A", "-l", "app.kubernetes.io/name=tidegate-operator", "-o", "name")
    await kubectl("apply", "--server-side", "-k", f"{CHECKOUT}/crds")
    await kubectl("wait", "--for=condition=Established", "crd/llmservices.tidegate.dev", "--timeout=60s")
    for part in ("cluster", "operator"):
        await kubectl("apply", "--server-side", "-k", f"{CHECKOUT}/manifests/{part}")
    if there.strip():
        # The image may be another one under the same tag.
        await kubectl("-n", "tidegate-system", "rollout", "restart", "deployment/tidegate-operator")
    await kubectl("-n", "tidegate-system", "rollout", "status", "deployment/tidegate-operator", "--timeout=110s")

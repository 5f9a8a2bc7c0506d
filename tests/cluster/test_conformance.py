"""What the operator believes of Kubernetes, against a real cluster; tests/simulation asks the one in memory.

No operator takes part. The rows wait far more than they work, so they run side by side, each under names of its own.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.harness.kube import Kube
from cluster.harness.kubernetes import RealKubernetes
from cluster.test_crd import await_schema
from conformance.rows import Row
from conformance_table import TABLE, title
from tidegate.cluster.client import connect

AT_ONCE = 12


@pytest.fixture(scope="module")
def verdicts(
    request: pytest.FixtureRequest, kube: Kube, policed_namespace: str
) -> Iterator[dict[str, BaseException | None]]:
    """What became of each row that is asked for."""
    kube.install_crd()
    await_schema(kube)
    asked = [
        item.callspec.params["entry"]
        for item in request.session.items
        if item.path == Path(__file__) and hasattr(item, "callspec")
    ]
    made: list[str] = []
    yield asyncio.run(_judge(asked, policed_namespace, made))
    for name in made:
        kube.must("delete", "namespace", name, "--wait=false", "--ignore-not-found")


async def _judge(asked: list[tuple[str, Row]], namespace: str, made: list[str]) -> dict[str, BaseException | None]:
    cluster = await connect("tidegate-conformance")
    places = asyncio.Semaphore(AT_ONCE)

    async def judge(entry: tuple[str, Row]) -> BaseException | None:
        async with places:
            k8s = RealKubernetes(cluster, namespace, f"row-{TABLE.index(entry)}", made)
            try:
                await entry[1].check(k8s)
            except Exception as error:
                return error
            finally:
                k8s.close()
        return None

    try:
        found = await asyncio.gather(*(judge(entry) for entry in asked))
    finally:
        await cluster.close()
    return {title(entry): verdict for entry, verdict in zip(asked, found, strict=True)}


@pytest.mark.parametrize("entry", TABLE, ids=title)
def test_row(entry: tuple[str, Row], verdicts: dict[str, BaseException | None]) -> None:
    trouble = verdicts[title(entry)]
    if trouble is not None:
        raise trouble

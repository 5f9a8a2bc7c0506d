"""Clients that abort, read slowly, keep connections, pipeline, upload 50 MB or hold a WebSocket, as a pod."""

from dataclasses import dataclass

from .kube import Object
from .load import Line, Load, LoadResult
from .service import IMAGE

ORDINARY_ENDS = {
    "abort": "aborted",
    "slow": "complete",
    "kept": "complete",
    "pipeline": "complete",
    "upload": "complete",
}


@dataclass(slots=True)
class UnrulyClients(Load):
    """`each` clients of every kind of apps.unruly that is named, one request after the other."""

    each: int = 2
    kinds: tuple[str, ...] = tuple(ORDINARY_ENDS)

    def container(self, urls: tuple[str, ...], out: str) -> Object:
        (url,) = urls
        kinds = [f"--kind={kind}" for kind in self.kinds]
        command = ["python", "-m", "apps.unruly", "--url", url, *kinds, "--each", str(self.each), "--out", out]
        return {"image": f"{IMAGE}:v1", "command": command}


def of_kind(result: LoadResult, kind: str) -> list[Line]:
    return [line for line in result.streams if line["kind"] == kind]


def assert_served(result: LoadResult) -> None:
    """Each kind got what it came for, every time, on the connection it chose or, refused there in form, on the next."""
    counts = result.summary
    assert counts["running"] == counts["cut"] == counts["refused"] == 0, (counts, result.failures[:10])
    for kind, end in ORDINARY_ENDS.items():
        ends = {line["result"] for line in of_kind(result, kind)}
        assert ends == {end}, (kind, [line for line in of_kind(result, kind) if line["result"] != end][:10])
    assert counts["started"] == len(result.streams), counts

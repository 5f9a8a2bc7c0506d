"""Which pods have a foreign endpoint, which start their container is in, and what is read of a Secret."""

import base64
from typing import Any

import pytest

from core.stories import raw_spec, spec
from tidegate.api import names
from tidegate.api.errors import ClusterError, NotFound, PodTrouble, Unavailable
from tidegate.api.foreign import SecretKeyRef
from tidegate.cluster import gather, project
from tidegate.cluster.lookups import Lookups
from tidegate.cluster.port import DEPLOYMENTS, LLM_SERVICES, PODS, REPLICASETS, SECRETS, Kind
from tidegate.cluster.store import Store
from tidegate.core.planner import revision
from tidegate.core.state.snapshot import Snapshot

FOREIGN = {"method": "GET", "path": "/internal/drain", "answersWhenOver": True}
REF = SecretKeyRef(name="my-app", key="drain")
DAY = "2026-11-29T20:00:00Z"


def owned(kind: str, name: str, uid: str) -> list[dict[str, Any]]:
    return [{"kind": kind, "name": name, "uid": uid, "controller": True}]


def pod(hash_: str, **status: Any) -> dict[str, Any]:
    """A pod of the ReplicaSet of that revision, as the API server has it."""
    hook = {"preStop": {"sleep": {"seconds": 3}}}
    running = {"name": "server", "state": {"running": {"startedAt": DAY}}, "started": True, "restartCount": 2}
    return {
        "metadata": {
            "name": f"p-{hash_}", "namespace": "shop", "uid": f"uid-{hash_}", "resourceVersion": "5",
            "labels": {names.SERVICE: "chat", names.REVISION: hash_}, "annotations": {names.CONTAINER: "server"},
            "ownerReferences": owned("ReplicaSet", f"rs-{hash_}", f"rs-{hash_}"),
        },
        "spec": {"containers": [{"name": "server", "lifecycle": hook}]},
        "status": {
            "phase": "Running", "podIP": "192.0.2.7",
            "containerStatuses": [running | {"containerID": "containerd://4711"} | status],
        },
    }  # fmt: skip


def snapshot(**sources: str) -> Snapshot:
    """One pod of each revision, the name of which is that of its source."""
    store = Store()
    labels = {names.SERVICE: "chat"}
    for hash_, source in sources.items():
        meta = {"namespace": "shop", "resourceVersion": "5", "labels": labels | {names.REVISION: hash_}}
        store.put(DEPLOYMENTS, {"metadata": meta | {
            "name": f"chat-{hash_}", "uid": f"d-{hash_}", "annotations": {names.SOURCE: source},
            "ownerReferences": owned(names.KIND, "chat", "uid-chat"),
        }})  # fmt: skip
        store.put(REPLICASETS, {"metadata": meta | {
            "name": f"rs-{hash_}", "uid": f"rs-{hash_}",
            "ownerReferences": owned("Deployment", f"chat-{hash_}", f"d-{hash_}"),
        }})  # fmt: skip
        store.put(PODS, pod(hash_))
    service = {"metadata": {"namespace": "shop", "name": "chat", "uid": "uid-chat"}, "spec": raw_spec()}
    store.put(LLM_SERVICES, service | {"metadata": service["metadata"] | {"resourceVersion": "1"}})
    return gather.snapshot(store, service, spec(), gather.Known(now=0.0))


def source(foreign: dict[str, Any] | None, port: int | str = "admin") -> str:
    return revision.source(raw_spec(drain={"native": {"port": port} | ({"foreign": foreign} if foreign else {})}))


def test_each_pod_has_the_endpoint_of_its_own_revision():
    """These pods have no hook of the contract, as after a mutating webhook: their revision knows the port."""
    s = snapshot(a=source(FOREIGN), b=source(FOREIGN | {"method": "POST"}, "http"), c=source(None), d="no source")
    found = {p.revision: (p.foreign and p.foreign.method, p.contract_port) for p in s.pods}
    assert found == {"a": ("GET", 9901), "b": ("POST", 8000), "c": (None, 9901), "d": (None, None)}


def test_pods_of_the_contract_keep_the_port_of_their_hook():
    raw = pod("c")
    raw["spec"]["containers"][0]["lifecycle"] = {"preStop": {"httpGet": {"path": names.PRESTOP_PATH, "port": 9901}}}
    assert project.pod(raw).contract_port == 9901


def run(**status: Any) -> str:
    # What the store keeps of a pod has to suffice.
    return project.pod(project.trim(PODS, pod("a", **status))).container.run


def test_every_start_of_a_container_has_a_name_of_its_own():
    later = {"running": {"startedAt": "2026-11-29T20:00:01Z"}}
    starts = [run(), run(restartCount=3), run(state=later), run(containerID="containerd://4712"), run(containerID=None)]
    assert len(set(starts)) == 5 and all(starts)
    assert run() == run()
    assert len(run(containerID="containerd://" + "f" * 64)) < 128


@pytest.mark.parametrize("state", [{"waiting": {"reason": "CrashLoopBackOff"}}, {"terminated": {"exitCode": 1}}, {}])
def test_a_container_that_does_not_run_is_in_no_start(state: dict[str, Any]):
    assert run(state=state) == ""


class Api:
    """Answers `get` and nothing else."""

    def __init__(self, answer: dict[str, Any] | ClusterError) -> None:
        self.answer = answer
        self.got: list[tuple[Kind, str | None, str]] = []

    async def get(self, kind: Kind, namespace: str | None, name: str) -> dict[str, Any]:
        self.got.append((kind, namespace, name))
        if isinstance(self.answer, ClusterError):
            raise self.answer
        return self.answer


def lookups(answer: dict[str, Any] | ClusterError) -> tuple[Lookups, Api]:
    api = Api(answer)
    return Lookups(api), api  # type: ignore[arg-type]


def secret(value: bytes) -> dict[str, Any]:
    return {"data": {"drain": base64.b64encode(value).decode()}}


async def test_a_secret_is_read_by_name_and_a_last_newline_is_no_part_of_it():
    found, api = lookups(secret(b"s3cret\n"))
    assert await found.secret_value("shop", REF) == "s3cret"
    assert api.got == [(SECRETS, "shop", "my-app")]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (NotFound("secrets my-app not found"), "Secret my-app does not exist: create it"),
        (Unavailable("s3cret"), "Secret my-app cannot be read"),
        ({}, "Secret my-app has no key drain: add it"),
        ({"data": {"other": "eA=="}}, "Secret my-app has no key drain: add it"),
        (secret(b"s3cret\xff"), "key drain of Secret my-app is not text"),
    ],
)
async def test_a_secret_that_cannot_be_used_is_named_and_never_shown(answer: Any, says: str):
    with pytest.raises(PodTrouble) as caught:
        await lookups(answer)[0].secret_value("shop", REF)
    assert (caught.value.kind, str(caught.value)) == ("no-header", says)
    assert not isinstance(caught.value.__cause__, UnicodeDecodeError)


async def test_the_start_is_that_of_this_very_pod():
    found, api = lookups(pod("a"))
    assert await found.container_run("shop", "p-a", "uid-a") == run()
    assert await found.container_run("shop", "p-a", "uid-other") == ""
    assert api.got == [(PODS, "shop", "p-a")] * 2
    assert await lookups(NotFound("gone"))[0].container_run("shop", "p-a", "uid-a") == ""
    with pytest.raises(PodTrouble, match="did not answer whether its container has restarted"):
        await lookups(Unavailable("later"))[0].container_run("shop", "p-a", "uid-a")

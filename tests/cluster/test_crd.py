"""The CustomResourceDefinition on a real API server: what it takes, what it refuses and in which words.

KUBECTL says how to reach the cluster (absent: `dev/cluster kubectl`). Refusals are dry runs. What is created for real
has no replicas and lives in a namespace of this module's own, which goes in the end; an operator may run meanwhile.
"""

from __future__ import annotations

import json
import re
import secrets
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from cluster.harness.kube import CHECKOUT, CRD, Kube, Object, eventually
from refusal_table import REFUSALS, SPEC, Refusal, edited, manifest
from tidegate.api.conditions import (
    ConditionStatus,
    ConditionType,
    DrainReason,
    Outcome,
    Phase,
    PodState,
    Reason,
    TermSource,
)
from tidegate.api.resource import LLMServiceSpec
from tidegate.api.status import (
    Condition,
    GracePeriod,
    GraceTerm,
    LLMServiceStatus,
    OutcomeStatus,
    PodStatus,
    RevisionStatus,
    RolloutStatus,
)
from tidegate.core.planner import revision
from tidegate.core.state.snapshot import Deployment

SHIPPED = CHECKOUT / "crds" / "tidegate.dev_llmservices.yaml"


def documents(objects: Sequence[Object]) -> str:
    """One stream of documents; for a List kubectl would validate by itself instead of asking the API server."""
    return "\n---\n".join(json.dumps(body) for body in objects)


@dataclass(frozen=True, slots=True)
class Space:
    """A namespace for LLMServices, and what a user types in it."""

    kube: Kube
    name: str

    def kubectl(self, *args: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Where a refusal is what the test is about."""
        return self.kube.kubectl("-n", self.name, *args, stdin=stdin)

    def must(self, *args: str, stdin: str | None = None) -> str:
        return self.kube.must("-n", self.name, *args, stdin=stdin)

    def read(self, *args: str) -> Object:
        answer: Object = json.loads(self.must(*args, "-o", "json"))
        return answer

    def get(self, name: str) -> Object:
        return self.read("get", "llm", name)

    def dry_run(self, *objects: Object, strict: bool = True) -> subprocess.CompletedProcess[str]:
        mode = "--validate=strict" if strict else "--validate=ignore"
        return self.kubectl("apply", "--dry-run=server", mode, "-f", "-", stdin=documents(objects))

    def create(self, name: str, edits: Mapping[str, Any] | None = None) -> Object:
        body = manifest({"replicas": 0, **(edits or {})}, name)
        created: Object = json.loads(self.must("create", "-f", "-", "-o", "json", stdin=json.dumps(body)))
        return created


@pytest.fixture(scope="module")
def space(kube: Kube) -> Iterator[Space]:
    """A namespace of our own, in a cluster that has the CustomResourceDefinition of this checkout."""
    kube.install_crd()
    name = f"crd-{secrets.token_hex(4)}"
    await_schema(kube)
    kube.must("create", "namespace", name)
    try:
        yield Space(kube, name)
    finally:
        kube.must("delete", "namespace", name, "--wait=false")


def await_schema(kube: Kube) -> None:
    """The API server takes up a changed schema a moment after it has stored it, and publishes it last."""
    version = yaml.safe_load(SHIPPED.read_text())["spec"]["versions"][0]
    wanted = version["schema"]["openAPIV3Schema"]["properties"]

    def is_published() -> bool:
        published = kube.get("openapi/v3/apis/tidegate.dev/v1alpha1") or {}
        schemas = published.get("components", {}).get("schemas", {})
        present = schemas.get("dev.tidegate.v1alpha1.LLMService", {}).get("properties", {})
        return all(without_unions(present.get(part, {})) == wanted[part] for part in ("spec", "status"))

    eventually("the API server publishes the schema of this checkout", is_published)


def without_unions(node: Any) -> Any:
    """The published schema spells int-or-string out as a union, which no structural schema may hold."""
    if isinstance(node, dict):
        return {key: without_unions(value) for key, value in node.items() if key != "anyOf"}
    return node


@pytest.fixture(scope="module")
def refused(space: Space) -> dict[str, list[str]]:
    """The causes that kubectl tells for each bad row, by its story: one call, since each object has its own name."""
    done = space.dry_run(*(manifest(row.bad, f"row-{number}") for number, row in enumerate(REFUSALS)))
    parts = re.split(
        r'(?m)^Error from server \(Invalid\): .*LLMService\.tidegate\.dev "row-(\d+)" is invalid: ', done.stderr
    )
    assert parts[0] == "", "something else went wrong than a refusal"
    return {
        REFUSALS[int(number)].story: re.split(r", (?=spec\.|<nil>: )", text.strip("[]\n"))
        for number, text in zip(parts[1::2], parts[2::2], strict=True)
    }


@pytest.fixture(scope="module")
def taken(space: Space) -> dict[str, str]:
    """What kubectl says to each good neighbour."""
    done = space.dry_run(*(manifest(row.good, f"row-{number}") for number, row in enumerate(REFUSALS)))
    lines = re.findall(r"(?m)^llmservice\.tidegate\.dev/row-(\d+) created \(server dry run\)$", done.stdout)
    return {REFUSALS[int(number)].story: done.stderr for number in lines}


@pytest.mark.parametrize("row", REFUSALS, ids=lambda row: row.story)
def test_a_refusal_names_field_and_remedy(refused: dict[str, list[str]], row: Refusal):
    assert row.story in refused, "it was taken"
    causes = refused[row.story]
    assert any(cause.startswith(f"{row.at}: ") and row.says in cause for cause in causes), causes


@pytest.mark.parametrize("row", REFUSALS, ids=lambda row: row.story)
def test_its_nearest_neighbour_is_taken(taken: dict[str, str], row: Refusal):
    assert row.story in taken, sorted(taken.values())[:1]


@pytest.mark.parametrize(
    ("name", "proposal"),
    [
        ("llama-3.1-8b", "llama-3-1-8b"),
        ("3b", "llm-3b"),
        ("a" * 53, "a" * 52),
        ("0." + "b" * 60, "llm-0-" + "b" * 46),
        ("a" * 51 + "-b", "a" * 51),
    ],
)
def test_a_name_that_no_service_can_have_is_refused_with_a_proposal_that_is_taken(
    space: Space, name: str, proposal: str
):
    refusal = space.dry_run(manifest(name=name))
    assert refusal.returncode != 0
    assert "metadata.name: " in refusal.stderr and f": use {proposal}\n" in refusal.stderr
    assert space.dry_run(manifest(name=proposal)).returncode == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rollout.maxsurge", 2),
        ("replica", 3),
        ("drain.budget", "30m"),
    ],
)
def test_a_field_that_is_misspelt_or_of_a_later_version_is_refused_by_name(space: Space, field: str, value: Any):
    refusal = space.dry_run(manifest({field: value}))
    assert refusal.returncode != 0
    assert f'unknown field "spec.{field}"' in refusal.stderr
    assert space.dry_run(manifest({field: value}), strict=False).returncode == 0


def test_the_api_server_finds_nothing_wrong_with_the_definition(space: Space):
    crd = space.read("get", "crd", CRD)
    conditions = {condition["type"]: condition["status"] for condition in crd["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}


def test_it_answers_to_its_short_names_and_stands_among_all(space: Space):
    line = space.must("api-resources", "--api-group=tidegate.dev", "-o", "wide", "--no-headers").split()
    assert line[:5] == ["llmservices", "llm,llms", "tidegate.dev/v1alpha1", "true", "LLMService"]
    assert line[-1] == "all"
    for short in ("llm", "llms"):
        assert space.kubectl("get", short).returncode == 0


def test_nothing_but_replicas_is_added_and_the_template_is_kept_whole(space: Space):
    spec = edited(
        SPEC,
        {
            "template.metadata": {"labels": {"team": "a"}, "annotations": {"note": "x"}},
            "template.spec.terminationGracePeriodSeconds": 30,
            "template.spec.volumes": [{"name": "models", "hostPath": {"path": "/models"}}],
            "template.spec.containers.0.lifecycle": {"preStop": {"sleep": {"seconds": 5}}},
            "template.spec.containers.0.ports.0.protocol": "TCP",
            "template.spec.containers.0.resources": {"limits": {"nvidia.com/gpu": 1}},
        },
    )
    body = {**manifest(name="kept"), "spec": spec}
    stored = json.loads(space.must("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(body)))
    assert stored["spec"] == {**spec, "replicas": 1}


def test_kubectl_and_autoscalers_scale_it_within_the_same_bounds(space: Space):
    space.create("scaled")
    path = f"/apis/tidegate.dev/v1alpha1/namespaces/{space.name}/llmservices/scaled/scale"
    assert json.loads(space.must("get", "--raw", path))["spec"].get("replicas", 0) == 0
    space.must("scale", "llm/scaled", "--replicas=2", "--current-replicas=0")
    assert space.get("scaled")["spec"]["replicas"] == 2
    refusal = space.kubectl("scale", "llm/scaled", "--replicas=10001")
    assert refusal.returncode != 0 and "spec.replicas" in refusal.stderr and "10000" in refusal.stderr
    space.must("scale", "llm/scaled", "--replicas=0")
    assert json.loads(space.must("get", "--raw", path))["spec"].get("replicas", 0) == 0


def test_the_name_of_its_service_cannot_change(space: Space):
    body = space.create("named", {"service.name": "first"})
    path = ("patch", "llm", body["metadata"]["name"], "--dry-run=server", "--type=merge", "-p")
    for name in ('"second"', "null"):
        refusal = space.kubectl(*path, f'{{"spec":{{"service":{{"name":{name}}}}}}}')
        assert refusal.returncode != 0
        assert "spec.service.name: " in refusal.stderr and "create a second LLMService" in refusal.stderr
    space.must(*path, '{"spec":{"service":{"port":8080},"drain":{"onExpiry":"Hold"}}}')


def test_a_service_name_that_says_what_was_so_anyway_may_come_and_go(space: Space):
    space.create("same")
    path = ("patch", "llm", "same", "--type=merge", "-p")
    assert space.kubectl(*path, '{"spec":{"service":{"name":"other"}}}').returncode != 0
    space.must(*path, '{"spec":{"service":{"name":"same"}}}')
    space.must(*path, '{"spec":{"service":null}}')


EMPTIED = {"rollout": {"maxSurge": 2}, "probes": {"readiness": {"path": "/r"}}, "drain.grace": {"safetySeconds": 9}}


def server_side(space: Space, name: str, edits: Object) -> subprocess.CompletedProcess[str]:
    body = manifest({"replicas": 0, **edits}, name)
    return space.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(body))


def test_a_part_that_becomes_empty_is_taken_by_server_side_apply_and_the_same_file_stays_the_same_revision(
    space: Space,
):
    """The API server makes null of `{}` over earlier keys, and `{}` of it again when the same file comes once more."""
    first = server_side(space, "emptied", EMPTIED)
    assert first.returncode == 0, first.stderr
    sources = []
    for _ in range(3):
        again = server_side(space, "emptied", {part: {} for part in EMPTIED})
        assert again.returncode == 0, again.stderr
        spec = space.get("emptied")["spec"]
        assert not spec["rollout"] and not spec["probes"] and not spec["drain"]["grace"]
        assert LLMServiceSpec.parse(spec) == LLMServiceSpec.parse(edited(SPEC, {"replicas": 0}))
        sources.append(revision.source(spec))
    kept = Deployment("emptied-1", "u", "1", 1, sources[0], 0.0)
    assert all(revision.find([kept], source) == kept for source in sources)
    # A null that the user wrote in the place of a value is named.
    refusal = server_side(space, "emptied", {"rollout": {"maxSurge": None}})
    assert refusal.returncode != 0 and "spec.rollout.maxSurge" in refusal.stderr


STATUS = LLMServiceStatus(
    observed_generation=1,
    phase=Phase.ROLLING,
    message="1 of 3 pods is of the new revision; waits for 3 requests of chat-a-x",
    replicas=3,
    selector="tidegate.dev/service=chat,tidegate.dev/state notin (draining,drained)",
    serving=3,
    updated=1,
    draining=1,
    target_revision="chat-5c9f2b7d1e",
    revisions=(RevisionStatus(name="chat-5c9f2b7d1e", replicas=1, serving=1, draining=0),),
    pods=(
        PodStatus(
            name="chat-a-x",
            state=PodState.DRAINING,
            reason=DrainReason.ROLLOUT,
            since="2026-11-29T20:00:00Z",
            deadline="2026-11-29T20:30:00Z",
            in_flight=3,
            oldest_seconds=41,
            observed_at="2026-11-29T20:00:05Z",
        ),
    ),
    grace_period=GracePeriod(
        seconds=140, terms=(GraceTerm(name="propagation", seconds=5, source=TermSource.DECLARED),)
    ),
    rollout=RolloutStatus(started_at="2026-11-29T19:59:00Z", seconds=62, bound_seconds=290, cut=2),
    outcomes=(OutcomeStatus(pod="chat-a-y", outcome=Outcome.EXPIRED, seconds=1800, cut=2, oldest_cut_seconds=1790),),
    conditions=(
        Condition(
            type=ConditionType.READY,
            status=ConditionStatus.TRUE,
            observed_generation=1,
            last_transition_time="2026-11-29T20:00:00Z",
            reason=Reason.ROLLING_OUT,
            message="3 of 3 serve",
        ),
    ),
)


def write_status(space: Space, name: str, status: Object) -> Object:
    patch = json.dumps({"status": status})
    return space.read("patch", "llm", name, "--subresource=status", "--type=merge", "-p", patch)


def test_a_status_is_stored_as_it_was_written(space: Space):
    space.create("told")
    assert write_status(space, "told", STATUS.document())["status"] == STATUS.document()
    unknown = {"rollout": {"finishedAt": None}, "phase": "AWordOfALaterVersion"}
    assert write_status(space, "told", unknown)["status"]["phase"] == "AWordOfALaterVersion"


def test_only_the_status_subresource_writes_status(space: Space):
    body = space.create("mute")
    patch = json.dumps({"status": {"message": "from outside"}})
    after = space.read("patch", "llm", body["metadata"]["name"], "--type=merge", "-p", patch)
    assert after.get("status", {}).get("message") != "from outside"


def test_kubectl_get_shows_the_columns(space: Space):
    space.create("shown")
    header, row, status = columns_of_one_moment(space, "shown")
    assert header == ["NAME", "PHASE", "SERVING", "UPDATED", "DRAINING", "REVISION", "AGE", "GRACE", "CUT", "MESSAGE"]
    shown = dict(zip(header, row, strict=False))
    assert {name: shown[name] for name in ("PHASE", "SERVING", "UPDATED", "DRAINING", "REVISION", "GRACE", "CUT")} == {
        "PHASE": status["phase"],
        "SERVING": str(status["serving"]),
        "UPDATED": str(status["updated"]),
        "DRAINING": str(status["draining"]),
        "REVISION": status["targetRevision"],
        "GRACE": str(status["gracePeriod"]["seconds"]),
        "CUT": str(status["rollout"]["cut"]),
    }
    assert " ".join(row[9:]) == status["message"]
    narrow = space.must("get", "llm", "shown").splitlines()[0].split()
    assert narrow == header[:7]


def columns_of_one_moment(space: Space, name: str) -> tuple[list[str], list[str], Object]:
    """Header, row and the status they show; an operator may write between two reads, then they are read again."""

    def shown() -> tuple[list[str], list[str], Object] | None:
        before = write_status(space, name, STATUS.document())
        header, row = space.must("get", "llm", name, "-o", "wide").splitlines()
        after = space.get(name)
        still = before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]
        return (header.split(), row.split(), after["status"]) if still else None

    return eventually("the status stands still for the time of two reads", shown)

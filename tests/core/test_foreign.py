"""Applications with a drain endpoint of their own: what is rendered for them, said of them, and decided about them."""

from dataclasses import replace
from typing import Any

import pytest

from core.stories import (
    BUDGET,
    NOW,
    OWNER,
    container,
    draining,
    only,
    raw_spec,
    record,
    says,
    serving,
    several,
    spec,
    story,
    told,
    unready,
)  # fmt: skip
from tidegate.api import names
from tidegate.api.foreign import Foreign, Method
from tidegate.core.drain_time.grace import grace_period
from tidegate.core.planner import actions as a
from tidegate.core.planner import revision
from tidegate.core.planner.plan import plan
from tidegate.core.render import objects, validation
from tidegate.core.report.status import status
from tidegate.core.state.snapshot import Pod, Reading, Snapshot, Trouble

GET = {"method": "GET", "path": "/internal/drain", "answersWhenOver": True}
COUNT = {"path": "/internal/stats", "pointer": "/active"}
HEADER = {"name": "X-Drain-Token", "secretKeyRef": {"name": "my-app", "key": "drain"}}
POST = GET | {"method": "POST"}
COUNTED = {"method": "POST", "path": "/internal/drain", "count": COUNT}
LITELLM = {"method": "GET", "path": "/health/drain", "answersWhenOver": True}


def own(foreign: dict[str, Any] = GET, port: int | str = "admin", **changes: Any) -> dict[str, Any]:
    """Changes of the usual spec to one with such an endpoint; `drain` and the rest may be changed too."""
    drain = {"native": {"port": port, "foreign": foreign}} | changes.pop("drain", {})
    return {"drain": drain, **changes}


def one(**fields: Any) -> dict[str, Any]:
    return {"template": {"spec": {"containers": [container(**fields)]}}}


def pod_template(**changes: Any) -> dict[str, Any]:
    read = spec(**changes)
    held = objects.Revision("5c9f2b7d1e", revision.source(raw_spec(**changes)), grace_period(read), "prestop-key")
    return objects.pod_template(OWNER, read, held)


def server(**changes: Any) -> dict[str, Any]:
    return next(c for c in pod_template(**changes)["spec"]["containers"] if c["name"] == "server")


# -- the pod


def test_a_blocking_get_without_a_header_is_the_hook_itself():
    sidecar = {"name": "logs", "image": "logs:1"}
    changes = own(template={"spec": {"containers": [container(), sidecar]}})
    hooks = [c["lifecycle"]["preStop"] for c in pod_template(**changes)["spec"]["containers"]]
    assert hooks == [{"httpGet": {"path": "/internal/drain", "port": 9901}}] * 2


@pytest.mark.parametrize(
    "foreign",
    [POST, GET | {"header": HEADER}, GET | {"answersWhenOver": False, "count": COUNT}, COUNTED],
    ids=["a POST", "a header", "a GET that answers at once", "a POST that answers at once"],
)
def test_any_other_endpoint_leaves_a_sleep_for_propagation_and_drain(foreign: dict[str, Any]):
    drain = {"propagationSeconds": 6, "grace": {"initialSeconds": 40, "teardownSeconds": 7, "safetySeconds": 3}}
    hook = server(**own(foreign, drain=drain | {"native": {"foreign": foreign}}))["lifecycle"]["preStop"]
    assert hook == {"sleep": {"seconds": 46}}


def test_the_sleep_fits_into_a_grace_period_that_was_capped():
    read = spec(**own(POST))
    grace = read.drain.grace.model_copy(update={"initial_seconds": 5000})
    capped = read.model_copy(update={"drain": read.drain.model_copy(update={"grace": grace})})
    held = objects.Revision("h", "{}", grace_period(capped), "")
    (made,) = objects.pod_template(OWNER, capped, held)["spec"]["containers"]
    assert made["lifecycle"]["preStop"]["sleep"]["seconds"] == grace_period(capped).seconds == 600


def test_nothing_of_the_contract_is_put_into_the_pod():
    made = pod_template(**own())
    assert "volumes" not in made["spec"]
    (c,) = made["spec"]["containers"]
    assert "env" not in c and "volumeMounts" not in c
    assert "prestop-key" not in repr(made)
    # The policies read these, whoever drains.
    assert made["metadata"]["annotations"] == {names.CONTAINER: "server"}
    assert made["metadata"]["labels"][names.STATE] == "serving"


def test_without_a_word_of_the_user_only_the_request_port_is_probed_and_nothing_kills():
    made = server(**own())
    assert made["startupProbe"]["tcpSocket"] == made["readinessProbe"]["tcpSocket"] == {"port": 8000}
    assert made["startupProbe"]["failureThreshold"] * made["startupProbe"]["periodSeconds"] == 1800
    assert "livenessProbe" not in made
    assert "httpGet" not in repr([v for k, v in made.items() if k.endswith("Probe")])


def test_probes_that_the_user_names_are_rendered_and_what_is_absent_is_the_request_port():
    probes = {
        "startup": {"budgetSeconds": 60}, "readiness": {"path": "/ready", "periodSeconds": 3},
        "liveness": {"port": "admin", "terminationGracePeriodSeconds": 20},
    }  # fmt: skip
    made = server(**own(probes=probes))
    assert made["startupProbe"]["tcpSocket"] == {"port": 8000}
    assert made["startupProbe"]["failureThreshold"] == 60
    assert made["readinessProbe"]["httpGet"] == {"path": "/ready", "port": 8000}
    assert made["readinessProbe"]["periodSeconds"] == 3
    assert made["livenessProbe"]["tcpSocket"] == {"port": "admin"}
    assert made["livenessProbe"]["terminationGracePeriodSeconds"] == 20


def test_a_probe_in_the_template_itself_wins():
    mine = {"httpGet": {"path": "/up", "port": "http"}}
    made = server(**own(**one(startupProbe=mine, readinessProbe=mine)))
    assert made["startupProbe"] == made["readinessProbe"] == mine


def test_the_endpoint_makes_a_revision_and_the_digest_does_not_hang_on_the_grace_period():
    sources = {revision.source(raw_spec(**changes)) for changes in ({}, own(), own(POST), own(COUNTED))}
    assert len(sources) == 4
    longer = own(POST, drain={"native": {"port": "admin", "foreign": POST}, "grace": {"initialSeconds": 60}})
    digests = [objects.digest(OWNER, spec(**changes), "v1") for changes in (own(POST), longer, own(COUNTED))]
    assert digests[0] == digests[1], "the sleep is compared as part of the grace period"
    assert objects.digest(OWNER, spec(**own()), "v1") != digests[0] != objects.digest(OWNER, spec(), "v1")


def test_what_a_revision_speaks_is_read_from_its_source():
    found = revision.foreign_endpoint(revision.source(raw_spec(**own(COUNTED))))
    assert found is not None
    assert (found[0].method, found[0].path, found[1]) == (Method.POST, "/internal/drain", 9901)
    assert found[0].count is not None and found[0].count.pointer == "/active"
    assert revision.foreign_endpoint(revision.source(raw_spec())) is None
    assert revision.foreign_endpoint('{"foreign": 1}') is None
    assert revision.foreign_endpoint('not JSON "foreign"') is None
    named_so = one(env=[{"name": "foreign", "value": "x"}])
    assert revision.foreign_endpoint(revision.source(raw_spec(**named_so))) is None


# -- templates that cannot work

FIRST = "spec.template.spec.containers[0]"


def probed(path: str, port: int | str = "admin", name: str = "livenessProbe") -> dict[str, Any]:
    return one(**{name: {"httpGet": {"path": path, "port": port}}})


@pytest.mark.parametrize(
    ("bad", "good", "field", "remedy"),
    [
        (
            own(LITELLM, "http", probes={"liveness": {"path": "/health/liveliness"}}),
            own(LITELLM, "http", probes={"liveness": {"port": "http"}}),
            "spec.probes.liveness.path",
            "remove the path (in a template, use tcpSocket) to probe only the port",
        ),
        (
            own(LITELLM, "http", probes={"liveness": {"path": "/health/liveness"}}),
            own(LITELLM, "http", probes={"readiness": {"path": "/health/readiness"}}),
            "spec.probes.liveness.path",
            "or remove the liveness probe",
        ),
        (
            own(LITELLM, **probed("/health/liveliness")),
            own(LITELLM, **probed("/health/liveliness", 4001)),
            f"{FIRST}.livenessProbe.httpGet.path",
            "remove the liveness probe",
        ),
        (
            own(LITELLM | {"path": "/llm/health/drain?x=1"}, **probed("/llm/health/liveness?y=2")),
            own(LITELLM | {"path": "/llm/health/drain?x=1"}, **probed("/health/liveness")),
            f"{FIRST}.livenessProbe.httpGet.path",
            "remove the liveness probe",
        ),
        (
            own(LITELLM, **probed("/health/liveliness")),
            own(GET, **probed("/health/liveliness")),
            f"{FIRST}.livenessProbe.httpGet.path",
            "remove the liveness probe",
        ),
        (
            own(GET, "http", probes={"readiness": {"path": "/internal/drain"}}),
            own(GET, "http", probes={"readiness": {"path": "/internal/drained"}}),
            "spec.probes.readiness.path",
            "probe another path",
        ),
        (
            own(POST, **probed("/internal/drain?force=1", 9901, "startupProbe")),
            own(POST, **probed("/internal/drain?force=1", 8000, "startupProbe")),
            f"{FIRST}.startupProbe.httpGet.path",
            "probe another path",
        ),
    ],
    ids=["LiteLLM's", "its other name", "in the template", "a prefix", "only LiteLLM's", "readiness", "startup"],
)
def test_a_probe_that_would_kill_or_drain_the_pod_is_a_conflict(
    bad: dict[str, Any], good: dict[str, Any], field: str, remedy: str
):
    found = validation.findings(spec(**bad))
    assert [f.field for f in found] == [field]
    assert remedy in found[0].remedy
    assert validation.findings(spec(**good)) == ()


def test_the_trap_is_named_with_its_owner():
    (found,) = validation.findings(spec(**own(LITELLM, "http", probes={"liveness": {"path": "/health/liveliness"}})))
    assert "LiteLLM answers it with 503 after /health/drain" in found.message
    assert "restart the container during its drain" in found.message


def test_without_a_foreign_endpoint_none_of_this_is_a_conflict():
    assert validation.findings(spec(**probed("/health/liveliness"))) == ()


# -- conditions


def conditions(s: Snapshot) -> dict[str, tuple[str, str]]:
    """Reason and message of what is true beside the three."""
    found = status(plan(s)).document()["conditions"]
    return {c["type"]: (c["reason"], c["message"]) for c in found[3:]}


def settled(foreign: dict[str, Any], **changes: Any) -> dict[str, tuple[str, str]]:
    return conditions(story("v1", *several("v1", 3), spec=own(foreign, **changes)))


@pytest.mark.parametrize(
    ("foreign", "why"),
    [
        (POST, "cannot call POST /internal/drain,"),
        (GET | {"header": HEADER}, "cannot call GET /internal/drain with a header from a Secret,"),
        (
            GET | {"answersWhenOver": False, "count": COUNT},
            "cannot call GET /internal/drain and wait, as it answers at once,",
        ),
    ],
)
def test_a_hook_that_can_only_sleep_is_said_with_what_would_help(foreign: dict[str, Any], why: str):
    reason, message = settled(foreign)["InPodLockPartial"]
    assert reason == "PreStopSleeps"
    assert why in message and "preStop sleeps for 125 s" in message
    assert "Offer a GET without header that answers when the drain is over" in message
    assert "set spec.drain.grace.initialSeconds" in message


def test_a_hook_that_drains_is_no_partial_lock():
    assert "InPodLockPartial" not in settled(GET)
    assert "InPodLockPartial" not in settled(GET | {"count": COUNT})


def test_a_readiness_that_is_a_port_knows_of_no_drain():
    reason, message = settled(GET)["ReadinessNotDrainAware"]
    assert reason == "ReadinessByPort"
    assert "Set spec.probes.readiness.path" in message
    assert "ReadinessNotDrainAware" in settled(GET, probes={"readiness": {"port": "http"}})
    assert "ReadinessNotDrainAware" in settled(GET, **one(readinessProbe={"tcpSocket": {"port": "http"}}))


def test_whether_a_path_knows_of_drains_only_the_application_knows():
    assert "ReadinessNotDrainAware" not in settled(GET, probes={"readiness": {"path": "/health/readiness"}})
    assert "ReadinessNotDrainAware" not in settled(GET, **probed("/ready", "http", "readinessProbe"))


# -- decisions. A pod has the endpoint of its own revision, whatever the next one speaks.


def foreign_pod(pod: Pod, foreign: dict[str, Any] = GET, run: str = "0/then/abc") -> Pod:
    held = replace(pod.container, run=run)
    return replace(pod, foreign=Foreign.parse_at("foreign", foreign), container=held)


def silent(pod: Pod, **fields: Any) -> Reading:
    """What is known of a pod that cannot count."""
    return says(pod, **({"in_flight": None, "instance": pod.container.run} | fields))


def test_a_pod_that_cannot_count_goes_last_and_its_count_stays_unknown():
    pods = [foreign_pod(p) for p in several("v1", 3)]
    busy = says(pods[0], in_flight=9)
    heard = {"v1-1": busy, "v1-2": silent(pods[1]), "v1-3": silent(pods[2])}
    s = story("v2", *pods, serving("v2-1"), readings=heard)
    assert told(s) == ["withdraw v1-1 (Rollout)"]
    heard["v1-1"] = silent(pods[0])
    s = story("v2", *pods, serving("v2-1"), readings=heard)
    assert told(s) == ["withdraw v1-1 (Rollout)"], "all unknown: by name"


def test_the_record_names_the_start_of_the_container_though_nobody_has_answered():
    pods = [foreign_pod(p) for p in several("v1", 3)]
    quiet = dict.fromkeys(("v1-1", "v1-2", "v1-3", "v2-1"))
    why = {names.DRAIN_UNREACHABLE: "a mesh"}
    troubles = {p.uid: Trouble(NOW, "refused", "connection refused") for p in pods}
    s = story(
        "v2", *pods, serving("v2-1"), readings=quiet, annotations=why, troubles=troubles
    )  # fmt: skip
    assert only(s, a.Withdraw).record.instance == "0/then/abc"


def test_orders_and_questions_carry_the_endpoint_and_the_start():
    going = foreign_pod(draining("v1-1"), COUNTED)
    asked = foreign_pod(serving("v1-2"), GET, "3/later/x")
    plain = serving("v1-3")
    quiet = {"v1-2": None, "v1-3": None}
    decided = plan(story("v2", going, asked, plain, *several("v2", 2), readings=quiet))
    (order,) = decided.orders
    assert (order.foreign, order.run) == (going.foreign, "0/then/abc")
    questions = {q.uid: (q.foreign, q.run) for q in decided.questions}
    assert questions == {"uid-v1-2": (asked.foreign, "3/later/x"), "uid-v1-3": (None, "")}


def ended(pod: Pod, reading: Reading, at: float = 60) -> tuple[str, int | None]:
    known = {pod.name: reading}
    s = story("v2", pod, *several("v1", 3)[1:], serving("v2-1"), readings=known)
    outcome = only(s, a.MarkDrained).outcome
    return outcome.outcome, outcome.cut


def held(since: float = -60) -> Pod:
    mine = replace(record("v1-1", since=since), instance="0/then/abc")
    return foreign_pod(draining("v1-1", drain=mine))


def test_the_end_of_a_drain_in_the_same_start_is_drained_and_in_another_vanished():
    pod = held()
    assert ended(pod, silent(pod, state="sealed", in_flight=0)) == ("Drained", 0)
    again = replace(pod, container=replace(pod.container, run="1/later/def"))
    assert ended(again, silent(again, state="sealed", in_flight=0)) == ("Vanished", None)


def test_a_budget_that_is_spent_counts_what_was_counted_and_nothing_else():
    pod = held(-BUDGET - 3)
    assert ended(pod, silent(pod)) == ("Expired", None)
    assert ended(pod, silent(pod, in_flight=4)) == ("Expired", 4)


def test_a_pod_that_cannot_be_undone_is_replaced_and_not_waited_for():
    """A rollback in the middle: the contract's pod would be asked to serve again."""
    pods = [*several("v1", 3)[1:], unready("v2-1")]
    back = story("v1", draining("v1-1"), *pods, counts={"v1": 3, "v2": 1})
    assert [order.undo for order in plan(back).orders] == [True]
    mine = story("v1", held(), *pods, counts={"v1": 3, "v2": 1})
    assert [order.undo for order in plan(mine).orders] == [False]


def test_what_is_unknown_is_said_so_and_never_shown_as_0():
    pod = held()
    document = status(plan(story("v2", pod, *several("v1", 3)[1:], serving("v2-1"),
        readings={"v1-1": silent(pod)}))).document()  # fmt: skip
    (row,) = document["pods"]
    assert "inFlight" not in row and "observedAt" in row
    assert "requests in flight unknown (its drain endpoint does not report them)" in document["message"]


@pytest.mark.parametrize(
    ("foreign", "call"),
    [(GET, "accepts a connection"), (COUNTED, "answers GET /internal/stats"), (None, "answers GET /drain")],
)
def test_an_endpoint_that_nobody_reaches_is_named(foreign: dict[str, Any] | None, call: str):
    pods = [p if foreign is None else foreign_pod(p, foreign) for p in several("v1", 3)]
    troubles = {p.uid: Trouble(NOW, "timeout", "no connection within 3 s") for p in (*pods, serving("v2-1"))}
    quiet = dict.fromkeys(("v1-1", "v1-2", "v1-3", "v2-1"))
    s = story(
        "v2", *pods, serving("v2-1"), readings=quiet, troubles=troubles
    )  # fmt: skip
    _, message = conditions(s)["DrainEndpointUnreachable"]
    assert f"No pod is drained, because none {call}. Pod v1-1 at 192.0.2.1:9901: no connection within 3 s." in message

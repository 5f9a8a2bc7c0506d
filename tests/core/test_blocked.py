"""Why nothing happens: every reason has a story, nothing waits without one, and no condition is made without one."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from core.random_snapshots import snapshots
from core.stories import (
    BUDGET,
    NOW,
    container,
    crashing,
    deployment,
    drained,
    draining,
    going,
    homeless,
    record,
    says,
    serving,
    several,
    starting,
    story,
    tag_of,
    unready,
)
from tidegate.api.conditions import BlockedReason, ConditionType, PodState, Reason
from tidegate.api.resource import LLMServiceSpec
from tidegate.core.drain_time.drain_times import Counted, DrainTimes
from tidegate.core.drain_time.histogram import Sample
from tidegate.core.planner import revision
from tidegate.core.planner.plan import Plan, plan
from tidegate.core.report import blocked as words
from tidegate.core.report import conflicts
from tidegate.core.report.conditions import STALLING, conditions
from tidegate.core.state import times
from tidegate.core.state.snapshot import Conflict, Snapshot, Trouble, Unhooked

OLD = several("v1", 3)
NEW = serving("v2-1")
DEAF = {p.uid: Trouble(NOW - 1, "timeout", "connected, but no answer in time") for p in (*OLD, NEW)}
SILENT = {p.name: None for p in (*OLD, NEW)}
TAKEN = Conflict("Service", "chat", conflicts.owned("Service", "chat", "Helm"))
PREDECESSOR = Conflict("Service", "chat", conflicts.predecessor("Service", "chat", "chat"), temporary=True)
HOLD = {"drain": {"onExpiry": "Hold"}}
LATE = draining("v1-1", drain=record("v1-1", since=-BUDGET - 1))
HELD = draining("v1-1", drain=record("v1-1", since=-BUDGET - 9, budget=None))
STOLEN = unready("v1-1", unready_since=NOW - 30)
LOCKS = {"locks_missing": ("tidegate-pod-delete",)}
STOOD = {
    "targetRevision": "chat-v1",
    "rollout": {"startedAt": times.text(NOW - 900), "finishedAt": times.text(NOW - 500)},
}
BAD = {"template": {"spec": {"hostNetwork": True, "containers": [container("v2")]}}}

B = BlockedReason
STORIES = {
    B.TEMPLATE_CONFLICT: story("v2", *OLD, spec=BAD),
    B.INVALID_SPEC: story("v2", *OLD, rejected=(("spec.template", "no"),)),
    B.WRITE_REFUSED: story("v1", *OLD, refused="pods is forbidden"),
    B.NAME_CONFLICT: story("v1", conflicts=(TAKEN,)),
    B.NO_ANSWER: story("v2", *OLD, NEW, readings=SILENT, troubles=DEAF),
    B.BUDGET_HELD: story("v2", HELD, *OLD[1:], NEW, spec=HOLD),
    B.NEW_REVISION_FAILED: story("v2", *OLD, crashing("v2-1")),
    B.PODS_REFUSED: story("v2", *OLD, deployments=[deployment("v1", 3), deployment("v2", 1, failure="exceeded quota")]),
    B.POD_STUCK_TERMINATING: story(
        "v2", replace(going(OLD[0]), node="node-1", terminates_by=NOW - 31), *OLD[1:], homeless("v2-1"),
        counts={"v1": 2}, spec={"rollout": {"maxSurge": 0, "maxUnavailable": 1}},
    ),
    B.NO_SPARE_CAPACITY: story("v2", *OLD, homeless("v2-1")),
    B.PROGRESS_DEADLINE_EXCEEDED: story("v2", *OLD, unready("v2-1", created=NOW - 2401)),
    B.PREDECESSOR_TERMINATING: story("v1", conflicts=(PREDECESSOR,)),
    B.PAUSED: story("v2", *OLD, spec={"rollout": {"paused": True}}),
    B.DRAINED_BY_OTHERS: story(
        "v1", STOLEN, *OLD[1:], readings={"v1-1": says(STOLEN, "draining", drain_id="not ours")}
    ),
    B.BUDGET_SPENT: story("v2", LATE, *OLD[1:], NEW),
    B.DRAINING: story("v2", draining("v1-1"), *OLD[1:], NEW),
    B.POD_NOT_READY: story("v2", *OLD, starting("v2-1")),
    B.POD_TERMINATING: story(
        "v2", going(OLD[0]), *OLD[1:], counts={"v1": 2, "v2": 0}, spec={"rollout": {"maxSurge": 0, "maxUnavailable": 1}}
    ),
    B.POD_DRAINED: story("v2", drained("v1-1"), *OLD[1:], NEW),
    B.MIN_READY_SECONDS: story(
        "v2", *OLD, serving("v2-1", ready_since=NOW - 5), spec={"rollout": {"minReadySeconds": 20}}
    ),
    B.LEAST_SERVING: story("v2", *OLD, starting("v2-1")),
    B.RECOVERING_FROM_LOSS: story(
        "v2", *OLD[:2], going(OLD[2]), counts={"v1": 3, "v2": 1}, spec={"rollout": {"maxUnavailable": 2}}
    ),
    B.POD_NOT_CREATED: story("v2", *OLD, counts={"v2": 1}),
    B.FLAPPING: story("v2", *OLD[:2], unready("v1-3", unready_since=NOW - 3), NEW),
    B.ROOM_FOR_UNSCHEDULABLE: story(
        "v2", going(OLD[0]), *OLD[1:], homeless("v2-1"), spec={"rollout": {"whenNoCapacity": "DrainFirst"}}
    ),
    B.ONE_AT_A_TIME: story(
        "v2", draining("v1-1"), *OLD[1:], *several("v2", 2), spec={"rollout": {"maxSurge": 2}}, **LOCKS
    ),
    B.NO_FREE_SLOT: story("v2", *OLD[:2], unready("v1-3"), starting("v2-1")),
}  # fmt: skip


@pytest.mark.parametrize("reason", BlockedReason)
def test_every_reason_has_a_story_that_produces_it_and_words(reason: BlockedReason):
    decided = plan(STORIES[reason])
    found = decided.blocked_by(reason)
    assert found is not None
    told = words.stalled(decided.view, found) if reason in STALLING else words.waiting(decided.view, found)
    # `Paused` and `Draining` word the first, and a predecessor is told of as what stops.
    elsewhere = (BlockedReason.PAUSED, BlockedReason.PREDECESSOR_TERMINATING)
    assert told and (reason in elsewhere or told != words.NEXT)
    if reason in STALLING:
        without = replace(decided, blocked=tuple(b for b in decided.blocked if b.reason is not reason))
        assert STALLING[reason] in reasons(decided, ConditionType.STALLED)
        assert STALLING[reason] not in reasons(without, ConditionType.STALLED)


def reasons(decided: Plan, kind: ConditionType) -> set[Reason]:
    """The reasons of conditions of this type."""
    return {c.reason for c in conditions(decided) if c.type is kind}


HTTP = {"name": "http", "containerPort": 9000}
VLLM = {"name": "server", "image": "app:v1", "args": ["--model", "m"], "ports": [HTTP]}
PROBED = container("v1", readinessProbe={"tcpSocket": {"port": 8000}})
BESIDE = {"name": "metrics", "image": "m", "ports": [{"name": "prom", "containerPort": 9100}]}


def behind_gateway(*containers: dict[str, Any]) -> Snapshot:
    """A new service of vLLM behind a gateway."""
    raw = {
        "replicas": 3, "port": "http", "engine": "VLLM", "drain": {"mode": "Gateway"},
        "template": {"spec": {"containers": list(containers)}},
    }  # fmt: skip
    return replace(story("v1"), raw_spec=raw, spec=LLMServiceSpec.parse(raw))


def own_endpoint(method: str) -> Snapshot:
    """A new service with a drain endpoint of its own."""
    endpoint = {"method": method, "path": "/internal/drain", "answersWhenOver": True}
    return story("v1", spec={"drain": {"native": {"port": "admin", "foreign": endpoint}}})


def cut_by_budget() -> DrainTimes:
    """Drains of which every second one was cut when its budget was spent."""
    ends = [Counted(f"c-{n}", Sample(590.0, n % 2 == 0, NOW), None, n % 2 == 0) for n in range(6)]
    return DrainTimes().add(ends, {}, {}, standing=frozenset())


def whole(**fields: Any) -> Snapshot:
    """All is as it should be, but for `fields`."""
    return story("v1", *OLD, **fields)


R = Reason
CONDITIONS = {
    R.AS_DESIRED: whole(),
    R.ROLLING_OUT: story("v2", *OLD, starting("v2-1")),
    R.SCALING_OUT: story("v1", *OLD[:2]),
    R.SCALING_IN: story("v1", *several("v1", 4)),
    R.WAITING_FOR_REPLACEMENT: story("v1", *OLD[:2], unready("v1-3"), status=STOOD),
    R.DRAINING: STORIES[B.BUDGET_SPENT],
    R.TERMS_CHANGED: whole(deployments=[deployment("v1", 3, grace_seconds=77)]),
    R.CONTENT_SET_ASIDE: whole(drain_times_trouble=conflicts.drain_times_ignored("chat-drain-times", "it is not JSON")),
    R.DRAINS_CUT: whole(drain_times=cut_by_budget()),
    R.POLICIES_MISSING: whole(**LOCKS),
    R.RENDERED_BEFORE: whole(deployments=[deployment("v1", 3, rendered="older")]),
    R.OWN_READINESS_PROBE: whole(spec={"template": {"spec": {"containers": [PROBED]}}}),
    R.READINESS_BY_PORT: own_endpoint("GET"),
    R.PRE_STOP_SLEEPS: own_endpoint("POST"),
    R.PRE_STOP_ALTERED: story("v1", *OLD[:2], serving("v1-3", hooked=False)),
    R.CONTAINER_WITHOUT_PRE_STOP: story("v1", *several("v1", 3, unhooked=(Unhooked("istio-proxy", 5.0),))),
    R.SELECTOR_WITHOUT_STATE: whole(services_without_state=("front",)),
    R.SECOND_BUDGET: whole(budgets_beside=("of-the-chart",)),
    R.PORTS_BESIDE_GATEWAY: behind_gateway(VLLM, BESIDE),
    R.FLAGS_MISSING: behind_gateway(VLLM),
} | {STALLING[reason]: STORIES[reason] for reason in STALLING} | {R.PAUSED: STORIES[B.PAUSED]}  # fmt: skip


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_of_a_condition_has_a_story_that_produces_it(reason: Reason):
    found = [c for c in conditions(plan(CONDITIONS[reason])) if c.reason is reason]
    assert found
    assert all(c.message for c in found)


def test_the_stories_show_every_type_of_condition():
    shown = {c.type for s in (*CONDITIONS.values(), *STORIES.values()) for c in conditions(plan(s))}
    assert shown == set(ConditionType)


SETTINGS = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def as_wanted(s: Snapshot) -> bool:
    """Whether as many pods as are wanted serve, all of the wanted revision, and no other is there or asked for."""
    tag = tag_of(revision.source(s.raw_spec))
    alive = [p for p in s.pods if p.alive]
    mine = [p for p in alive if p.revision == tag and p.state == PodState.SERVING and p.ready]
    asked = {d.revision: d.replicas for d in s.deployments if d.replicas}
    return len(mine) == len(alive) == s.spec.replicas and asked == ({tag: len(mine)} if mine else {})


def under_way(decided: Plan) -> bool:
    """Whether anything is written, drained or asked."""
    return bool(decided.actions or decided.orders or decided.questions)


def test_whatever_is_not_as_wanted_is_under_way_or_says_why_not():
    waiting: set[BlockedReason] = set()

    @settings(SETTINGS, max_examples=700, derandomize=True, database=None)
    @given(snapshots())
    def check(s: Snapshot) -> None:
        decided = plan(s)
        if as_wanted(s) or under_way(decided):
            return
        assert decided.blocked
        waiting.add(decided.blocked[0].reason)

    check()
    # A generator that has gone blind must not pass for a proof.
    assert len(waiting) >= 6, waiting


@SETTINGS
@given(snapshots())
def test_no_condition_is_made_without_its_reason_in_the_plan(s: Snapshot):
    decided = plan(s)
    silent = replace(decided, blocked=(), remaining=None, notices=())
    assert [(c.type, c.reason) for c in conditions(silent)] == [
        (ConditionType.READY, Reason.AS_DESIRED),
        (ConditionType.RECONCILING, Reason.AS_DESIRED),
        (ConditionType.STALLED, Reason.AS_DESIRED),
    ]
    stalling = {STALLING[b.reason] for b in decided.blocked if b.reason in STALLING}
    assert reasons(decided, ConditionType.STALLED) <= stalling | {Reason.AS_DESIRED}
    told = {c.type for c in conditions(decided)} - {c.type for c in conditions(silent)}
    overdue = {ConditionType.DRAIN_OVERDUE} if {B.BUDGET_HELD, B.BUDGET_SPENT} & blocking(decided) else set()
    unheard = {ConditionType.DRAIN_ENDPOINT_UNREACHABLE} if B.NO_ANSWER in blocking(decided) else set()
    assert told == overdue | unheard | {n.type for n in decided.notices}


def blocking(decided: Plan) -> set[BlockedReason]:
    """The reasons of a plan."""
    return {b.reason for b in decided.blocked}


def test_a_condition_is_there_once_whatever_there_is_to_say():
    """The API server refuses a status that has a type twice: status.conditions is a map by type."""
    spec = {
        "drain": {"native": {"port": "admin", "foreign": {"method": "POST", "path": "/x", "answersWhenOver": True}}}
    }
    both = story("v1", *OLD[:2], serving("v1-3", hooked=False, unhooked=(Unhooked("istio-proxy"),)), spec=spec)
    found = [c.type for c in conditions(plan(both))]
    assert len(found) == len(set(found))
    assert reasons(plan(both), ConditionType.IN_POD_LOCK_PARTIAL) == {Reason.PRE_STOP_ALTERED}

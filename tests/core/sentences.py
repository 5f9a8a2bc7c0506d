"""All sentences for people, collected from stories: reasons, conditions, drains, new pods, terms, events, objects."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from core.stories import (
    BUDGET,
    NOW,
    container,
    crashing,
    drained,
    draining,
    going,
    homeless,
    record,
    says,
    serving,
    several,
    spec,
    starting,
    story,
    unready,
)
from core.test_blocked import CONDITIONS, OLD, STORIES
from core.test_gateway_pods import CONFLICTS
from core.test_template import CASES, unchecked
from tidegate.api.conditions import BlockedReason, ConditionType, DrainReason, Outcome, Reason
from tidegate.api.resource import LLMServiceSpec
from tidegate.api.status import LLMServiceStatus
from tidegate.core.drain_time.drain_term import TermInForce, drain_term
from tidegate.core.drain_time.grace import Term
from tidegate.core.drain_time.histogram import Histogram, Sample
from tidegate.core.drain_time.survival import estimate
from tidegate.core.planner.actions import EndCause, MarkDrained
from tidegate.core.planner.blocked import Blocked, Findings
from tidegate.core.planner.ends import End
from tidegate.core.planner.plan import plan
from tidegate.core.render import validation
from tidegate.core.report import blocked, conflicts, events, invalid, terms
from tidegate.core.report.conditions import STALLING, conditions
from tidegate.core.report.status import status
from tidegate.core.state.pods import Emptiness, NoWork
from tidegate.core.state.snapshot import OutcomeRecord, Reading, Snapshot, Trouble

REGENERATE: Final = "TIDEGATE_WRITE_SENTENCES"
COMMAND: Final = f"{REGENERATE}=1 .venv/bin/python -m pytest tests/core/test_sentences.py"
Row = tuple[str, str]


def of_blocked() -> Iterator[Row]:
    """Why nothing happens, by `BlockedReason`."""
    for reason in BlockedReason:
        decided = plan(STORIES[reason])
        found = decided.blocked_by(reason)
        assert found is not None
        said = blocked.stalled if reason in {*STALLING, BlockedReason.PREDECESSOR_TERMINATING} else blocked.waiting
        text = (blocked.overdue if reason is BlockedReason.BUDGET_SPENT else said)(decided.view, found)
        # It is told with what else goes on: see the conditions.
        assert (text == blocked.NEXT) is (reason is BlockedReason.PAUSED)
        if text != blocked.NEXT:
            yield reason, text


def of_findings() -> Iterator[Row]:
    """What a template must not hold."""
    specs = [spec(**bad) for bad, *_ in CASES.values()] + [LLMServiceSpec.parse(bad) for bad, *_ in CONFLICTS.values()]
    liveness = {"httpGet": {"path": "/health/liveliness", "port": 9901}}
    litellm = {
        "native": {"port": "admin", "foreign": {"method": "GET", "path": "/health/drain", "answersWhenOver": True}}
    }
    specs += [spec(drain=litellm, template={"spec": {"containers": [container("v1", livenessProbe=liveness)]}})]
    nameless = container("v1", ports=[{"name": "api", "containerPort": 8000}])
    bare = {"spec": {"containers": [nameless]}}
    specs += [unchecked(container="other"), unchecked(port="grpc"), unchecked(port="grpc", container="server")]
    specs += [unchecked(port="api", template=bare)]
    renamed = unchecked(port="api", template=bare)
    found = [one for each in specs for one in validation.findings(each)] + [validation.unroutable(renamed, spec())]
    shown = plan(story("v1")).view
    texts = {blocked.stalled(shown, Blocked(BlockedReason.TEMPLATE_CONFLICT, (), Findings((f,)))) for f in found if f}
    yield from (("TemplateConflict", text) for text in sorted(texts))


def of_conditions() -> Iterator[Row]:
    """Conditions that are True, or False with a reason of their own."""
    for reason in Reason:
        types: dict[str, list[str]] = {}
        for c in conditions(plan(CONDITIONS[reason])):
            if c.reason is reason:
                types.setdefault(c.message, []).append(f"{c.type}={c.true}")
        for message, held in types.items():
            yield f"{', '.join(held)}: {reason}", message


DEAF: Final = Trouble(NOW - 1, "timeout", "connected, but no answer in time")
HELD: Final = {"drain": {"onExpiry": "Hold"}}


def rolling(*pods, readings=None, **fields) -> Snapshot:
    """In the middle of a rollout from v1 to v2: these old pods, and one new one."""
    return story("v2", *pods, serving("v2-1"), readings=readings, **fields)


def of_drains() -> Iterator[Row]:
    """What a draining pod holds and when that ends, and what a held one needs."""
    pod = draining("v1-1")
    busy = {"v1-1": says(pod, in_flight=7, oldest_seconds=36.0)}
    held = draining("v1-1", drain=record("v1-1", since=-BUDGET - 9, budget=None))
    scaled = draining("v1-3", drain=record("v1-3", since=-BUDGET - 9, budget=None, reason="ScaleIn"))
    stories = {
        "requests": rolling(pod, *OLD[1:], readings=busy),
        "no answer yet": rolling(pod, *OLD[1:], readings={"v1-1": None}),
        "no answer": rolling(pod, *OLD[1:], readings={"v1-1": None}, troubles={pod.uid: DEAF}),
        "no answer any longer": rolling(
            pod, *OLD[1:], readings={"v1-1": says(pod, in_flight=3, at=NOW - 20)}, troubles={pod.uid: DEAF}
        ),
        "port unknown": rolling(replace(pod, contract_port=None), *OLD[1:], readings={"v1-1": None}),
        "no count": rolling(pod, *OLD[1:], readings={"v1-1": says(pod, in_flight=None)}),
        "several": story("v1", *(draining(f"v1-{n}") for n in range(5)), spec={"replicas": 0}),
        "without budget": rolling(draining("v1-1", drain=record("v1-1", budget=None)), *OLD[1:], spec=HELD),
        "held": rolling(held, *OLD[1:], readings={"v1-1": says(held)}, spec=HELD),
        "held, not to be undone": rolling(held, *OLD[1:], troubles={held.uid: DEAF}, spec=HELD),
        "held scale-in": story("v1", *OLD[:2], scaled, spec={"replicas": 2} | HELD),
        "undrained": story("v1", *OLD[:2], draining("v1-3", drain=record("v1-3", reason="ScaleIn"))),
        "drained": rolling(drained("v1-1"), *OLD[1:]),
    }
    for name, s in stories.items():
        yield name, str(status(plan(s)).message)


def of_new_pods() -> Iterator[Row]:
    """Why new pods are not there."""
    quick = {"rollout": {"progressDeadlineSeconds": 60}}
    steady = {"rollout": {"progressDeadlineSeconds": 60, "minReadySeconds": 20}}
    lost = {"rollout": {"maxSurge": 0, "maxUnavailable": 1}}
    stories = {
        "first pod": story("v1", starting("v1-1")),
        "crash at first": story("v1", crashing("v1-1", restarts=1)),
        "not scheduled yet": story("v1", homeless("v1-1")),
        "never scheduled": story("v2", *OLD[1:], replace(homeless("v2-1"), created=NOW - 99), spec={**quick, **lost}),
        "late": story("v2", *OLD, unready("v2-1", created=NOW - 99), spec=quick),
        "flapping": story("v2", *OLD, unready("v2-1", created=NOW - 99, unready_since=NOW - 2), spec=steady),
        "terminating": story("v2", going(OLD[0]), *OLD[1:], counts={"v1": 2, "v2": 0}, spec=lost),
        "port unknown": story(
            "v2", *(replace(p, contract_port=None) for p in (*OLD, serving("v2-1"))),
            readings={p.name: None for p in (*OLD, serving("v2-1"))},
        ),
    }  # fmt: skip
    for name, s in stories.items():
        yield name, str(status(plan(s)).message)


NO_CAUSE: Final = EndCause()


def ended(outcome: Outcome, cut: int | None, cause: EndCause = NO_CAUSE) -> str:
    """The Event of a drain that took 20 s."""
    told = OutcomeRecord(outcome, 20.0, cut, None, NOW, DrainReason.ROLLOUT)
    action = MarkDrained("v1-1", OLD[0].uid, "draining", None, told, cause)
    return events.drained(rolling(*OLD), action).message


def of_events() -> Iterator[Row]:
    """Events of what was done to pods and revisions."""
    s, pod = rolling(*OLD), OLD[0]
    yield "NewRevision", events.created("chat-v2", 1).message
    yield "NewRevision", events.created("chat-v2", 3).message
    yield "Draining", events.withdrawn(s, pod.uid, pod.name, DrainReason.ROLLOUT).message
    yield "Draining", events.withdrawn(replace(s, readings={}), pod.uid, pod.name, DrainReason.SCALE_IN).message
    yield "Undrained", events.restored(pod.name).message
    yield "Drained", ended(Outcome.DRAINED, 0)
    yield "Drained", ended(Outcome.EXPIRED, 1)
    yield "Drained", ended(Outcome.EXPIRED, None, EndCause(unanswered=DEAF.detail))
    yield "Drained", ended(Outcome.VANISHED, None)
    for proof in Emptiness:
        yield "Drained", ended(Outcome.NO_WORK, 0, EndCause(NoWork(proof)))
    yield "Drained", ended(Outcome.NO_WORK, 0, EndCause(NoWork(Emptiness.NOTHING_RUNS, exit_code=7)))
    released = replace(s, pods=(replace(pod, release="on my own head"), *s.pods[1:]))
    told = OutcomeRecord(Outcome.RELEASED, 20.0, None, None, NOW, DrainReason.ROLLOUT)
    yield "Drained", events.drained(released, MarkDrained(pod.name, pod.uid, "draining", None, told)).message
    yield from ((event.reason, event.message) for event in _taken_away())
    yield from ((event.reason, event.message) for event in _between_statuses())


_UNCOUNTED: Final = {"startedAt": "2027-01-15T08:00:00Z", "drained": 3}


def _taken_away() -> Iterator[events.Event]:
    """Of pods that somebody else took away."""
    evicted = "EvictionByEvictionAPI"
    for reason, ours, disruption in (
        (DrainReason.NODE_DRAIN, False, evicted),
        (DrainReason.DELETED, False, ""),
        (DrainReason.ROLLOUT, True, evicted),
        (DrainReason.ROLLOUT, True, ""),
    ):
        for kind, cut, held in ((Outcome.DRAINED, 0, None), (Outcome.EXPIRED, 2, None), (Outcome.VANISHED, None, 3)):
            told = OutcomeRecord(kind, 20.0, cut, None, NOW, reason, in_flight=held)
            yield events.ended(End("v1-1", told, ours, disruption, None if held is None else 4.0))
    unheard = OutcomeRecord(Outcome.VANISHED, 20.0, None, None, NOW, DrainReason.NODE_DRAIN)
    yield events.ended(End("v1-1", unheard))


def _between_statuses() -> Iterator[events.Event]:
    listed = {"pods": [{"name": "v1-9", "state": "draining", "since": "2027-01-15T08:00:00Z"}]}
    gone = rolling(*OLD, status=listed)
    lost = drained("v1-9", cut=None)
    restarted = rolling(*OLD, replace(lost, outcome=replace(lost.outcome, outcome=Outcome.VANISHED)))
    released = story("v1", *OLD[:2], replace(going(OLD[2]), release="on my own head"))
    others = STORIES[BlockedReason.DRAINED_BY_OTHERS]
    sealed = replace(others, readings={OLD[0].uid: replace(_first(others), state="sealed")})
    first = story("v1", *OLD)
    begun = {"targetRevision": "chat-v2", "rollout": {"startedAt": "2027-01-15T08:00:00Z", "drained": 3, "cut": 1}}
    complete = story("v2", *several("v2", 3), status=begun)
    none_known = story("v2", *several("v2", 3), status={**begun, "rollout": {**_UNCOUNTED, "uncounted": 1}})
    some_known = {**_UNCOUNTED, "uncounted": 2, "cutAtLeast": 4}
    less_known = story("v2", *several("v2", 3), status={**begun, "rollout": some_known})
    quiet = {*ConditionType}
    for s in (gone, restarted, released, others, sealed, first, complete, none_known, less_known):
        for event in events.news(s, status(plan(s))):
            if event.reason not in quiet and event.reason not in {*Reason}:
                yield event


def _first(s: Snapshot) -> Reading:
    return s.readings[OLD[0].uid]


def of_objects() -> Iterator[Row]:
    """Objects that the operator cannot use, and a spec that it cannot read."""
    yield "not ours", conflicts.not_ours("Service", "chat")
    yield "of others", conflicts.owned("Service", "chat", "Gateway front")
    yield "predecessor's", conflicts.predecessor("Service", "chat", "chat")
    yield "no key", conflicts.without_key("chat-drain-key")
    taken = conflicts.not_ours("ConfigMap", "chat-drain-times")
    yield "drain times of others", conflicts.drain_times_unusable(taken)
    yield "drain times unreadable", conflicts.drain_times_ignored("chat-drain-times", "it is not JSON")
    yield "drain times refused", conflicts.drain_times_refused("chat-drain-times", "configmaps is forbidden")
    text = "spec.port: is missing; name the port"
    yield "InvalidSpec", str(invalid.status(LLMServiceStatus.read(None), 7, text, NOW).message)


def of_terms() -> Iterator[Row]:
    """Why a term of the grace period is as long as it is: `prior` declared, drains of so many seconds seen."""
    few, cut = [(8.0, False)] * 12, [(60.0, False), (120.0, True)] * 100
    cases: dict[str, tuple[list[tuple[float, bool]], float, TermInForce | None]] = {
        "no samples": ([], 600.0, None),
        "one sample": ([(120.5, False)], 600.0, None),
        "few samples": (few, 600.0, None),
        "many samples": ([(8.0, False)] * 299, 600.0, None),
        "samples beyond the declared time": ([(170.0, False)] * 3, 600.0, None),
        "cut": (cut, 600.0, None),
        "few and cut": (cut[:4], 600.0, None),
        "decreasing": (few, 600.0, TermInForce(120.0, 0.0)),
        "capped": (few, 20.0, None),
    }
    for name, (drains, cap, previous) in cases.items():
        known = estimate(Histogram().add(Sample(seconds, cut) for seconds, cut in drains), 120.0)
        term = drain_term(known, prior=120.0, cap=cap, previous=previous)
        yield name, str(terms.message(Term("drain", 1, samples=known.n, measured=term)))
    yield "propagation", str(terms.message(Term("propagation", 5, samples=12)))


SECTIONS: Final = {
    "Why nothing happens": of_blocked,
    "Conflicts of a template": of_findings,
    "Conditions": of_conditions,
    "Pods that drain": of_drains,
    "Pods that start": of_new_pods,
    "Terms of the grace period": of_terms,
    "Events": of_events,
    "Objects and specs": of_objects,
}


def page() -> str:
    """The list, as it is checked in."""
    lines = [
        "# What people read",
        "",
        f"Written by `{COMMAND}`: one line for each sentence, with its reason or story.",
        "",
    ]
    for title, collect in SECTIONS.items():
        lines += [f"## {title}", "", *(f"- `{key}`: {text}" for key, text in collect()), ""]
    return "\n".join(lines[:-1]) + "\n"


def rows() -> list[tuple[str, str]]:
    """All sentences, each with where it comes from."""
    return [(f"{title}: {key}", text) for title, collect in SECTIONS.items() for key, text in collect()]

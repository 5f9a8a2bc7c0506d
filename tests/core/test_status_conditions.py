"""The conditions: kstatus' three from the first write, the others only while true, each with what to do."""

from dataclasses import replace
from typing import Any

import pytest

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
    unready,
    waiting,
)
from tidegate.api.status import LLMServiceStatus
from tidegate.core.planner.plan import plan
from tidegate.core.report import invalid
from tidegate.core.report.status import status
from tidegate.core.state import times
from tidegate.core.state.snapshot import Conflict, ContainerStatus, Snapshot, Trouble, Unhooked

OLD = several("v1", 3)
LOST = {
    "targetRevision": "chat-v1",
    "rollout": {"startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:01:00Z"},
}
SILENT = {p.name: None for p in (*OLD, serving("v2-1"))}
DEAF = {p.uid: Trouble(NOW - 1, "timeout", "connected, but no answer in time") for p in (*OLD, serving("v2-1"))}
HELD = draining("v1-1", drain=record("v1-1", since=-BUDGET - 9, budget=None))
THREE = ["Ready", "Reconciling", "Stalled"]


def conditions(s: Snapshot) -> dict[str, tuple[str, str, str]]:
    """Status, reason and message by type."""
    return {c["type"]: (c["status"], c["reason"], c["message"]) for c in status(plan(s)).document()["conditions"]}


def verdict(s: Snapshot) -> list[tuple[str, str]]:
    """(status, reason) of the three that are always there."""
    found = conditions(s)
    assert list(found)[:3] == THREE
    return [found[kind][:2] for kind in THREE]


CONFLICT = Conflict("Service", "chat", "Service chat belongs to Helm; delete the Service, or rename the LLMService.")
BAD = {"template": {"spec": {"hostNetwork": True, "containers": [container("v2")]}}}


@pytest.mark.parametrize(
    ("s", "ready", "reconciling", "stalled"),
    [
        (story("v1"), "False RollingOut", "True RollingOut", "False AsDesired"),
        (story("v1", starting("v1-1"), counts={"v1": 3}), "False ScalingOut", "True ScalingOut", "False AsDesired"),
        (story("v1", *OLD), "True AsDesired", "False AsDesired", "False AsDesired"),
        (story("v2", *OLD, starting("v2-1")), "True RollingOut", "True RollingOut", "False AsDesired"),
        (story("v2", *OLD, spec={"rollout": {"paused": True}}), "True Paused", "True Paused", "False AsDesired"),
        (story("v1", *several("v1", 4)), "True ScalingIn", "True ScalingIn", "False AsDesired"),
        (story("v1", *several("v1", 2), status=LOST), "False ScalingOut", "True ScalingOut", "False AsDesired"),
        (story("v1", *several("v1", 2), unready("v1-3"), status=LOST),
            "False WaitingForReplacement", "True WaitingForReplacement", "False AsDesired"),
        (story("v1", *several("v1", 2), crashing("v1-3"), status=LOST),
            "False WaitingForReplacement", "True WaitingForReplacement", "False AsDesired"),
        (story("v2", *OLD, crashing("v2-1")), "True NewRevisionFailed", "True RollingOut", "True NewRevisionFailed"),
        (story("v2", *OLD, spec=BAD), "True TemplateConflict", "False AsDesired", "True TemplateConflict"),
        (story("v2", *OLD, rejected=(("spec.x", "no"),)), "True InvalidSpec", "False AsDesired", "True InvalidSpec"),
        (story("v1", conflicts=(CONFLICT,)), "False NameConflict", "False AsDesired", "True NameConflict"),
        (story("v1", conflicts=(replace(CONFLICT, temporary=True),)),
            "False WaitingForReplacement", "True WaitingForReplacement", "False AsDesired"),
        (story("v2", *OLD, homeless("v2-1")), "True NoSpareCapacity", "True RollingOut", "True NoSpareCapacity"),
        (story("v2", *OLD, unready("v2-1", created=NOW - 2401)),
            "True ProgressDeadlineExceeded", "True RollingOut", "True ProgressDeadlineExceeded"),
        (story("v2", *OLD, unready("v2-1", created=NOW - 2400)),
            "True RollingOut", "True RollingOut", "False AsDesired"),
        (story("v1", *OLD, refused="pods is forbidden"), "True WriteRefused", "False AsDesired", "True WriteRefused"),
        (story("v2", *OLD, serving("v2-1"), readings=SILENT, troubles=DEAF),
            "True NoAnswer", "True RollingOut", "True NoAnswer"),
        (story("v2", HELD, *OLD[1:], serving("v2-1"), spec={"drain": {"onExpiry": "Hold"}}),
            "True BudgetHeld", "True RollingOut", "True BudgetHeld"),
    ],
    ids=["nothing yet", "first start", "whole", "rolling", "paused", "too many", "one lost", "one down",
        "one crashes that stood", "new one crashes", "template conflict", "refused", "name taken", "predecessor",
        "no node", "too late", "not yet too late", "a write is refused", "no pod answers", "held"],
)  # fmt: skip
def test_the_three_conditions(s: Snapshot, ready: str, reconciling: str, stalled: str):
    assert [" ".join(pair) for pair in verdict(s)] == [ready, reconciling, stalled]


def test_ready_in_a_healthy_rollout_means_replicas_minus_max_unavailable():
    loose = {"rollout": {"maxUnavailable": 1}}
    two = [*several("v1", 2), starting("v2-1")]
    assert verdict(story("v2", *two))[0][0] == "False"
    assert verdict(story("v2", *two, spec=loose))[0][0] == "True"
    assert verdict(story("v2", *two[1:], spec=loose))[0][0] == "False"


def test_the_transition_time_moves_only_when_the_status_of_the_condition_flips():
    first = story("v1", *OLD)
    early = replace(first, status=status(plan(first)))
    later = replace(story("v2", *OLD, starting("v2-1")), status=early.status, now=NOW + 50)
    found = {c["type"]: c for c in status(plan(later)).document()["conditions"]}
    assert found["Ready"]["reason"] == "RollingOut"
    assert found["Ready"]["lastTransitionTime"] == times.short(NOW)
    assert found["Reconciling"]["lastTransitionTime"] == times.short(NOW + 50)
    again = replace(later, status=status(plan(later)), now=NOW + 90, generation=3)
    kept = {c["type"]: c for c in status(plan(again)).document()["conditions"]}
    assert kept["Reconciling"]["lastTransitionTime"] == times.short(NOW + 50)
    assert {c["observedGeneration"] for c in kept.values()} == {3}


def test_in_steady_state_the_status_is_the_same_at_any_time():
    first = story("v1", *OLD, status=LOST)
    settled = replace(first, status=status(plan(first)))
    assert status(plan(replace(settled, now=NOW + 5000))).document() == settled.status.document()


OWN_PROBE = {"template": {"spec": {"containers": [container("v1", readinessProbe={"tcpSocket": {"port": 8000}})]}}}


@pytest.mark.parametrize(
    ("s", "kind", "reason", "words"),
    [
        (story("v2", *OLD, serving("v2-1"), readings=SILENT, troubles=DEAF), "DrainEndpointUnreachable", "NoAnswer",
            ["v1-1 at 192.0.2.1:9901", "no answer in time", "NetworkPolicies", "tidegate.dev/drain-unreachable: <"]),
        (story("v1", *OLD, locks_missing=("tidegate-pod-delete",)), "LocksMissing", "PoliciesMissing",
            ["tidegate-pod-delete", "apply manifests/cluster"]),
        (story("v1", *OLD, services_without_state=("front",)), "ServiceNotWithdrawn", "SelectorWithoutState",
            ["Service front", "Add tidegate.dev/state: serving"]),
        (story("v1", *OLD, budgets_beside=("of-the-chart",)), "DisruptionBudgetConflict", "SecondBudget",
            ["PodDisruptionBudget of-the-chart selects pods that Tidegate's own, chat, covers", "500", "Delete it"]),
        (story("v1", *OLD, budgets_beside=("a", "b")), "DisruptionBudgetConflict", "SecondBudget",
            ["PodDisruptionBudgets a and b select pods", "Delete them, or"]),
        (story("v2", HELD, *OLD[1:], serving("v2-1"), spec={"drain": {"onExpiry": "Hold"}}),
            "DrainOverdue", "BudgetHeld",
            ["v1-1 has exceeded its drain budget of 600 s and is held, which blocks the rollout: 1 request in flight.",
                "raise spec.drain.budgetSeconds", "push the old revision again",
                "spec.drain.onExpiry: Release", "kubectl annotate pod v1-1 tidegate.dev/release='your reason'"]),
        (story("v2", draining("v1-1", drain=record("v1-1", since=-BUDGET - 1)), *OLD[1:], serving("v2-1")),
            "DrainOverdue", "Draining", ["v1-1", "is being released"]),
        (story("v1", *OLD, deployments=[deployment("v1", 3, rendered="older")]), "TemplateOutdated", "RenderedBefore",
            ["chat-v1", "spec.rollout.restartedAt"]),
        (story("v1", *OLD, deployments=[deployment("v1", 3, grace_seconds=77)]), "GracePeriodStale", "TermsChanged",
            ["chat-v1", "77 s", "140 s", "spec.rollout.restartedAt"]),
        (story("v1", *OLD, spec=OWN_PROBE), "ReadinessNotDrainAware", "OwnReadinessProbe", ["server", "/readyz"]),
    ],
    ids=["no answer", "no locks", "a foreign Service", "a second budget", "two of them", "held", "late",
        "older template", "older grace period",
        "own readiness"],
)  # fmt: skip
def test_a_further_condition_is_there_while_true_and_names_the_remedy(s, kind, reason, words):
    value, why, message = conditions(s)[kind]
    assert (value, why) == ("True", reason)
    for word in words:
        assert word in message


def test_none_of_them_is_there_while_nothing_is_wrong():
    for s in (story("v1", *OLD), story("v2", draining("v1-1"), *OLD[1:], serving("v2-1"))):
        assert list(conditions(s)) == THREE


def stalled(s: Snapshot) -> str:
    """The reason of Stalled, or nothing."""
    value, reason, _ = conditions(s)["Stalled"]
    return reason if value == "True" else ""


LATE = "ProgressDeadlineExceeded"
QUICK = {"rollout": {"progressDeadlineSeconds": 60}}
STEADY = {"rollout": {"progressDeadlineSeconds": 60, "minReadySeconds": 20}}


def test_a_pod_that_is_ready_time_and_again_but_never_for_long_is_late_all_the_same():
    """By its age: it never stays NotReady for long. Once one of the revision has served, a flap is a loss like any."""
    flapping = {"unready_since": NOW - 2}
    old = unready("v2-1", created=NOW - 81, **flapping)
    assert stalled(story("v2", *OLD, old, spec=STEADY)) == LATE
    assert stalled(story("v2", *OLD, serving("v2-1", created=NOW - 81, ready_since=NOW - 2), spec=STEADY)) == LATE
    assert stalled(story("v2", *OLD, unready("v2-1", created=NOW - 79, **flapping), spec=STEADY)) == ""
    assert stalled(story("v2", *OLD, serving("v2-1", created=NOW - 81, ready_since=NOW - 20), spec=STEADY)) == ""
    assert stalled(story("v2", *OLD[:2], serving("v2-2"), old, spec=STEADY)) == ""
    text = conditions(story("v2", *OLD, old, spec=STEADY))["Stalled"][2]
    assert "v2-1 was not Ready for 20 s (spec.rollout.minReadySeconds) within 60 s" in text


def test_it_looks_again_when_a_pod_turns_late_by_any_of_its_clocks():
    started = story("v2", *OLD, unready("v2-1", created=NOW - 70, unready_since=NOW - 50), spec=QUICK)
    assert plan(started).requeue_after == pytest.approx(10, abs=0.1)
    flaps = story("v2", *OLD, unready("v2-1", created=NOW - 75, unready_since=NOW - 2), spec=STEADY)
    assert plan(flaps).requeue_after == pytest.approx(5, abs=0.1)


def test_the_time_of_a_pod_that_waits_for_a_drain_has_not_begun():
    first = {"rollout": {"progressDeadlineSeconds": 60, "maxSurge": 0, "maxUnavailable": 1}}
    waits = replace(homeless("v2-1"), created=NOW - 500)
    assert stalled(story("v2", draining("v1-1"), *OLD[1:], waits, spec=first)) == ""
    assert stalled(story("v2", going(OLD[0]), *OLD[1:], waits, spec=first)) == ""
    found = story("v2", *OLD[1:], waits, spec=first)
    # The scheduler may take a while to see the free place: since the drain's end that, too, is its own time.
    ended = {"outcomes": [{"pod": "v1-1", "outcome": "Drained", "seconds": 400, "at": times.text(NOW - 40)}]}
    assert stalled(replace(found, status=LLMServiceStatus.read(ended))) == ""
    assert stalled(replace(found, status=LLMServiceStatus.read(ended), now=NOW + 30)) == LATE
    assert stalled(found) == LATE
    assert "was not scheduled within 60 s (spec.rollout.progressDeadlineSeconds): 0/3 nodes" in message(found)
    up = unready("v2-1", created=NOW - 500, scheduled=NOW - 10)
    assert stalled(story("v2", *OLD[1:], up, spec=first)) == ""
    assert stalled(story("v2", *OLD[1:], replace(up, scheduled=NOW - 61), spec=first)) == LATE


def test_a_pod_for_which_another_one_makes_room_does_not_lack_capacity():
    """A terminating pod keeps its device for a moment, and with replicas + maxSurge devices the next one waits."""
    second = [*OLD[1:], serving("v2-1"), homeless("v2-2")]
    assert stalled(story("v2", going(OLD[0]), *second)) == ""
    assert stalled(story("v2", draining("v1-1"), *second)) == ""
    assert stalled(story("v2", *second)) == "NoSpareCapacity"
    # It is gone, and the scheduler has not tried again yet: teardown and its longest backoff are waited for.
    just = story(
        "v2", *second, status={"outcomes": [{"pod": "v1-1", "outcome": "Drained", "at": times.text(NOW - 15)}]}
    )
    assert stalled(just) == ""
    assert plan(just).requeue_after == pytest.approx(5, abs=0.1)
    assert stalled(replace(just, now=NOW + 5)) == "NoSpareCapacity"
    assert stalled(story("v2", going(OLD[0]), *second, homeless("v2-3"))) == "NoSpareCapacity"


def test_a_rollout_is_not_over_before_its_last_pod_counts():
    fresh = serving("v2-3", ready_since=NOW - 5)
    s = story("v2", *several("v2", 2), fresh, spec=STEADY)
    assert conditions(s)["Reconciling"][:2] == ("True", "ScalingOut")
    assert "Waiting for pod v2-3 to stay Ready for 20 s (spec.rollout.minReadySeconds)" in message(s)
    assert status(plan(s)).document()["phase"] != "Ready"
    whole = story("v2", *several("v2", 2), replace(fresh, ready_since=NOW - 20), spec=STEADY)
    assert conditions(whole)["Reconciling"][:2] == ("False", "AsDesired")


def test_one_that_crashed_and_is_up_again_has_failed_until_it_stayed_up():
    again = ContainerStatus(running=True, started=True, restarts=1, exit_code=1, exit_reason="Error")
    fresh = serving("v2-1", ready_since=NOW - 5, container=again)
    assert stalled(story("v2", *OLD, fresh, spec=STEADY)) == "NewRevisionFailed"
    assert stalled(story("v2", *OLD, replace(fresh, ready_since=NOW - 20), spec=STEADY)) == ""
    assert stalled(story("v2", *OLD, fresh)) == ""


def test_a_held_scale_in_is_undone_by_scaling_out_and_no_rollout_stops():
    held = draining("v1-3", drain=record("v1-3", since=-BUDGET - 9, budget=None, reason="ScaleIn"))
    s = story("v1", *OLD[:2], held, spec={"replicas": 2, "drain": {"onExpiry": "Hold"}})
    assert stalled(s) == "BudgetHeld"
    assert "to keep the pod, raise spec.replicas again; to release it" in message(s)
    assert "rollout" not in message(s)
    other = replace(s, readings={held.uid: says(held, "draining", drain_id="a stranger's")})
    assert "again" not in message(other) and "raise spec.drain.budgetSeconds; to release it" in message(other)


def message(s: Snapshot) -> str:
    return str(status(plan(s)).document()["message"])


def test_the_message_of_a_rollout_says_who_drains_what_it_holds_until_when_and_what_is_next():
    pod = draining("v1-1")
    s = story("v2", pod, *OLD[1:], serving("v2-1"), readings={"v1-1": says(pod, in_flight=3, oldest_seconds=41.0)})
    assert message(s) == (
        "Rolling out chat-v2: 1 of 3 pods updated. Draining pod v1-1 for 60 s: 3 requests in flight (oldest 41 s), "
        f"released by {times.clock(NOW - 60 + BUDGET)} at the latest."
    )


def test_the_message_says_that_a_count_is_unknown_and_why():
    pods = [draining("v1-1"), *OLD[1:], serving("v2-1")]
    trouble = Trouble(NOW - 1, "refused", "connection refused: nothing listens on that port")
    s = story("v2", *pods, readings={"v1-1": None})
    assert "it has not answered yet" in message(s)
    assert "requests in flight unknown (connection refused" in message(replace(s, troubles={"uid-v1-1": trouble}))
    # A pod that answered before and does not any more is unknown too; what it said last is told as that.
    heard = story("v2", *pods, readings={"v1-1": says(pods[0], in_flight=3, at=NOW - 20)})
    text = message(replace(heard, troubles={"uid-v1-1": trouble}))
    assert "requests in flight unknown (connection refused: nothing listens on that port; 20 s ago: 3)" in text
    nowhere = story("v2", draining("v1-1", contract_port=None), *pods[1:], readings={"v1-1": None})
    assert "requests in flight unknown (its drain port is not known)" in message(nowhere)


def test_pods_whose_hook_was_taken_are_named_with_what_that_means():
    pods = [*OLD[:2], serving("v1-3", hooked=False)]
    verdict_, reason, text = conditions(story("v1", *pods))["InPodLockPartial"]
    assert (verdict_, reason) == ("True", "PreStopAltered")
    assert text.startswith("Pod v1-3 lacks the preStop hook that Tidegate rendered")
    assert "its requests are cut" in text and "then set spec.rollout.restartedAt" in text
    assert message(story("v1", *pods)) == text


@pytest.mark.parametrize(
    ("container", "remedy"),
    [
        ("istio-proxy", 'sidecar.istio.io/nativeSidecar: "true"'),
        ("istio-proxy", 'EXIT_ON_ZERO_ACTIVE_CONNECTIONS: "true" in proxyMetadata of proxy.istio.io/config'),
        ("linkerd-proxy", 'config.beta.linkerd.io/proxy-enable-native-sidecar: "true"'),
        ("linkerd-proxy", "config.alpha.linkerd.io/proxy-wait-before-exit-seconds"),
        ("vault-agent", "make it a native sidecar"),
    ],
)
def test_a_container_without_a_hook_is_named_with_the_setting_that_helps(container: str, remedy: str):
    pods = [*OLD[:2], serving("v1-3", unhooked=(Unhooked(container),))]
    verdict_, reason, text = conditions(story("v1", *pods))["InPodLockPartial"]
    assert (verdict_, reason) == ("True", "ContainerWithoutPreStop")
    assert text.startswith(f"Container {container} of pod v1-3 has no preStop hook")
    assert remedy in text
    assert message(story("v1", *pods)) == text


def test_of_several_such_containers_the_one_that_carries_requests_is_told_first():
    pods = several("v1", 3, unhooked=(Unhooked("a-logger"), Unhooked("istio-proxy"), Unhooked("vault-agent")))
    text = conditions(story("v1", *pods))["InPodLockPartial"][2]
    assert text.startswith(
        "Containers istio-proxy, a-logger and vault-agent of pods v1-1, v1-2 and v1-3 have no preStop"
    )


@pytest.mark.parametrize(("lasts", "partial"), [(5.0, True), (124.0, True), (125.0, False), (float("inf"), False)])
def test_a_container_that_serves_for_a_whole_drain_after_sigterm_needs_no_hook(lasts: float, partial: bool):
    """Of the grace period of 140 s, teardown and safety take 15 s."""
    pods = several("v1", 3, unhooked=(Unhooked("istio-proxy", lasts),))
    assert ("InPodLockPartial" in conditions(story("v1", *pods))) is partial


def test_a_pod_that_is_going_is_not_told_of_any_more():
    pod = going(serving("v1-4", unhooked=(Unhooked("istio-proxy"),)))
    assert "InPodLockPartial" not in conditions(story("v1", *OLD, pod))


def test_a_rollout_whose_pods_nobody_knows_where_to_ask_says_so():
    pods = [replace(p, contract_port=None) for p in (*OLD, serving("v2-1"))]
    s = story("v2", *pods, readings=SILENT)
    assert plan(s).actions == () and plan(s).questions == ()
    _, reason, text = conditions(s)["DrainEndpointUnreachable"]
    assert reason == "NoAnswer"
    assert text.startswith("No pod is drained: the drain port of pod v1-1 is not known")
    assert "tidegate.dev/drain-unreachable: <reason>" in text
    assert message(s) == text


def test_the_message_names_three_draining_pods_and_counts_the_rest():
    pods = [draining(f"v1-{n}") for n in range(5)]
    text = message(story("v1", *pods, spec={"replicas": 0}))
    assert text.count("Draining pod") == 3 and text.endswith("2 more pods are draining.")


def test_a_held_pod_is_said_to_be_held():
    held = draining("v1-1", drain=record("v1-1", budget=None))
    s = story("v2", held, *OLD[1:], serving("v2-1"), spec={"drain": {"onExpiry": "Hold"}})
    assert "held until its requests end (spec.drain.onExpiry: Hold)" in message(s)


def test_a_pod_that_is_wanted_again_is_said_to_be_and_one_that_is_drained_too():
    back = draining("v1-3", drain=record("v1-3", reason="ScaleIn"))
    assert message(story("v1", *OLD[:2], back)).endswith("Undraining pod v1-3, which is needed again.")
    done = drained("v1-1")
    assert "Pod v1-1 is drained and is deleted next." in message(story("v2", done, *OLD[1:], serving("v2-1")))


@pytest.mark.parametrize(
    ("s", "words"),
    [
        (story("v2", *OLD, crashing("v2-1")),
            ["Pod v2-1 does not start", "CrashLoopBackOff", "exited with code 7 (Error), restarted 4 times",
             "No more old pods are drained", "push a working revision"]),
        (story("v2", *OLD, waiting("v2-1")), ["ImagePullBackOff: no such tag", "No more old pods are drained"]),
        (story("v1", waiting("v1-1")), ["ImagePullBackOff: no such tag", "To recover, push a working revision."]),
        (story("v2", *OLD, homeless("v2-1")),
            ["3 Insufficient nvidia.com/gpu. No old pod is drained", "spec.rollout.maxSurge: 0 and maxUnavailable: 1"]),
        (story("v2", *OLD, unready("v2-1", created=NOW - 2401)), ["2400 s", "spec.rollout.progressDeadlineSeconds"]),
        (story("v2", *OLD, deployments=[deployment("v1", 3), deployment("v2", 1, failure="exceeded quota: gpus")]),
            ["Pods of Deployment chat-v2 cannot be created: exceeded quota: gpus."]),
        (story("v2", *OLD, spec=BAD), ["spec.template.spec.hostNetwork", "remove hostNetwork"]),
        (story("v2", *OLD, rejected=(("spec.template.spec.containers[0].image", "Required value"),)),
            ["The API server rejected the new revision", "containers[0].image: Required value"]),
        (story("v1", conflicts=(CONFLICT,)), [CONFLICT.detail]),
        (story("v2", *OLD, starting("v2-1")), ["Rolling out chat-v2: 0 of 3 pods updated.",
                "Waiting for pod v2-1 to become Ready"]),
        (story("v2", going(OLD[0]), *OLD[1:], counts={"v1": 2, "v2": 0},
            spec={"rollout": {"maxSurge": 0, "maxUnavailable": 1}}),
            ["Waiting for pod v1-1 to terminate; without surge"]),
        (story("v1", *OLD, locks_missing=("tidegate-pod-delete",)), ["tidegate-pod-delete"]),
        (story("v1", *OLD), ["3 of 3 pods are serving, all of revision chat-v1."]),
    ],
    ids=["crash", "no image", "no image at first", "no node", "late", "quota", "conflict", "refused", "name", "start",
        "gone", "no locks", "whole"],
)  # fmt: skip
def test_the_message_is_of_the_worst_condition(s: Snapshot, words: list[str]):
    for word in words:
        assert word in message(s)


def test_all_conflicts_of_a_template_are_in_one_message():
    both = {"template": {"spec": {"hostNetwork": True, "restartPolicy": "Never", "containers": [container()]}}}
    assert "hostNetwork" in message(story("v1", spec=both)) and "restartPolicy" in message(story("v1", spec=both))


def refused(status_before: dict[str, Any] | None, message: str, now: float) -> dict[str, Any]:
    """The status of an object whose spec cannot be read."""
    return invalid.status(LLMServiceStatus.read(status_before), 7, message, now).document()


def test_a_spec_that_cannot_be_read_keeps_what_is_known_and_says_what_to_mend():
    whole = status(plan(story("v1", *OLD))).document()
    found = refused(whole, "spec.port: is missing; name the port", NOW + 60)
    assert (found["observedGeneration"], found["phase"]) == (7, "Stalled")
    assert (
        found["message"] == "Invalid spec: spec.port: is missing; name the port. Nothing changes until it is corrected."
    )
    assert (found["serving"], found["targetRevision"]) == (3, "chat-v1")
    rows = {c["type"]: c for c in found["conditions"]}
    assert {kind: row["status"] for kind, row in rows.items()} == {
        "Ready": "True", "Reconciling": "False", "Stalled": "True",
    }  # fmt: skip
    assert rows["Ready"]["lastTransitionTime"] == times.short(NOW)
    assert rows["Stalled"]["lastTransitionTime"] == times.short(NOW + 60)
    assert refused(found, "spec.port: is missing; name the port", NOW + 99) == found


def test_a_first_status_of_a_spec_that_cannot_be_read_is_not_ready():
    rows = refused(None, "no", NOW)["conditions"]
    assert [(c["type"], c["status"], c["reason"]) for c in rows] == [
        ("Ready", "False", "InvalidSpec"), ("Reconciling", "False", "InvalidSpec"), ("Stalled", "True", "InvalidSpec"),
    ]  # fmt: skip

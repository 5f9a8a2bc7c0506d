"""Twenty services that roll at once on a real cluster, most of them broken, each in a way of its own."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from cluster.harness import inside
from cluster.harness.audit import OPERATOR, Audit
from cluster.harness.evidence import Line
from cluster.harness.kube import PODS, eventually
from cluster.harness.load import Load
from cluster.harness.operator import Operator
from cluster.harness.service import Namespace, Service
from tidegate.api.conditions import Outcome, Reason

HEALTHY = [f"well-{number}" for number in range(6)]
GRACE = {"initialSeconds": 2, "teardownSeconds": 2, "safetySeconds": 1}
BAD_DRAINS = ("hang", "status-500", "rubbish", "endless", "lie-negative", "ignore-drain")
"""Conduct of the old pod: its drain has no end, since it is held."""
SOON = {"progressDeadlineSeconds": 13}
STEADY = {"minReadySeconds": 20, "progressDeadlineSeconds": 21}
PROBED = {"probes": {"readiness": {"periodSeconds": 1}}}
BAD_PUSHES: dict[str, tuple[Line, Reason]] = {
    "unpullable": ({"image": "registry.invalid/nobody:1"}, Reason.NEW_REVISION_FAILED),
    "crashing": ({"env": {"MISBEHAVE": "crash-at-start"}}, Reason.NEW_REVISION_FAILED),
    "homeless": ({"pod": {"nodeSelector": {"no-such": "node"}}}, Reason.NO_SPARE_CAPACITY),
    "never-ready": ({"env": {"MISBEHAVE": "never-ready"}, "rollout": SOON}, Reason.PROGRESS_DEADLINE_EXCEEDED),
    "flapping": (
        {"env": {"MISBEHAVE": "flap"}, "rollout": STEADY, "more": PROBED},
        Reason.PROGRESS_DEADLINE_EXCEEDED,
    ),
    "conflicting": ({"pod": {"hostNetwork": True}}, Reason.TEMPLATE_CONFLICT),
    "refused": ({"pod": {"dnsPolicy": "Nonsense"}}, Reason.INVALID_SPEC),
}
"""What the new revision is, and why its rollout stops."""
MUTE, MUTE_PORT = "mute", 9912
"""What the operator sends to its pods is dropped."""
BROKEN = [*BAD_DRAINS, *BAD_PUSHES, MUTE]
ASKED = (*HEALTHY, *BAD_PUSHES, MUTE)
"""Services with streams: those whose pods serve all the time, whatever is pushed."""
STREAMS = 3
"""In each of them."""
NOT_SLOWED = 0.6
"""A share of what the same services made of their bound when all twenty were well. A rollout that waits for calls to
pods that hang, three seconds or more each, falls below."""


@dataclass(slots=True)
class Small(Service):
    """One small pod; a pod that misbehaves is held for ever, so whoever waited for it would wait for ever too."""

    replicas: int = 1
    cpu: str = "10m"
    drain: Line = field(
        default_factory=lambda: {"onExpiry": "Hold", "budgetSeconds": 3600, "propagationSeconds": 5, "grace": GRACE}
    )


@pytest.mark.long
def test_those_that_are_well_roll_as_when_nothing_is_broken(
    operator: Operator, namespace: Namespace, audit: Audit
) -> None:
    """No broken one ever gets there, and none of the others waits for it: they take the same steps as when all were
    well, come as near to their bound, and no client of any of them loses a token."""
    services = begin(namespace)
    load = Load(namespace, "", streams=STREAMS * len(ASKED), seconds="4-7", rate=2, services=ASKED).start()
    load.wait_running()
    for service in services.values():
        service.env |= {"PUSH": "one"}
    before = rolled(namespace, services, services)

    for way in BAD_DRAINS:
        pod = services[way].serving_pod()
        namespace.kube.post_text(f"{PODS.format(namespace.name)}/{pod}:9901/proxy/misbehave", way)
    for service in services.values():
        service.env |= {"PUSH": "two"}
    for name, (change, _) in BAD_PUSHES.items():
        for key, value in change.items():
            setattr(services[name], key, value)
    with inside.dropped(operator.processes(), "--sport", str(MUTE_PORT)):
        among = rolled(namespace, services, HEALTHY)
        for name in BROKEN:
            assert_stuck(services[name])
    result = load.stop()

    result.assert_whole()
    assert all(steps.count("patch pods") == 2 for steps in before.steps.values()), before.steps
    assert among.steps == {name: before.steps[name] for name in HEALTHY}
    for name in HEALTHY:
        rows = services[name].status["outcomes"]
        assert [(row["outcome"], row["cut"]) for row in rows] == [(Outcome.DRAINED, 0)] * 2
        assert all(namespace.logs.drain_evidence(row["pod"]).held for row in rows), rows
    shares = before.share(HEALTHY), among.share(HEALTHY)
    assert shares[1] >= NOT_SLOWED * shares[0], f"the bound over their time, all well and with the broken: {shares}"


def begin(namespace: Namespace) -> dict[str, Service]:
    services: dict[str, Service] = {name: Small(namespace, name=name) for name in (*HEALTHY, *BROKEN)}
    assert len(services) == 20
    services[MUTE].env = {"ADMIN_PORT": str(MUTE_PORT)}
    services[MUTE].drain |= {"native": {"port": MUTE_PORT}}
    apply(namespace, services)
    for service in services.values():
        service.wait_settled()
    return services


def apply(namespace: Namespace, services: dict[str, Service]) -> None:
    """All by one command, so that they roll at once."""
    namespace.kube.apply(namespace.name, *(service.manifest() for service in services.values()))


@dataclass(frozen=True, slots=True)
class Rolled:
    """What the operator wrote for each, and the rollout as its status has it."""

    steps: dict[str, tuple[str, ...]]
    rollouts: dict[str, Line]

    def share(self, of: list[str]) -> float:
        """The bound over the time that these took together."""
        rows = [self.rollouts[name] for name in of]
        return sum(row["boundSeconds"] for row in rows) / sum(row["seconds"] for row in rows)


def rolled(namespace: Namespace, services: dict[str, Service], well: Iterable[str]) -> Rolled:
    """Push to all of them, and wait until those that are well are there."""
    for name in HEALTHY:
        services[name].wait_busy(1)
    seen = Audit(namespace.kube.audit_log)
    apply(namespace, services)
    for name in well:
        services[name].wait_settled()
    rollouts = {name: services[name].status["rollout"] for name in well}
    return Rolled({name: writes(seen, services[name]) for name in well}, rollouts)


def writes(audit: Audit, service: Service) -> tuple[str, ...]:
    """Verb and resource of what the operator wrote to pods and Deployments of one service, sorted.

    Without deletes: a drained pod is deleted by whichever of ReplicaSet and operator comes first.
    """
    calls = (c for c in audit.writes(service.namespace.name, user=OPERATOR) if c.name.startswith(f"{service.name}-"))
    wanted = (c for c in calls if c.resource in ("pods", "deployments") and c.verb != "delete")
    return tuple(sorted(f"{call.verb} {call.resource}" for call in wanted))


def assert_stuck(service: Service) -> None:
    """It says why, and no pod of it has gone."""
    name = service.name
    if name in BAD_DRAINS:
        eventually(f"{name} is named", lambda: any("trouble" in row for row in service.status.get("pods", [])))
    else:
        reason = BAD_PUSHES[name][1] if name in BAD_PUSHES else Reason.NO_ANSWER
        eventually(f"{name} stops for {reason}: {service.status['message']}", lambda: service.stalled_by(reason))
    assert not service.is_settled()
    assert len(service.status["outcomes"]) == 1, f"{name} lost a pod"

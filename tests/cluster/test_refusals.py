"""Commands that would take a pod away with requests in it, tried on a running service: each refused, with a way out."""

import pytest

from cluster.harness.audit import OPERATOR, Audit
from cluster.harness.kube import REPLICASETS, eventually
from cluster.harness.load import Load
from cluster.harness.operator import Operator
from cluster.harness.record import MakeRecord
from cluster.harness.service import Namespace, Service
from tidegate.api import names
from tidegate.api.conditions import Outcome

SCALE_INSTEAD = "kubectl scale llmservice chat --replicas=N"
EDIT_INSTEAD = "Edit spec.template of LLMService chat instead"
DELETE_INSTEAD = "To delete the service: kubectl delete llmservice chat"
POD_INSTEAD = "change spec.replicas or spec.template of LLMService chat, or set its spec.rollout.restartedAt"
REFUSED = {
    "delete pod {pod}": POD_INSTEAD,
    "delete pod {pod} --force --grace-period=0": POD_INSTEAD,
    "delete pod {pod} --now": POD_INSTEAD,
    "delete pods -l tidegate.dev/service=chat": POD_INSTEAD,
    "scale deployment {deployment} --replicas=0": SCALE_INSTEAD,
    "scale replicaset {replicaset} --replicas=0": SCALE_INSTEAD,
    "set image deployment/{deployment} server=other:2": EDIT_INSTEAD,
    "rollout restart deployment/{deployment}": "To restart the pods, set spec.rollout.restartedAt there",
    "delete deployment {deployment}": DELETE_INSTEAD,
    "delete deployment {deployment} --cascade=orphan": DELETE_INSTEAD,
    "delete deployment {deployment} --cascade=foreground": DELETE_INSTEAD,
    "delete rs {replicaset}": DELETE_INSTEAD,
}


@pytest.mark.alone
def test_each_command_is_refused_and_nothing_moves(
    operator: Operator, namespace: Namespace, record: MakeRecord, audit: Audit
) -> None:
    service = Service(namespace, replicas=2).apply()
    service.wait_settled()
    # Written after the status that says Ready.
    eventually("the last thing to say is said", lambda: namespace.events("RolloutComplete"))
    load = Load(namespace, service.name, streams=20).start().wait_running()
    watched, asked = record(service.labels), service.generations()
    before = Audit(namespace.kube.audit_log)
    (deployment,) = service.deployments()
    (replicaset,) = namespace.kube.items(REPLICASETS.format(namespace.name), labelSelector=service.labels)
    named = {
        "pod": service.serving_pod(),
        "deployment": deployment["metadata"]["name"],
        "replicaset": replicaset["metadata"]["name"],
    }
    for command, remedy in REFUSED.items():
        done = service.try_kubectl(*command.format(**named).split())
        assert done.returncode != 0, f"kubectl {command}: {done.stdout}"
        assert remedy in done.stderr, f"kubectl {command}: {done.stderr}"
    result = load.stop()
    watched.catch_up()

    result.assert_whole()
    assert watched.events("Pod") == []
    assert service.generations() == asked
    assert before.calls(namespace=namespace.name, user=OPERATOR) == []
    assert namespace.logs.find("prestop") == namespace.logs.find("sigterm") == []


def test_what_the_refusals_name_instead_works(operator: Operator, namespace: Namespace, record: MakeRecord) -> None:
    """restartedAt replaces every pod by a drain; the release annotation lets one go, which still drains in place."""
    service = Service(namespace, replicas=2).apply()
    service.wait_settled()
    watched = record(service.labels)
    load = Load(namespace, service.name, streams=20).start().wait_running()
    service.apply(rollout={"restartedAt": "2026-11-29T20:00:00Z"})
    service.wait_settled()
    watched.catch_up()
    assert len(watched.drained_pods()) == 2

    pod = service.serving_pod()
    service.kubectl("annotate", "pod", pod, f"{names.RELEASE}=its node burns")
    service.kubectl("delete", "pod", pod, "--wait=false")
    eventually("the released pod is gone", lambda: pod not in {p["metadata"]["name"] for p in service.pods()})
    # Until the operator has seen it go, what it wrote before still says Ready; and the Event follows the status.
    found = eventually("it is told", lambda: [row for row in service.status["outcomes"] if row["pod"] == pod])
    eventually("an Event says so", lambda: [e for e in namespace.events(Outcome.RELEASED) if pod in e["message"]])
    service.wait_settled()
    result = load.stop()

    result.assert_whole()
    assert [row["outcome"] for row in found] == [Outcome.RELEASED]

"""The children as they are written: what is added to the user's template, and what wins where both speak."""

import copy
from typing import Any

import pytest

from core.stories import OWNER, container, raw_spec, spec
from tidegate.api import names
from tidegate.core.drain_time.grace import grace_period
from tidegate.core.planner import revision
from tidegate.core.render import objects

TERMS = {"initialSeconds": 40, "teardownSeconds": 7, "safetySeconds": 3}


def rendered(replicas: int = 3, **changes: Any) -> dict[str, Any]:
    read = spec(**changes)
    source = revision.source(raw_spec(**changes))
    held = objects.Revision("5c9f2b7d1e", source, grace_period(read), "prestop-key")
    return objects.deployment(OWNER, read, held, replicas)


def template(**changes: Any) -> dict[str, Any]:
    return rendered(**changes)["spec"]["template"]


def server(**changes: Any) -> dict[str, Any]:
    return next(c for c in template(**changes)["spec"]["containers"] if c["name"] == "server")


def pod(**fields: Any) -> dict[str, Any]:
    return {"template": {"spec": {"containers": [container()]} | fields}}


def test_a_deployment_of_a_revision_is_named_labelled_and_owned():
    made = rendered()
    meta = made["metadata"]
    assert (meta["name"], meta["namespace"]) == ("chat-5c9f2b7d1e", "shop")
    labels = {names.SERVICE: "chat", names.REVISION: "5c9f2b7d1e", names.MANAGED_BY: "tidegate"}
    assert meta["labels"] == labels
    assert meta["annotations"][names.SOURCE] == revision.source(raw_spec())
    (owner,) = meta["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == ("LLMService", "chat", "uid-chat", True)
    pods = made["spec"]["template"]["metadata"]
    assert pods["labels"] == labels | {names.STATE: "serving"}
    ports = dict.fromkeys(names.MESH_EXCLUDED_PORTS, "9901")
    assert pods["annotations"] == {names.CONTAINER: "server"} | ports


def test_the_selector_of_a_deployment_has_no_state_so_changing_it_moves_nothing():
    assert rendered()["spec"]["selector"] == {"matchLabels": {names.SERVICE: "chat", names.REVISION: "5c9f2b7d1e"}}


def test_a_forbidden_edit_would_start_a_pod_before_it_takes_one_and_no_deadline_of_the_child_fires():
    made = rendered()["spec"]
    assert made["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert made["progressDeadlineSeconds"] == 2**31 - 1


@pytest.mark.parametrize("replicas", [0, 4])
def test_the_annotation_always_equals_the_replicas(replicas: int):
    made = rendered(replicas)
    assert made["spec"]["replicas"] == replicas
    assert made["metadata"]["annotations"][names.REPLICAS] == str(replicas)
    scaled = objects.scale("chat-x", "shop", replicas, frozenset({"b", "a"}))
    assert scaled["metadata"]["annotations"] == {names.REPLICAS: str(replicas), names.RELEASED: "a,b"}
    assert scaled["spec"] == {"replicas": replicas}


def test_labels_and_annotations_of_the_user_are_kept():
    metadata = {"labels": {"team": "a"}, "annotations": {"note": "b"}}
    made = template(template={"metadata": metadata, "spec": {"containers": [container()]}})
    assert made["metadata"]["labels"]["team"] == "a"
    assert made["metadata"]["annotations"]["note"] == "b"


def test_a_mesh_leaves_the_contract_s_port_alone_beside_those_that_the_user_names():
    istio, linkerd = names.MESH_EXCLUDED_PORTS
    metadata = {"annotations": {istio: "9000"}}
    made = template(template={"metadata": metadata, "spec": {"containers": [container()]}})["metadata"]["annotations"]
    assert (made[istio], made[linkerd]) == ("9000,9901", "9901")


def test_every_regular_container_gets_the_hook_that_waits_and_one_with_its_own_keeps_it():
    own = {"preStop": {"exec": {"command": ["sync"]}}}
    others = [{"name": "logs", "image": "x"}, {"name": "mesh", "image": "y", "lifecycle": own}]
    made = template(**pod(containers=[*others, container()], initContainers=[{"name": "init", "image": "z"}]))
    hooks = {c["name"]: c["lifecycle"]["preStop"] for c in made["spec"]["containers"]}
    waiting = {
        "path": "/drain/prestop", "port": 9901, "httpHeaders": [{"name": "Tidegate-Key", "value": "prestop-key"}],
    }  # fmt: skip
    assert hooks == {"logs": {"httpGet": waiting}, "mesh": own["preStop"], "server": {"httpGet": waiting}}
    assert made["spec"]["initContainers"] == [{"name": "init", "image": "z"}]


def test_the_hook_names_its_port_by_number_since_the_kubelet_looks_names_up_in_the_same_container():
    assert server()["lifecycle"]["preStop"]["httpGet"]["port"] == 9901
    assert server(drain={"native": {"port": 7000}})["lifecycle"]["preStop"]["httpGet"]["port"] == 7000


def test_a_post_start_hook_of_the_user_stays_beside_ours():
    own = {"postStart": {"exec": {"command": ["true"]}}}
    made = server(**pod(containers=[container(lifecycle=own)]))
    assert set(made["lifecycle"]) == {"postStart", "preStop"}


def test_the_serving_container_gets_what_the_contract_needs_and_no_other_does():
    drain = {"propagationSeconds": 6, "quietSeconds": 3, "flushSeconds": 4, "stalledAfterSeconds": 90, "grace": TERMS}
    made = template(drain=drain, **pod(containers=[{"name": "logs", "image": "x"}, container(env=[{"name": "A"}])]))
    logs, serving = made["spec"]["containers"]
    assert "env" not in logs and "volumeMounts" not in logs
    assert serving["env"][0] == {"name": "A"}
    assert {e["name"]: e["value"] for e in serving["env"][1:]} == {
        "TIDEGATE_KEY_DIR": "/var/run/tidegate/drain", "TIDEGATE_PRESTOP_KEY": "prestop-key",
        "TIDEGATE_GRACE_SECONDS": "56", "TIDEGATE_PROPAGATION_SECONDS": "6", "TIDEGATE_QUIET_SECONDS": "3",
        "TIDEGATE_FLUSH_SECONDS": "4", "TIDEGATE_STALLED_AFTER_SECONDS": "90",
    }  # fmt: skip
    (mount,) = serving["volumeMounts"]
    assert (mount["mountPath"], mount["readOnly"]) == ("/var/run/tidegate/drain", True)
    (volume,) = made["spec"]["volumes"]
    assert volume == {"name": mount["name"], "secret": {"secretName": "chat-drain", "optional": True}}


def test_volumes_and_mounts_of_the_user_are_kept():
    mine = container(volumeMounts=[{"name": "m", "mountPath": "/m"}])
    made = template(**pod(containers=[mine], volumes=[{"name": "m", "emptyDir": {}}]))
    assert [v["name"] for v in made["spec"]["volumes"]] == ["m", names.KEY_VOLUME]
    assert [m["name"] for m in made["spec"]["containers"][0]["volumeMounts"]] == ["m", names.KEY_VOLUME]


def test_absent_probes_come_from_the_contract():
    made = server()
    assert made["startupProbe"]["httpGet"] == {"path": "/livez", "port": 9901}
    assert made["startupProbe"]["periodSeconds"] * made["startupProbe"]["failureThreshold"] == 1800
    assert made["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": 9901}
    assert made["readinessProbe"]["periodSeconds"] == 2
    assert made["livenessProbe"]["httpGet"] == {"path": "/livez", "port": 9901}
    assert made["livenessProbe"]["terminationGracePeriodSeconds"] == 10


def test_a_busy_process_is_not_restarted_for_answers_that_are_slow():
    """A restart cuts every stream. Readiness may be quicker: it only sends new requests elsewhere."""
    made = server()
    live, ready = made["livenessProbe"], made["readinessProbe"]
    assert (live["timeoutSeconds"], live["periodSeconds"] * live["failureThreshold"]) == (5, 60)
    assert (ready["timeoutSeconds"], ready["periodSeconds"] * ready["failureThreshold"]) == (2, 4)
    assert made["startupProbe"]["terminationGracePeriodSeconds"] == 10, "what never answered has nothing to drain"
    assert "timeoutSeconds" not in made["startupProbe"], "its budget is counted in tries of a second"


def test_probes_of_the_spec_are_taken_part_by_part():
    made = server(
        probes={
            "startup": {"path": "/up", "budgetSeconds": 90},
            "readiness": {"port": "http", "periodSeconds": 5},
            "liveness": {"terminationGracePeriodSeconds": 3},
        }
    )
    assert made["startupProbe"]["httpGet"] == {"path": "/up", "port": 9901}
    assert made["startupProbe"]["periodSeconds"] * made["startupProbe"]["failureThreshold"] == 90
    assert made["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    assert made["readinessProbe"]["periodSeconds"] == 5
    assert made["livenessProbe"]["terminationGracePeriodSeconds"] == 3


def test_a_probe_in_the_template_itself_wins_whole():
    own = {"tcpSocket": {"port": 8000}}
    made = server(probes={"liveness": {"path": "/x"}}, **pod(containers=[container(livenessProbe=own)]))
    assert made["livenessProbe"] == own
    assert made["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_every_pod_has_a_startup_probe_since_started_means_nothing_without():
    for probes in ({}, {"readiness": {"path": "/r"}}):
        assert "startupProbe" in server(probes=probes)


def test_the_grace_period_is_the_sum_of_its_terms():
    grace = grace_period(spec(drain={"propagationSeconds": 6, "grace": TERMS}))
    assert [(t.name, t.seconds, t.source) for t in grace.terms] == [
        ("propagation", 6, "Declared"), ("drain", 40, "Declared"), ("teardown", 7, "Declared"),
        ("safety", 3, "Declared"),
    ]  # fmt: skip
    assert grace.seconds == 6 + 40 + 7 + 3 == grace.term("drain") + 16
    assert template(drain={"propagationSeconds": 6, "grace": TERMS})["spec"]["terminationGracePeriodSeconds"] == 56


def test_the_grace_period_is_capped():
    read = spec()
    grace = read.drain.grace.model_copy(update={"initial_seconds": 5000})
    capped = read.model_copy(update={"drain": read.drain.model_copy(update={"grace": grace})})
    assert grace_period(capped).seconds == 600


def test_the_user_s_template_is_not_touched():
    read = spec(**pod(containers=[container(env=[{"name": "A"}], volumeMounts=[], lifecycle={})], volumes=[]))
    before = copy.deepcopy(read.template)
    held = objects.Revision("h", "{}", grace_period(read), "k")
    first = objects.pod_template(OWNER, read, held)
    assert read.template == before
    first["spec"]["containers"][0]["env"].append({"name": "B"})
    assert read.template == before
    assert objects.pod_template(OWNER, read, held) != first


def test_null_is_absent_as_in_kubernetes_wherever_tidegate_adds_something():
    nulls = {
        "env": None, "volumeMounts": None, "lifecycle": None, "startupProbe": None, "readinessProbe": None,
        "livenessProbe": None,
    }  # fmt: skip
    bare = {"metadata": None, "spec": {"containers": [container(**nulls)], "volumes": None}}
    assert template(template=bare) == template()
    hooked = container(lifecycle={"preStop": None})
    assert template(**pod(containers=[hooked])) == template()
    labelled = {"metadata": {"labels": None, "annotations": None}, "spec": {"containers": [container()]}}
    assert template(template=labelled) == template()


def test_the_digest_tells_whether_the_same_would_be_written_today():
    first = objects.digest(OWNER, spec(), "v1")
    assert first == objects.digest(OWNER, spec(), "v1") == rendered_digest("v1")
    assert first == objects.digest(OWNER, spec(replicas=9, rollout={"maxSurge": 2}), "v1")
    # The grace period may be a measured one, so it is compared by itself.
    assert first == objects.digest(OWNER, spec(drain={"grace": TERMS}), "v1")
    assert first != objects.digest(OWNER, spec(drain={"quietSeconds": 9}), "v1")
    assert first != objects.digest(OWNER, spec("v2"), "v1")


def rendered_digest(hash_: str) -> str:
    read = spec()
    made = objects.deployment(OWNER, read, objects.Revision(hash_, "{}", grace_period(read), "any key"), 1)
    return str(made["metadata"]["annotations"][names.RENDERED])


def test_the_service_selects_the_state_so_a_label_alone_withdraws_a_pod():
    made = objects.service(OWNER, spec())
    assert made["metadata"]["name"] == "chat"
    assert made["spec"]["selector"] == {names.SERVICE: "chat", names.STATE: "serving"}
    assert made["spec"]["ports"] == [{"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"}]
    named = objects.service(OWNER, spec(service={"name": "front", "port": 8080}))
    assert (named["metadata"]["name"], named["spec"]["ports"][0]["port"]) == ("front", 8080)


@pytest.mark.parametrize(("replicas", "least"), [(3, 2), (1, 0), (0, 0)])
def test_the_disruption_budget_is_a_whole_number_over_all_that_is_not_drained(replicas: int, least: int):
    made = objects.disruption_budget(OWNER, spec(replicas=replicas))["spec"]
    assert made["minAvailable"] == least
    assert made["selector"]["matchLabels"] == {names.SERVICE: "chat"}
    (rule,) = made["selector"]["matchExpressions"]
    assert (rule["key"], rule["operator"], rule["values"]) == (names.STATE, "In", ["serving", "draining"])
    held = objects.disruption_budget(OWNER, spec(replicas=replicas, disruption={"mode": "Hold"}))["spec"]
    assert held["minAvailable"] == 2**31 - 1


@pytest.mark.parametrize(
    ("live", "wanted", "said"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": {"x": 1, "y": 2}}, {"a": {"y": 2}}, True),
        ({"a": {"x": 1}}, {"a": {"x": 2}}, False),
        ({"a": None}, {"a": {"x": 1}}, False),
        ({"l": [{"n": 1, "d": 0}, {"n": 2}]}, {"l": [{"n": 2}, {"n": 1}]}, True),
        ({"l": [{"n": 1}]}, {"l": [{"n": 1}, {"n": 2}]}, False),
        ({"l": ["a", "b"]}, {"l": ["a"]}, False),
        ({"l": ["a"]}, {"l": ["a"]}, True),
        ({}, {"l": []}, False),
        ({"a": "1"}, {"a": 1}, False),
    ],
)  # fmt: skip
def test_includes_ignores_what_others_added_and_nothing_that_is_ours(live: object, wanted: object, said: bool):
    assert objects.includes(live, wanted) is said

"""What a user's template must not hold, each beside a neighbour that is fine."""

import copy
from typing import Any

import pytest

from core.stories import container, spec
from tidegate.api import names
from tidegate.core.render.validation import OWN_ENVIRONMENT, findings, port_number, serving_container

ROOT = "spec.template.spec"
FIRST = f"{ROOT}.containers[0]"
HOOK = {"preStop": {"exec": {"command": ["sleep", "5"]}}}


def pod(**fields: Any) -> dict[str, Any]:
    return {"template": {"spec": {"containers": [container()]} | fields}}


def one(**fields: Any) -> dict[str, Any]:
    return {"template": {"spec": {"containers": [container(**fields)]}}}


def labelled(part: str, key: str) -> dict[str, Any]:
    return {"template": {"metadata": {part: {key: "x"}}, "spec": {"containers": [container()]}}}


SIDECAR = {"name": "logs", "image": "logs:1", "lifecycle": HOOK}
CASES = {
    "grace period": (pod(terminationGracePeriodSeconds=30), pod(activeDeadlineSeconds=30),
        f"{ROOT}.terminationGracePeriodSeconds", "set spec.drain.grace.initialSeconds and maxSeconds instead"),
    "grace period 0": (pod(terminationGracePeriodSeconds=0), pod(terminationGracePeriodSeconds=None),
        f"{ROOT}.terminationGracePeriodSeconds", "remove it"),
    "host network": (pod(hostNetwork=True), pod(hostNetwork=False), f"{ROOT}.hostNetwork", "remove hostNetwork"),
    "restart policy": (pod(restartPolicy="Never"), pod(restartPolicy=None),
        f"{ROOT}.restartPolicy", "remove restartPolicy"),
    "our label": (labelled("labels", names.STATE), labelled("labels", "tidegate.dev.example/state"),
        f"spec.template.metadata.labels[{names.STATE}]", "remove it"),
    "our annotation": (labelled("annotations", names.CONTAINER), labelled("annotations", "example.com/x"),
        f"spec.template.metadata.annotations[{names.CONTAINER}]", "remove it"),
    "preStop": (one(lifecycle=HOOK), one(lifecycle={"postStart": {"exec": {"command": ["true"]}}}),
        f"{FIRST}.lifecycle.preStop", "SIGTERM handler"),
    "preStop of another container": (pod(containers=[SIDECAR, container(lifecycle=HOOK)]),
        pod(containers=[SIDECAR, container()]), f"{ROOT}.containers[1].lifecycle.preStop", "SIGTERM handler"),
    "our variable": (one(env=[{"name": "A", "value": "1"}, {"name": names.ENV_GRACE, "value": "9"}]),
        one(env=[{"name": "TIDEGATE_OWN_THING", "value": "9"}]), f"{FIRST}.env[1].name", "remove it"),
    "our mount": (one(volumeMounts=[{"name": "a", "mountPath": names.KEY_DIR + "/"}]),
        one(volumeMounts=[{"name": "a", "mountPath": "/var/run/tidegate"}]),
        f"{FIRST}.volumeMounts[0].mountPath", "mount your volume elsewhere"),
    "our volume": (pod(volumes=[{"name": names.KEY_VOLUME, "emptyDir": {}}]),
        pod(volumes=[{"name": "mine", "emptyDir": {}}]), f"{ROOT}.volumes", "rename your volume"),
}  # fmt: skip


@pytest.mark.parametrize(("bad", "good", "field", "remedy"), CASES.values(), ids=CASES.keys())
def test_a_conflict_names_its_field_and_a_remedy_and_its_neighbour_is_accepted(bad, good, field, remedy):
    found = findings(spec(**bad))
    assert [f.field for f in found] == [field]
    assert remedy in found[0].remedy
    assert str(found[0]) == f"{field}: {found[0].message}; {found[0].remedy}"
    assert findings(spec(**good)) == ()


def test_all_conflicts_are_told_at_once_in_the_order_of_the_template():
    bad = pod(hostNetwork=True, terminationGracePeriodSeconds=3, containers=[container(lifecycle=HOOK)])
    fields = [f.field.removeprefix(ROOT + ".") for f in findings(spec(**bad))]
    assert fields == ["terminationGracePeriodSeconds", "hostNetwork", "containers[0].lifecycle.preStop"]


def unchecked(**fields: Any) -> Any:
    """A spec as an older CRD may still have let it pass, which the parser of today would refuse."""
    return spec().model_copy(update=fields)


def template(*containers: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"containers": list(containers)}}


@pytest.mark.parametrize(
    ("fields", "field", "remedy"),
    [
        ({"container": "elsewhere"}, "spec.container", "name one of its containers"),
        ({"template": template({"name": "a"}, {"name": "b"})}, "spec.port", "or set spec.container"),
        ({"port": "grpc", "container": "server"}, "spec.port", "add it to its ports"),
        ({"template": {"spec": {}}}, "spec.port", "or set spec.container"),
    ],
    ids=["no such container", "nobody declares the port", "the named one does not declare it", "no containers"],
)
def test_a_serving_container_that_cannot_be_found_is_a_finding_too(fields, field, remedy):
    found = findings(unchecked(**fields))
    assert [f.field for f in found] == [field]
    assert remedy in found[0].remedy


def test_a_drain_port_that_is_not_declared_is_a_finding():
    bare = container()
    bare["ports"] = bare["ports"][:1]
    found = findings(unchecked(template=template(bare)))
    assert [f.field for f in found] == ["spec.drain.native.port"]
    assert "or set the number" in found[0].remedy
    assert findings(spec(drain={"native": {"port": 9901}}, **pod(containers=[bare]))) == ()


def test_the_serving_container_is_the_named_one_else_the_one_that_declares_the_port():
    other = {"name": "other", "image": "x", "ports": [{"name": "web", "containerPort": 9000}]}
    both = template(other, container())
    assert serving_container(unchecked(template=both))["name"] == "server"
    assert serving_container(unchecked(template=both, container="other"))["name"] == "other"
    assert serving_container(unchecked(template=both, port=9000))["name"] == "other"
    assert serving_container(unchecked(template=template(other), port=1234))["name"] == "other"
    assert serving_container(unchecked(template=template(other), port="http")) is None


def test_a_port_is_found_by_name_or_taken_as_a_number():
    assert port_number(container(), "admin") == 9901
    assert port_number(container(), 1234) == 1234
    assert port_number(container(), "nope") is None
    assert port_number({"name": "bare"}, "http") is None


def test_every_variable_that_tidegate_sets_is_refused_in_the_user_s_env():
    set_by_us = {value for name, value in vars(names).items() if name.startswith("ENV_")}
    assert set_by_us == OWN_ENVIRONMENT
    for name in set_by_us:
        assert len(findings(spec(**one(env=[{"name": name, "value": "x"}])))) == 1


def test_looking_changes_nothing():
    read = spec(**pod(hostNetwork=True))
    before = copy.deepcopy(read.template)
    findings(read)
    assert read.template == before

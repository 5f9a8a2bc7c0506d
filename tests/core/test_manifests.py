"""What the shipped manifests must always say. Their behaviour is shown in tests/cluster/test_policies.py."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from policy_table import TABLE
from tidegate.api import names
from tidegate.api.probes import StartupProbe
from tidegate.api.resource import LLMServiceSpec
from tidegate.core.render.validation import findings

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "manifests"
OVERLAYS = [MANIFESTS / "cluster", MANIFESTS / "operator", ROOT / "crds"]
SAMPLES = sorted((MANIFESTS / "samples").glob("*.yaml"))
CONTROLLERS_KEYS = {"deployment.kubernetes.io/desired-replicas"}
Object = dict[str, Any]


def objects(path: Path) -> list[Object]:
    return [item for item in yaml.safe_load_all(path.read_text()) if item]


def shipped(overlay: Path) -> list[Object]:
    """What `kubectl apply -k` would apply, its transformations aside."""
    listed = yaml.safe_load((overlay / "kustomization.yaml").read_text())["resources"]
    return [item for name in listed for item in objects(overlay / name)]


def of_kind(kind: str) -> list[Object]:
    return [item for item in shipped(MANIFESTS / "cluster") if item["kind"] == kind]


def role(name: str) -> Object:
    (found,) = (item for item in of_kind("ClusterRole") if item["metadata"]["name"] == name)
    return found


def grants(clusterrole: Object) -> Iterator[tuple[str, str, str]]:
    for rule in clusterrole["rules"]:
        for group in rule["apiGroups"]:
            yield from ((group, resource, verb) for resource in rule["resources"] for verb in rule["verbs"])


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda path: path.name)
def test_kustomizations_list_every_file(overlay: Path) -> None:
    listed = yaml.safe_load((overlay / "kustomization.yaml").read_text())["resources"]
    assert sorted(listed) == sorted(path.name for path in overlay.glob("*.yaml") if path.name != "kustomization.yaml")


def test_no_part_that_people_delete_holds_a_crd() -> None:
    for overlay in (MANIFESTS / "cluster", MANIFESTS / "operator"):
        assert "CustomResourceDefinition" not in {item["kind"] for item in shipped(overlay)}
    assert {item["kind"] for item in shipped(ROOT / "crds")} == {"CustomResourceDefinition"}


def test_policies_fail_closed_and_know_no_parameters() -> None:
    """A parameter of our own kind would make every write fail once the CRD is gone."""
    policies = of_kind("ValidatingAdmissionPolicy")
    assert {policy["metadata"]["name"] for policy in policies} == {row.policy for row in TABLE}
    for policy in policies:
        spec = policy["spec"]
        assert spec["failurePolicy"] == "Fail"
        assert "paramKind" not in spec
        for rule in spec["validations"]:
            assert rule["reason"] == "Forbidden"
            assert rule["message"]


def test_policies_know_no_identities() -> None:
    for path in (MANIFESTS / "cluster").glob("*.yaml"):
        assert "userInfo" not in path.read_text()
        assert "authorizer" not in path.read_text()


def test_policies_match_only_what_is_ours() -> None:
    for policy in of_kind("ValidatingAdmissionPolicy"):
        spec = policy["spec"]
        keys = {e["key"] for e in spec["matchConstraints"].get("objectSelector", {}).get("matchExpressions", [])}
        conditions = " ".join(condition["expression"] for condition in spec.get("matchConditions", []))
        assert names.SERVICE in keys or f"'{names.SERVICE}='" in conditions, policy["metadata"]["name"]


def test_every_policy_is_bound_to_deny() -> None:
    bindings = of_kind("ValidatingAdmissionPolicyBinding")
    assert sorted(binding["spec"]["policyName"] for binding in bindings) == sorted(
        policy["metadata"]["name"] for policy in of_kind("ValidatingAdmissionPolicy")
    )
    for binding in bindings:
        assert binding["spec"]["validationActions"] == ["Deny"]
        assert "matchResources" not in binding["spec"]


def test_names_in_the_policies_are_those_of_the_code() -> None:
    known = {value for key, value in vars(names).items() if key.isupper() and isinstance(value, str)}
    for path in (MANIFESTS / "cluster").glob("*.yaml"):
        used = set(re.findall(r"[a-z.]*tidegate\.dev/[a-z-]+|deployment\.kubernetes\.io/[a-z-]+", path.read_text()))
        assert used <= known | CONTROLLERS_KEYS, path.name


def test_decision_table_has_both_sides_of_every_rule() -> None:
    rows = {row.name: row for row in TABLE}
    assert len(rows) == len(TABLE), "two rows have one name"
    for policy in of_kind("ValidatingAdmissionPolicy"):
        messages = [
            rule["message"] + rule.get("messageExpression", "").replace("' +\n", "")
            for rule in policy["spec"]["validations"]
        ]
        refused = [row for row in TABLE if row.policy == policy["metadata"]["name"] and row.refused]
        assert len({row.refused for row in refused}) >= len(messages), policy["metadata"]["name"]
    for row in TABLE:
        if row.refused is None:
            assert row.neighbour is None
        else:
            assert row.neighbour is not None
            assert rows[row.neighbour].policy == row.policy
            assert rows[row.neighbour].refused is None, f"{row.neighbour} is refused as well"


def test_operator_role_is_narrow() -> None:
    granted = set(grants(role("tidegate-operator")))
    assert not [grant for grant in granted if "*" in grant]
    assert {verb for _, resource, verb in granted if resource == "secrets"} == {"get", "create", "patch"}
    assert {verb for _, resource, verb in granted if resource == "llmservices"} == {"get", "list", "watch"}
    assert not {verb for _, _, verb in granted} & {"update", "deletecollection", "escalate", "bind", "impersonate"}
    deleted = {resource for _, resource, verb in granted if verb == "delete"}
    assert deleted == {"pods", "deployments", "services"}


def test_user_roles_join_the_built_in_ones() -> None:
    prefix = "rbac.authorization.k8s.io/aggregate-to-"
    assert role("tidegate-view")["metadata"]["labels"] == {f"{prefix}view": "true"}
    assert role("tidegate-edit")["metadata"]["labels"] == {f"{prefix}edit": "true", f"{prefix}admin": "true"}
    assert {verb for _, _, verb in grants(role("tidegate-view"))} == {"get", "list", "watch"}
    assert ("tidegate.dev", "llmservices/scale", "patch") in set(grants(role("tidegate-edit")))
    assert "llmservices/status" not in {resource for _, resource, _ in grants(role("tidegate-edit"))}


def test_operator_runs_alone_and_restricted() -> None:
    items = {item["kind"]: item for item in shipped(MANIFESTS / "operator")}
    assert items["Namespace"]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    spec = items["Deployment"]["spec"]
    assert (spec["replicas"], spec["strategy"]["type"]) == (1, "Recreate")
    pod = spec["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["serviceAccountName"] == items["ServiceAccount"]["metadata"]["name"]
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "cpu" not in container["resources"]["limits"], "a throttled operator is late for every pod"
    (health,) = (port for port in container["ports"] if port["name"] == "health")
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "health"}
    assert health["containerPort"] == 8080
    (metrics,) = (port for port in container["ports"] if port["name"] == "metrics")
    assert metrics["containerPort"] == 8081, "what `tidegate operator` listens on unless told otherwise"


def test_the_gateway_image_that_is_shipped_is_the_one_that_the_operator_takes_by_itself() -> None:
    (deployment,) = (item for item in shipped(MANIFESTS / "operator") if item["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    images = [item["value"] for item in container["env"] if item["name"] == "TIDEGATE_GATEWAY_IMAGE"]
    assert images == [names.GATEWAY_IMAGE]


def test_operator_is_bound_to_its_role() -> None:
    items = {item["kind"]: item for item in shipped(MANIFESTS / "operator")}
    binding = items["ClusterRoleBinding"]
    assert binding["roleRef"]["name"] == role("tidegate-operator")["metadata"]["name"]
    (subject,) = binding["subjects"]
    namespace = yaml.safe_load((MANIFESTS / "operator/kustomization.yaml").read_text())["namespace"]
    assert subject["namespace"] == namespace == items["Namespace"]["metadata"]["name"]


def test_operator_image_can_be_replaced() -> None:
    """kustomize replaces by name: with another name in the Deployment an overlay would change nothing."""
    kustomization = yaml.safe_load((MANIFESTS / "operator/kustomization.yaml").read_text())
    (image,) = kustomization["images"]
    deployment = next(item for item in shipped(MANIFESTS / "operator") if item["kind"] == "Deployment")
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"].rpartition(":")[0] == image["name"]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
def test_samples_are_valid_and_free_of_conflicts(sample: Path) -> None:
    for item in objects(sample):
        if item["kind"] == names.KIND:
            assert item["apiVersion"] == names.API_VERSION
            spec = LLMServiceSpec.parse(item["spec"])
            assert [str(finding) for finding in findings(spec)] == []


def test_values_that_the_sample_calls_defaults_are_defaults() -> None:
    (sample,) = objects(MANIFESTS / "samples/chat.yaml")
    said = LLMServiceSpec.parse(sample["spec"])
    left_out = LLMServiceSpec.parse(
        {key: sample["spec"][key] for key in ("template", "container", "port")}
        | {
            "drain": {key: sample["spec"]["drain"][key] for key in ("mode", "native")},
        }
    )
    assert (said.rollout, said.drain, said.disruption) == (left_out.rollout, left_out.drain, left_out.disruption)
    assert said.service.port == left_out.service.port
    assert said.probes.startup is not None
    assert said.probes.startup.budget_seconds == StartupProbe().budget_seconds


def test_network_policy_sample_admits_the_operator() -> None:
    (policy,) = objects(MANIFESTS / "samples/networkpolicy.yaml")
    (rule,) = (rule for rule in policy["spec"]["ingress"] if "from" in rule)
    (peer,) = rule["from"]
    items = {item["kind"]: item for item in shipped(MANIFESTS / "operator")}
    assert peer["namespaceSelector"]["matchLabels"] == {
        "kubernetes.io/metadata.name": items["Namespace"]["metadata"]["name"]
    }
    labels = items["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert peer["podSelector"]["matchLabels"].items() <= labels.items()

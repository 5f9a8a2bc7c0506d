"""Pods with a gateway: what is put in front of the engine, whom a port's name leads to, what cannot be shared."""

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.stories import NOW, OWNER, PARTS, deployment, drained, draining, only, says, serving, story, told, unready
from core.stories import raw_spec as native_spec
from tidegate.api import names
from tidegate.api.conditions import ConditionType, Outcome, Reason
from tidegate.api.gateway import Engine
from tidegate.api.resource import LLMServiceSpec
from tidegate.cluster import project
from tidegate.core.drain_time.grace import grace_period
from tidegate.core.planner import actions, revision
from tidegate.core.planner.notices import template_notices
from tidegate.core.planner.observe import observe
from tidegate.core.planner.plan import plan
from tidegate.core.render import engines, objects, sidecar, validation
from tidegate.core.render.engines import PRESETS
from tidegate.core.report import sentences
from tidegate.core.report.conditions import conditions
from tidegate.core.report.notices import of_template
from tidegate.core.state.pods import failure
from tidegate.core.state.snapshot import ContainerStatus, Pod, Trouble

ROOT = "spec.template.spec"
HOOK = {"preStop": {"exec": {"command": ["sleep", "5"]}}}


def engine(**more: Any) -> dict[str, Any]:
    """A container as its engine's documentation has it: one port, no drain endpoint."""
    return {"name": "server", "image": "engine:1", "ports": [{"name": "http", "containerPort": 8000}], **more}


def raw(*containers: dict[str, Any], pod: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "replicas": 3, "port": "http", "drain": {"mode": "Gateway"},
        "template": {"spec": {"containers": list(containers) or [engine()]} | (pod or {})},
    }  # fmt: skip
    for key, value in changes.items():
        spec[key] = spec.get(key, {}) | value if key in PARTS else value
    return spec


def spec(*containers: dict[str, Any], **changes: Any) -> LLMServiceSpec:
    return LLMServiceSpec.parse(raw(*containers, **changes))


def pod(*containers: dict[str, Any], image: str = "gw:1", **changes: Any) -> dict[str, Any]:
    read = spec(*containers, **changes)
    assert validation.findings(read) == ()
    held = objects.Revision("5c9f2b7d1e", "{}", grace_period(read), "prestop-key", image)
    found: dict[str, Any] = objects.deployment(OWNER, read, held, 1)["spec"]["template"]
    return found


def gateway(*containers: dict[str, Any], **changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = pod(*containers, **changes)["spec"]["initContainers"][-1]
    assert found["name"] == "tidegate-gateway"
    return found


def environment(*containers: dict[str, Any], **changes: Any) -> dict[str, str]:
    return {item["name"]: item["value"] for item in gateway(*containers, **changes)["env"]}


def server(*containers: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return next(c for c in pod(*containers, **changes)["spec"]["containers"] if c["name"] == "server")


# -- the sidecar


def test_the_gateway_is_the_last_native_sidecar_so_that_nothing_of_the_user_s_goes_before_it():
    before = [{"name": "download", "image": "d"}, {"name": "mesh", "image": "m", "restartPolicy": "Always"}]
    made = pod(pod={"initContainers": before})["spec"]["initContainers"]
    assert made[:2] == before
    assert (made[2]["name"], made[2]["restartPolicy"], made[2]["args"]) == ("tidegate-gateway", "Always", ["gateway"])


def test_the_gateway_is_told_everything_by_its_environment():
    drain = {"propagationSeconds": 6, "quietSeconds": 3, "flushSeconds": 4, "stalledAfterSeconds": 90}
    assert environment(drain=drain) == {
        "TIDEGATE_LISTEN": ":9900", "TIDEGATE_UPSTREAM": "127.0.0.1:8000", "TIDEGATE_ADMIN": ":9901",
        "TIDEGATE_ENGINE": "Custom", "TIDEGATE_KEY_DIR": "/var/run/tidegate/drain",
        "TIDEGATE_PRESTOP_KEY": "prestop-key", "TIDEGATE_GRACE_SECONDS": "141", "TIDEGATE_PROPAGATION_SECONDS": "6",
        "TIDEGATE_QUIET_SECONDS": "3", "TIDEGATE_FLUSH_SECONDS": "4", "TIDEGATE_STALLED_AFTER_SECONDS": "90",
    }  # fmt: skip


def test_what_spec_gateway_says_reaches_it():
    routes = [{"pathPrefix": "/v1/embeddings", "timeouts": {"totalSeconds": 10}}, {"pathPrefix": "/", "timeouts": {}}]
    said = {
        "listenPort": 7001, "adminPort": 7002, "warmup": {"path": "/v1/completions", "body": '{"max_tokens": 1}'},
        "timeouts": {"connectSeconds": 2, "idleSeconds": 0, "totalSeconds": 900}, "routes": routes,
        "keepAliveSeconds": 4000,
    }  # fmt: skip
    told_ = environment(gateway=said)
    assert (told_["TIDEGATE_LISTEN"], told_["TIDEGATE_ADMIN"]) == (":7001", ":7002")
    assert (told_["TIDEGATE_WARMUP_PATH"], told_["TIDEGATE_WARMUP_BODY"]) == ("/v1/completions", '{"max_tokens": 1}')
    limits = [told_[f"TIDEGATE_{name}_SECONDS"] for name in ("CONNECT", "IDLE", "TOTAL", "KEEP_ALIVE")]
    assert limits == ["2", "0", "900", "4000"]
    assert json.loads(told_["TIDEGATE_ROUTES"]) == routes


def test_no_word_of_the_user_s_is_taken_for_a_variable():
    """The kubelet would put the key itself in its place."""
    said = environment(gateway={"warmup": {"path": "/x", "body": '{"prompt": "$(TIDEGATE_PRESTOP_KEY) $5 $$"}'}})
    assert said["TIDEGATE_WARMUP_BODY"] == '{"prompt": "$$(TIDEGATE_PRESTOP_KEY) $$5 $$$$"}'


def test_image_pull_policy_and_resources_can_be_overridden_and_the_image_is_the_operator_s_otherwise():
    own = gateway()
    assert own["image"] == "gw:1" and "imagePullPolicy" not in own
    assert own["resources"] == {"requests": {"cpu": "50m", "memory": "64Mi"}}, "no CPU limit"
    resources = {"requests": {"cpu": 2}, "limits": {"cpu": 2, "memory": "1Gi"}}
    other = gateway(gateway={"image": "mine:2", "imagePullPolicy": "Never", "resources": resources})
    assert (other["image"], other["imagePullPolicy"]) == ("mine:2", "Never")
    assert other["resources"] == {
        "requests": {"cpu": 2, "memory": "64Mi"}, "limits": {"cpu": 2, "memory": "1Gi"},
    }  # fmt: skip


def test_the_gateway_is_restricted_and_alone_has_the_drain_key():
    others = [{"name": "logs", "image": "x"}, engine(volumeMounts=[{"name": "m", "mountPath": "/m"}])]
    made = pod(*others, pod={"volumes": [{"name": "m", "emptyDir": {}}]})["spec"]
    own = made["initContainers"][-1]
    secure = own["securityContext"]
    assert secure["runAsNonRoot"] is True and secure["runAsUser"] == 65532
    assert secure["allowPrivilegeEscalation"] is False and secure["readOnlyRootFilesystem"] is True
    assert secure["capabilities"] == {"drop": ["ALL"]} and secure["seccompProfile"] == {"type": "RuntimeDefault"}
    key = {"name": names.KEY_VOLUME, "secret": {"secretName": "chat-drain", "optional": True}}
    assert made["volumes"] == [{"name": "m", "emptyDir": {}}, key]
    mounted = {c["name"] for c in (*made["containers"], own) if key["name"] in str(c.get("volumeMounts"))}
    assert mounted == {"tidegate-gateway"}
    assert "env" not in made["containers"][0] and "env" not in made["containers"][1]


def test_its_probes_ask_the_admin_port():
    own = gateway(gateway={"adminPort": 7002}, probes={"readiness": {"periodSeconds": 5}})
    assert own["startupProbe"]["terminationGracePeriodSeconds"] == 10
    asked = {key: own[key]["httpGet"] for key in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert asked == {
        "startupProbe": {"path": "/livez", "port": 7002}, "readinessProbe": {"path": "/readyz", "port": 7002},
        "livenessProbe": {"path": "/livez", "port": 7002},
    }  # fmt: skip
    assert own["readinessProbe"]["periodSeconds"] == 5 and gateway()["readinessProbe"]["periodSeconds"] == 2
    assert own["livenessProbe"]["terminationGracePeriodSeconds"] == 10
    assert own["ports"] == [{"name": "tidegate-admin", "containerPort": 7002}]


# -- the hooks, and who is asked


def test_every_regular_container_waits_for_the_gateway_and_one_with_its_own_hook_keeps_it():
    others = [{"name": "logs", "image": "x"}, {"name": "mesh", "image": "y", "lifecycle": HOOK}, engine()]
    made = pod(*others, gateway={"adminPort": 7002})["spec"]
    waiting = {
        "path": "/drain/prestop", "port": 7002, "httpHeaders": [{"name": "Tidegate-Key", "value": "prestop-key"}],
    }  # fmt: skip
    hooks = {c["name"]: c["lifecycle"]["preStop"] for c in made["containers"]}
    # The kubelet may restart the others alone: their hooks withdraw nothing.
    other = waiting | {"path": "/drain/prestop?container=other"}
    assert hooks == {"logs": {"httpGet": other}, "mesh": HOOK["preStop"], "server": {"httpGet": waiting}}
    # It gets SIGTERM when they have gone; a hook would be called at once, beside theirs.
    assert "lifecycle" not in made["initContainers"][-1]


def test_the_operator_finds_the_contract_at_the_gateway_of_each_pod():
    for number in (9901, 7002):
        made = pod(gateway={"adminPort": number})
        seen = {"metadata": made["metadata"] | {"name": "p", "uid": "u"}, "spec": made["spec"]}
        assert project.pod(seen).contract_port == number
        assert project.pod(project.trim(project.PODS, copy.deepcopy(seen))).contract_port == number


def test_the_serving_container_stays_the_engine_s_for_policies_and_probes():
    assert pod()["metadata"]["annotations"][names.CONTAINER] == "server"


# -- ports


def test_the_request_port_s_name_leads_to_the_gateway_and_the_service_asks_for_it():
    assert server()["ports"] == [{"name": "http", "containerPort": 9900}]
    made = objects.service(OWNER, spec())
    assert made["spec"]["ports"] == [{"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"}]


@pytest.mark.parametrize(
    ("ports", "port", "wanted", "target"),
    [
        ([{"containerPort": 8000}], 8000, [{"containerPort": 9900, "name": "tidegate-http"}], "tidegate-http"),
        (None, 8000, [{"containerPort": 9900, "name": "tidegate-http"}], "tidegate-http"),
        ([{"name": "web", "containerPort": 8000}], 8000, [{"name": "web", "containerPort": 9900}], "web"),
        (
            [{"name": "a", "containerPort": 8000}, {"name": "b", "containerPort": 8000}], "b",
            [{"name": "a", "containerPort": 9900}, {"name": "b", "containerPort": 9900}], "b",
        ),
        (
            [{"name": "http", "containerPort": 8000}, {"name": "q", "containerPort": 8000, "protocol": "UDP"}], "http",
            [{"name": "http", "containerPort": 9900}, {"name": "q", "containerPort": 8000, "protocol": "UDP"}], "http",
        ),
    ],
    ids=["unnamed", "undeclared", "by number", "two names", "UDP beside it"],
)  # fmt: skip
def test_whatever_the_request_port_is_called_the_service_finds_the_gateway(ports, port, wanted, target):
    read = spec(engine(ports=ports), port=port)
    assert server(engine(ports=ports), port=port)["ports"] == wanted
    assert objects.service(OWNER, read)["spec"]["ports"][0]["targetPort"] == target
    assert environment(engine(ports=ports), port=port)["TIDEGATE_UPSTREAM"] == "127.0.0.1:8000"


def test_probes_that_name_the_port_keep_asking_the_engine():
    mine = engine(
        readinessProbe={"httpGet": {"path": "/ready", "port": "http"}},
        livenessProbe={"tcpSocket": {"port": "http"}},
        lifecycle={"postStart": {"httpGet": {"path": "/warm", "port": "http"}}},
    )
    made = server(mine, probes={"startup": {"path": "/up", "port": "http"}})
    assert made["readinessProbe"]["httpGet"] == {"path": "/ready", "port": 8000}
    assert made["livenessProbe"] == {"tcpSocket": {"port": 8000}}
    assert made["lifecycle"]["postStart"]["httpGet"]["port"] == 8000
    assert made["startupProbe"]["httpGet"] == {"path": "/up", "port": 8000}


def test_the_user_s_template_is_not_touched():
    written = raw(engine(readinessProbe={"httpGet": {"path": "/r", "port": "http"}}), pod={"initContainers": []})
    before = copy.deepcopy(written)
    read = LLMServiceSpec.parse(written)
    objects.pod_template(OWNER, read, objects.Revision("h", "{}", grace_period(read), "k"))
    assert written == before


def test_one_service_reaches_pods_with_and_without_a_gateway():
    older = LLMServiceSpec.parse(native_spec())
    assert validation.unroutable(spec(), older) is None
    assert validation.unroutable(older, spec()) is None
    assert objects.service(OWNER, spec()) == objects.service(OWNER, older)
    renamed = spec(engine(ports=[{"name": "web", "containerPort": 8000}]), port="web")
    found = validation.unroutable(renamed, spec())
    assert found is not None and found.field == "spec.port"


# -- conflicts, each beside a neighbour that is fine

METRICS = {"name": "metrics", "image": "m", "ports": [{"name": "prom", "containerPort": 9100}]}


def beside(**port: Any) -> dict[str, Any]:
    return raw(engine(), METRICS | {"ports": [METRICS["ports"][0] | port]})


CONFLICTS = {
    "container name": (raw(engine(), METRICS | {"name": names.GATEWAY}), raw(engine(), METRICS),
        f"{ROOT}.containers[1].name", "rename your container"),
    "init container name": (raw(pod={"initContainers": [{"name": names.GATEWAY, "image": "i"}]}),
        raw(pod={"initContainers": [{"name": "init", "image": "i"}]}),
        f"{ROOT}.initContainers[0].name", "rename your container"),
    "volume name": (raw(pod={"volumes": [{"name": names.KEY_VOLUME, "emptyDir": {}}]}),
        raw(pod={"volumes": [{"name": "mine", "emptyDir": {}}]}), f"{ROOT}.volumes", "rename your volume"),
    "listen port of another container": (beside(containerPort=9900), beside(containerPort=9902),
        f"{ROOT}.containers[1].ports[0].containerPort", "set spec.gateway.listenPort to a free port"),
    "admin port of another container": (beside(containerPort=9901), beside(containerPort=9901, protocol="UDP"),
        f"{ROOT}.containers[1].ports[0].containerPort", "set spec.gateway.adminPort to a free port"),
    "listen port of the engine's own": (
        raw(engine(ports=[{"name": "http", "containerPort": 8000}, {"containerPort": 9900}])),
        raw(engine(ports=[{"name": "http", "containerPort": 8000}, {"containerPort": 9900}]),
            gateway={"listenPort": 9902}),
        f"{ROOT}.containers[0].ports[1].containerPort", "set spec.gateway.listenPort"),
    "listen port by the name of spec.port": (raw(engine(ports=[{"name": "http", "containerPort": 9900}])),
        raw(engine(ports=[{"name": "http", "containerPort": 9900}]), gateway={"listenPort": 9902}),
        "spec.gateway.listenPort", "set a free port"),
    "admin port by the name of spec.port": (raw(engine(ports=[{"name": "http", "containerPort": 9901}])),
        raw(engine(ports=[{"name": "http", "containerPort": 9901}]), gateway={"adminPort": 9902}),
        "spec.gateway.adminPort", "set a free port"),
    "port of a sidecar of the user's": (
        raw(pod={"initContainers": [METRICS | {"ports": [{"containerPort": 9900}], "restartPolicy": "Always"}]}),
        raw(pod={"initContainers": [METRICS | {"ports": [{"containerPort": 9900}]}]}),
        f"{ROOT}.initContainers[0].ports[0].containerPort", "set spec.gateway.listenPort"),
    "another container with the request port's name": (
        raw(engine(), METRICS | {"ports": [{"name": "http", "containerPort": 9100}]}, container="server"),
        raw(engine(), METRICS, container="server"), f"{ROOT}.containers[1].ports[0].name", "rename this port"),
    "preStop of the serving container": (raw(engine(lifecycle=HOOK)),
        raw(engine(lifecycle={"postStart": {"exec": {"command": ["true"]}}})),
        f"{ROOT}.containers[0].lifecycle.preStop", "SIGTERM handler"),
    "readiness path with a space": (raw(probes={"readiness": {"path": "/is ready"}}),
        raw(probes={"readiness": {"path": "/is%20ready"}}), "spec.probes.readiness.path", "percent-encoded"),
    "host network": (raw(pod={"hostNetwork": True}), raw(pod={"hostNetwork": False}), f"{ROOT}.hostNetwork",
        "remove hostNetwork"),
}  # fmt: skip


@pytest.mark.parametrize(("bad", "good", "field", "remedy"), CONFLICTS.values(), ids=CONFLICTS.keys())
def test_a_conflict_names_its_field_and_a_remedy_and_its_neighbour_is_accepted(bad, good, field, remedy):
    found = validation.findings(LLMServiceSpec.parse(bad))
    assert [f.field for f in found] == [field]
    assert remedy in found[0].remedy
    assert validation.findings(LLMServiceSpec.parse(good)) == ()


def test_what_only_a_process_with_the_contract_needs_is_no_conflict_here():
    mine = engine(
        env=[{"name": names.ENV_GRACE, "value": "9"}], volumeMounts=[{"name": "m", "mountPath": names.KEY_DIR}]
    )
    assert validation.findings(spec(mine)) == ()


def test_a_refusal_of_the_api_server_is_told_by_the_field_that_the_user_wrote():
    made = pod(pod={"initContainers": [{"name": "download", "image": "d"}]})
    inside = "spec.template.spec.initContainers[1]."
    assert sidecar.blamed(f"{inside}image", made) == "spec.gateway.image"
    assert sidecar.blamed(f"{inside}resources.requests[cpu]", made) == "spec.gateway.resources.requests[cpu]"
    other = "spec.template.spec.initContainers[0].image"
    assert sidecar.blamed(other, made) == other


# -- engines


@pytest.mark.parametrize("kind", list(Engine))
def test_the_probes_of_an_engine_come_from_its_preset(kind: Engine):
    made, preset = server(engine=str(kind)), PRESETS[kind]
    asked = {"tcpSocket": {"port": 8000}} if preset.path is None else {"httpGet": {"path": preset.path, "port": 8000}}
    assert asked.items() <= made["startupProbe"].items()
    assert made["startupProbe"]["periodSeconds"] * made["startupProbe"]["failureThreshold"] == 1800
    assert made["startupProbe"]["timeoutSeconds"] == preset.probe_seconds
    assert "readinessProbe" not in made, "the gateway asks it"
    assert ("livenessProbe" in made) is (preset.path is not None)
    assert environment(engine=str(kind)).get("TIDEGATE_READY_PATH") == preset.path
    assert environment(engine=str(kind))["TIDEGATE_ENGINE"] == str(kind)


def test_what_the_user_says_of_probes_goes_before_the_preset():
    probes = {
        "startup": {"path": "/up", "budgetSeconds": 90}, "readiness": {"path": "/ready"},
        "liveness": {"path": "/alive", "terminationGracePeriodSeconds": 3},
    }  # fmt: skip
    made = server(probes=probes, engine="VLLM")
    assert made["startupProbe"]["httpGet"] == {"path": "/up", "port": 8000}
    assert made["startupProbe"]["failureThreshold"] == 90
    assert made["livenessProbe"]["httpGet"]["path"] == "/alive"
    assert made["livenessProbe"]["terminationGracePeriodSeconds"] == 3
    assert environment(probes=probes, engine="VLLM")["TIDEGATE_READY_PATH"] == "/ready"
    own = {"httpGet": {"path": "/mine", "port": "http"}}
    assert server(engine(startupProbe=own), engine="VLLM")["startupProbe"]["httpGet"]["path"] == "/mine"
    assert environment(engine(readinessProbe=own), probes=probes)["TIDEGATE_READY_PATH"] == "/mine"
    elsewhere = {"httpGet": {"path": "/mine", "port": 1234}}
    assert environment(engine(readinessProbe=elsewhere), probes=probes)["TIDEGATE_READY_PATH"] == "/ready"


FLAGS = [
    ("VLLM", 8000, {"args": ["--model", "m"]}, []),
    ("VLLM", 9000, {"args": ["--model", "m"]}, ["--port 9000"]),
    ("VLLM", 9000, {"args": ["--model", "m", "--port", "9000"]}, []),
    ("VLLM", 9000, {"args": ["--model", "m", "--port=9000"]}, []),
    ("VLLM", 9000, {"command": ["sh", "-c", "exec vllm serve m --port 9000"]}, []),
    ("VLLM", 9000, {"args": ["--model", "m", "--portable"]}, ["--port 9000"]),
    ("VLLM", 9000, {"args": ["--config", "/etc/vllm.yaml"]}, []),
    ("VLLM", 9000, {}, []),
    ("VLLM", 9000, {"args": ["m"], "envFrom": [{"secretRef": {"name": "x"}}]}, []),
    ("SGLang", 30000, {"args": ["--model-path", "m"]}, ["--host 0.0.0.0"]),
    ("SGLang", 30000, {"args": ["--model-path", "m", "--host", "::"]}, []),
    ("SGLang", 8000, {"args": ["--model-path", "m"]}, ["--port 8000", "--host 0.0.0.0"]),
    ("TGI", 8080, {"args": ["--model-id", "m"]}, ["--port 8080"]),
    ("TGI", 8080, {"args": ["--model-id", "m"], "env": [{"name": "PORT", "value": "8080"}]}, []),
    ("LlamaCpp", 8080, {"args": ["-m", "x.gguf"]}, []),
    ("LlamaCpp", 8000, {"args": ["-m", "x.gguf"], "env": [{"name": "LLAMA_ARG_PORT", "value": "8000"}]}, []),
    ("Custom", 8000, {"args": ["serve"]}, []),
]


def warnings(read: LLMServiceSpec) -> list[tuple[ConditionType, Reason, str]]:
    """What is told of a template behind a gateway."""
    return [(n.type, n.reason, of_template(read, n)) for n in template_notices(read)]


@pytest.mark.parametrize(("kind", "port", "more", "missing"), FLAGS)
def test_flags_that_the_command_line_lacks_are_named(kind, port, more, missing):
    read = spec(engine(ports=[{"name": "http", "containerPort": port}], **more), engine=kind)
    found = list(engines.missing_flags(read.engine, validation.serving_container(read), port))
    assert [text.partition(" (")[0] for text in found] == missing
    verdicts = {kind_: text for kind_, _, text in warnings(read)}
    assert (ConditionType.ENGINE_FLAGS_MISSING in verdicts) is bool(missing)
    assert all(flag in verdicts[ConditionType.ENGINE_FLAGS_MISSING] for flag in missing)


def test_the_page_on_engines_says_what_the_presets_say():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "engines.md").read_text()
    rows = {row.split("`")[1]: row for row in page.splitlines() if row.startswith("| `")}
    assert rows.keys() == {str(kind) for kind in Engine}
    for kind, preset in PRESETS.items():
        cells = [cell.strip() for cell in rows[str(kind)].strip("|").split("|")]
        assert cells[1] == str(preset.port or "")
        assert (preset.path is None) or f"`{preset.path}`" in cells[2]
        assert cells[3] == f"{preset.probe_seconds} s"
        assert ("`--host`, since" in cells[4]) is preset.local
        assert preset.port_variable is None or f"`{preset.port_variable}`" in cells[4]


# -- what status says


def test_other_ports_of_the_pod_are_named_as_uncounted_and_what_is_counted_too():
    other = engine(ports=[{"name": "http", "containerPort": 8000}, {"containerPort": 9000}])
    ((kind, reason, text),) = warnings(spec(other, METRICS))
    assert (kind, reason) == (ConditionType.PORTS_UNCOUNTED, Reason.PORTS_BESIDE_GATEWAY)
    assert "9000 of container server, prom (9100) of container metrics" in text
    assert "waits only for requests to port http (9900)" in text and "directly to the engine's port 8000" in text
    assert warnings(spec(engine(), METRICS | {"ports": []})) == []
    assert warnings(LLMServiceSpec.parse(native_spec())) == [], "a process of its own knows its ports"


def gateway_story(*pods: Pod, **changes: Any) -> Any:
    """A story of a service behind the gateway, all pods of the wanted revision."""
    written = raw(engine(image="app:v1"), **changes)
    read = LLMServiceSpec.parse(written)
    held = deployment(
        "v1", len(pods), source=revision.source(written), rendered=objects.digest(OWNER, read, "v1"),
        grace_seconds=grace_period(read).seconds,
    )  # fmt: skip
    return replace(
        story("v1", *pods, deployments=[held]),
        raw_spec=written, spec=read,
        live_service=objects.service(OWNER, read), live_budget=objects.disruption_budget(OWNER, read),
    )  # fmt: skip


def seen(snapshot: Any) -> dict[str, str]:
    return {c.type: c.message for c in conditions(plan(snapshot)) if c.true}


def fine(name: str, **fields: Any) -> Pod:
    return serving(name, **({"gateway": ContainerStatus(running=True, started=True)} | fields))


def test_a_service_behind_the_gateway_stands_still_and_says_only_what_is_so():
    standing = gateway_story(fine("v1-1"), fine("v1-2"), fine("v1-3"))
    assert told(standing) == []
    assert seen(standing).keys() == {ConditionType.READY}


def test_a_newer_operator_s_other_image_rolls_no_pod_and_is_told():
    newer = replace(gateway_story(fine("v1-1"), fine("v1-2"), fine("v1-3")), gateway_image="gateway:2")
    assert told(newer) == []
    assert seen(newer).keys() == {ConditionType.READY, ConditionType.TEMPLATE_OUTDATED}
    pinned = gateway_story(fine("v1-1"), fine("v1-2"), fine("v1-3"), gateway={"image": "mine:1"})
    assert seen(replace(pinned, gateway_image="gateway:2")).keys() == {ConditionType.READY}
    assert seen(
        replace(story("v1", serving("v1-1"), serving("v1-2"), serving("v1-3")), gateway_image="g:2")
    ).keys() == {ConditionType.READY}, "no gateway, no other image"


def test_other_words_in_spec_gateway_are_another_revision():
    first = revision.source(raw())
    assert revision.source(raw(gateway={})) != first
    assert revision.source(raw(gateway={"image": "a"})) != revision.source(raw(gateway={"image": "b"}))
    assert revision.source(raw(engine="VLLM")) != first
    back = revision.spec_of(revision.source(raw(engine="VLLM", gateway={"adminPort": 7002})))
    assert back is not None and (back.engine, back.gateway.admin_port) == (Engine.VLLM, 7002)


def test_readiness_of_the_engine_s_own_is_no_trouble_since_the_gateway_has_one():
    own = {"httpGet": {"path": "/health", "port": 8000}}
    read = spec(engine(readinessProbe=own))
    assert validation.readiness_ignores_drains(read, validation.serving_container(read) or {}) is False


def test_a_pod_whose_gateway_does_not_run_holds_no_work_and_one_whose_engine_has_not_started_neither():
    down, late = ContainerStatus(waiting_reason="CrashLoopBackOff"), ContainerStatus(running=True)
    pods = {
        "v1-1": fine("v1-1"), "v1-2": unready("v1-2", gateway=down), "v1-3": unready("v1-3", gateway=late),
        "v1-4": unready("v1-4", gateway=late, container=late),
    }  # fmt: skip
    view = observe(gateway_story(*pods.values()))
    assert {name for name, found in pods.items() if view.holds_no_work(found)} == {"v1-2", "v1-4"}
    mute = replace(gateway_story(draining("v1-1", gateway=down), fine("v1-2"), fine("v1-3")), readings={})
    assert only(mute, actions.MarkDrained).outcome.outcome == Outcome.VANISHED


def test_a_gateway_that_does_not_come_up_is_told_by_name():
    pulling = ContainerStatus(waiting_reason="ImagePullBackOff", waiting_message="no such tag")
    waits = ContainerStatus(waiting_reason="PodInitializing")
    found = failure(unready("v1-1", gateway=pulling, container=waits))
    assert found is not None
    assert sentences.failure(found) == "ImagePullBackOff in container tidegate-gateway: no such tag"
    found = failure(unready("v1-1", gateway=ContainerStatus(running=True), container=pulling))
    assert found is not None and sentences.failure(found).startswith("ImagePull")
    assert failure(fine("v1-1")) is None


def test_an_unreachable_gateway_names_its_own_port():
    mute = gateway_story(fine("v1-1"), fine("v1-2"), fine("v1-3"), replicas=2)
    troubles = {f"uid-v1-{n}": Trouble(NOW - 1, "refused", "connection refused") for n in (1, 2, 3)}
    said = seen(replace(mute, readings={}, troubles=troubles))
    assert "Check spec.gateway.adminPort" in said[ConditionType.DRAIN_ENDPOINT_UNREACHABLE]


def test_status_of_both_containers_is_read():
    running = {"running": {"startedAt": "2026-11-29T20:00:00Z"}}
    found = project.pod(
        {
            "metadata": {"name": "p", "uid": "u", "annotations": {names.CONTAINER: "server"}},
            "status": {
                "containerStatuses": [{"name": "server", "started": False, "state": {"waiting": {"reason": "X"}}}],
                "initContainerStatuses": [{"name": names.GATEWAY, "started": True, "state": running}],
            },
        }
    )
    assert found.gateway is not None and found.gateway.started and found.any_running
    assert not found.container.running and found.container.waiting_reason == "X"
    assert project.pod({"metadata": {"name": "p", "uid": "u"}}).gateway is None


def test_a_drained_pod_and_a_draining_one_behind_the_gateway_are_those_of_any_other():
    pods = (draining("v1-1", gateway=ContainerStatus(running=True, started=True)), fine("v1-2"), fine("v1-3"))
    busy = gateway_story(*pods)
    assert told(busy) == []
    sealed = replace(busy, readings=busy.readings | {"uid-v1-1": says(pods[0], "sealed")})
    assert told(sealed) == ["drained v1-1: Drained"]
    assert drained("v1-1").gateway is None

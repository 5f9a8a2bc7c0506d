"""Specs that are refused, each beside the nearest one that is not.

One table for both who refuse: the API server by the CRD, and the operator's own parser. Both have to name the same
field and a remedy.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ABSENT = object()


def manifest(edits: Mapping[str, Any] | None = None, name: str = "chat") -> dict[str, Any]:
    """The smallest LLMService, its spec edited at dotted paths."""
    return {
        "apiVersion": "tidegate.dev/v1alpha1",
        "kind": "LLMService",
        "metadata": {"name": name},
        "spec": edited(SPEC, edits or {}),
    }


def edited(document: Mapping[str, Any], edits: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `document` with values set, or removed where ABSENT, at dotted paths; numbers index lists."""
    result = copy.deepcopy(dict(document))
    for path, value in edits.items():
        *parents, last = path.split(".")
        node: Any = result
        for parent in parents:
            node = node[int(parent)] if isinstance(node, list) else node.setdefault(parent, {})
        if value is ABSENT:
            del node[last]
        else:
            node[last] = value
    return result


SPEC: dict[str, Any] = {
    "port": "http",
    "template": {
        "spec": {
            "containers": [
                {
                    "name": "server",
                    "image": "example/app:1",
                    "ports": [{"name": "http", "containerPort": 8000}, {"name": "admin", "containerPort": 9901}],
                }
            ]
        }
    },
    "drain": {"mode": "Native"},
}
SIDECAR = {"name": "metrics", "image": "example/metrics:1", "ports": [{"name": "prom", "containerPort": 9100}]}
TWO = [*SPEC["template"]["spec"]["containers"], SIDECAR]
TWINS = [
    {"name": "a", "image": "i", "ports": [{"containerPort": 80}]},
    {"name": "b", "image": "i", "ports": [{"containerPort": 80}]},
]


@dataclass(frozen=True)
class Refusal:
    """`bad` is refused under `at`, in words that hold `says`, or `parser_says` where the parser has its own words."""

    story: str
    at: str
    bad: Mapping[str, Any]
    good: Mapping[str, Any]
    says: str
    parser_says: str = ""


def bound(path: str, bad: int, good: int) -> Refusal:
    """An integer just outside its bounds."""
    least = bad < good
    return Refusal(
        f"{path} {bad}",
        f"spec.{path}",
        {path: bad},
        {path: good},
        f"should be {'greater' if least else 'less'} than or equal to {good}",
        f"must be at {'least' if least else 'most'} {good}",
    )


PORT_SAYS = "must be a port number from 1 to 65535 without quotes, or the name of a container port"
UNDECLARED = "does not declare: add a port named"
SLOTS_SAY = "must be a number of pods from 0 to 1000 without quotes, or a percentage"
GRACE_SAYS = "raise grace.maxSeconds or lower a term"

FOREIGN = {"method": "POST", "path": "/internal/drain", "answersWhenOver": True}
COUNT = {"path": "/internal/stats", "pointer": "/active"}
HEADER = {"name": "X-Drain-Token", "secretKeyRef": {"name": "my-app", "key": "drain"}}
PATH_SAYS = "must be an absolute path"
POINTER_SAYS = "must be a JSON pointer (RFC 6901)"
HEADER_SAYS = "must be the name of a header that carries a secret"
OVER_SAYS = "set count to where it can read the number of requests"


def foreign(**fields: Any) -> dict[str, Any]:
    """An endpoint of the application's own, some of its fields changed, or left out where ABSENT."""
    known = FOREIGN | {"count": COUNT, "header": HEADER} | fields
    return {"drain.native.foreign": {key: value for key, value in known.items() if value is not ABSENT}}


def counted(**fields: Any) -> dict[str, Any]:
    return foreign(count={k: v for k, v in (COUNT | fields).items() if v is not ABSENT})


def headed(name: str = "X-Drain-Token", ref: str = "my-app", key: str = "drain") -> dict[str, Any]:
    return foreign(header={"name": name, "secretKeyRef": {"name": ref, "key": key}})


FOREIGN_REFUSALS = [
    (
        "an endpoint of which nothing says when it is over",
        "answersWhenOver",
        foreign(answersWhenOver=ABSENT, count=ABSENT),
        foreign(answersWhenOver=ABSENT),
        OVER_SAYS,
    ),
    (
        "an endpoint that does not wait, without a count",
        "answersWhenOver",
        foreign(answersWhenOver=False, count=ABSENT),
        foreign(answersWhenOver=True, count=ABSENT),
        OVER_SAYS,
    ),
    ("a drain URL", "path", foreign(path="http://10.0.0.1/drain"), foreign(path="/drain?timeout=600"), PATH_SAYS),
    ("a drain path without a slash", "path", foreign(path="drain"), foreign(path="/drain"), PATH_SAYS),
    ("a drain path that begins as a host does", "path", foreign(path="//evil/x"), foreign(path="/evil/x"), PATH_SAYS),
    ("a drain path with a space", "path", foreign(path="/a b"), foreign(path="/a%20b"), PATH_SAYS),
    ("a count on another host", "count.path", counted(path="//h/stats"), counted(path="/"), PATH_SAYS),
    (
        "a pointer without its slash",
        "count.pointer",
        counted(pointer="active"),
        counted(pointer="/active"),
        POINTER_SAYS,
    ),
    ("a pointer in dots", "count.pointer", counted(pointer="$.a.b"), counted(pointer="/a/b"), POINTER_SAYS),
    ("a pointer with a bare ~", "count.pointer", counted(pointer="/a~b"), counted(pointer="/a~0b"), POINTER_SAYS),
    ("a pointer that ends in ~", "count.pointer", counted(pointer="/a~"), counted(pointer=""), POINTER_SAYS),
    ("a header that chooses the host", "header.name", headed("hOsT"), headed("X-Host"), HEADER_SAYS),
    ("a header with a colon", "header.name", headed("X-Token:"), headed("X_Token"), HEADER_SAYS),
    (
        "a Secret of another namespace",
        "header.secretKeyRef.name",
        headed(ref="other/my-app"),
        headed(ref="other.my-app"),
        "must be the name of a Secret in this namespace",
    ),
    (
        "a Secret's key with a slash",
        "header.secretKeyRef.key",
        headed(key="drain/token"),
        headed(key="drain.token"),
        "must be a key of the Secret's data",
    ),
]


def behind(**fields: Any) -> dict[str, Any]:
    """A service behind the gateway; fields of spec.gateway, those with a dot written with __."""
    given = {f"gateway.{key.replace('__', '.')}": value for key, value in fields.items()}
    return {"drain.mode": "Gateway", "template.spec.containers.0.ports": PLAIN_PORTS} | given


PLAIN_PORTS = [{"name": "http", "containerPort": 8000}]
AMOUNTS = (
    ("requests", "cpu", "0.5"),
    ("requests", "memory", 134_217_728),
    ("limits", "cpu", 2),
    ("limits", "memory", "1.5Gi"),
)
ROUTES = [{"pathPrefix": "/v1/embeddings", "timeouts": {"totalSeconds": 10}}]
GATEWAY_REFUSALS = [
    Refusal(
        "a gateway where the service drains itself",
        "spec.gateway",
        {"gateway": {}},
        behind() | {"gateway": {}},
        "remove it, or set drain.mode to Gateway",
    ),
    Refusal(
        "an engine where the service drains itself",
        "spec.engine",
        {"engine": "Custom"},
        behind() | {"engine": "Custom"},
        "remove it, or set drain.mode to Gateway",
    ),
    Refusal(
        "a drain port of the service's own behind the gateway",
        "spec.drain.native",
        behind() | {"drain.native": {"port": 9901}},
        {"drain.native": {"port": 9901}},
        "remove it, or set mode to Native",
    ),
    Refusal(
        "an engine that is not known",
        "spec.engine",
        behind() | {"engine": "vLLM"},
        behind() | {"engine": "VLLM"},
        'supported values: "VLLM", "SGLang", "TGI", "LlamaCpp", "Custom"',
        "must be 'VLLM', 'SGLang', 'TGI', 'LlamaCpp' or 'Custom'",
    ),
    Refusal(
        "a readiness port behind the gateway",
        "spec.probes.readiness.port",
        behind() | {"probes.readiness.port": "http"},
        behind() | {"probes.readiness.path": "/ready", "probes.liveness.port": "http"},
        "put a readinessProbe for that port into template",
    ),
    Refusal(
        "an engine at the port where the gateway listens",
        "spec.gateway.listenPort",
        behind() | {"port": 9900},
        behind(listenPort=9902) | {"port": 9900},
        "set it to a free port",
    ),
    Refusal(
        "an engine at the port of the contract",
        "spec.gateway.adminPort",
        behind() | {"port": 9901},
        behind(adminPort=9902) | {"port": 9901},
        "set it to a free port",
    ),
    Refusal(
        "the contract on the port that carries requests",
        "spec.gateway.adminPort",
        behind(listenPort=9901),
        behind(listenPort=9901, adminPort=9900),
        "must differ from listenPort",
    ),
    Refusal(
        "a port that needs root",
        "spec.gateway.listenPort",
        behind(listenPort=80),
        behind(listenPort=1024),
        "should be greater than or equal to 1024",
        "must be at least 1024",
    ),
    Refusal(
        "an admin port that is none",
        "spec.gateway.adminPort",
        behind(adminPort=65_536),
        behind(adminPort=65_535),
        "should be less than or equal to 65535",
        "must be at most 65535",
    ),
    Refusal(
        "an image that is a URL",
        "spec.gateway.image",
        behind(image="https://r.example/g:1 "),
        behind(image="r.example:5000/a/g:1@sha256:00"),
        "must be an image reference",
    ),
    Refusal(
        "a pull policy misspelt",
        "spec.gateway.imagePullPolicy",
        behind(imagePullPolicy="IfMissing"),
        behind(imagePullPolicy="IfNotPresent"),
        'supported values: "Always", "IfNotPresent", "Never"',
        "must be 'Always', 'IfNotPresent' or 'Never'",
    ),
    *(
        Refusal(
            f"an amount of {second} in {first} that is none",
            f"spec.gateway.resources.{first}.{second}",
            behind(resources={first: {second: "1e3 MB"}}),
            behind(resources={first: {second: good}}),
            "must be a quantity such as 500m",
        )
        for first, second, good in AMOUNTS
    ),
    Refusal(
        "a warm-up of another host",
        "spec.gateway.warmup.path",
        behind(warmup={"path": "http://engine/v1/completions"}),
        behind(warmup={"path": "/v1/completions", "body": "{}"}),
        PATH_SAYS,
    ),
    Refusal(
        "a warm-up without a path",
        "spec.gateway.warmup.path",
        behind(warmup={"body": "{}"}),
        behind(warmup={"path": "/"}),
        "Required value",
        "is required",
    ),
    Refusal(
        "a negative idle time",
        "spec.gateway.timeouts.idleSeconds",
        behind(timeouts={"idleSeconds": -1}),
        behind(timeouts={"idleSeconds": 0}),
        "should be greater than or equal to 0",
        "must be at least 0",
    ),
    Refusal(
        "a route to another host",
        "spec.gateway.routes[0].pathPrefix",
        behind(routes=[{"pathPrefix": "v1", "timeouts": {}}]),
        behind(routes=ROUTES),
        PATH_SAYS,
    ),
    Refusal(
        "a route that says nothing",
        "spec.gateway.routes[0].timeouts",
        behind(routes=[{"pathPrefix": "/v1"}]),
        behind(routes=[{"pathPrefix": "/v1", "timeouts": {}}]),
        "Required value",
        "is required",
    ),
    Refusal(
        "a total time in milliseconds",
        "spec.gateway.routes[0].timeouts.totalSeconds",
        behind(routes=[{"pathPrefix": "/v1", "timeouts": {"totalSeconds": 604_801}}]),
        behind(routes=[{"pathPrefix": "/v1", "timeouts": {"totalSeconds": 604_800}}]),
        "should be less than or equal to 604800",
        "must be at most 604800",
    ),
]

REFUSALS = [
    *GATEWAY_REFUSALS,
    Refusal("no port", "spec.port", {"port": ABSENT}, {"port": 8000}, "Required value", "is required"),
    Refusal("no template", "spec.template", {"template": ABSENT}, {}, "Required value", "is required"),
    Refusal("no drain", "spec.drain", {"drain": ABSENT}, {}, "Required value", "is required"),
    Refusal("no mode", "spec.drain.mode", {"drain": {}}, {}, "Required value", "is required"),
    Refusal(
        "a mode of a later version",
        "spec.drain.mode",
        {"drain.mode": "Metrics"},
        {"drain.mode": "Gateway"},
        'supported values: "Native", "Gateway"',
        "must be 'Native' or 'Gateway'",
    ),
    Refusal(
        "onExpiry misspelt",
        "spec.drain.onExpiry",
        {"drain.onExpiry": "hold"},
        {"drain.onExpiry": "Hold"},
        'supported values: "Release", "Hold"',
        "must be 'Release' or 'Hold'",
    ),
    Refusal(
        "whenNoCapacity misspelt",
        "spec.rollout.whenNoCapacity",
        {"rollout.whenNoCapacity": "Drain"},
        {"rollout.whenNoCapacity": "DrainFirst"},
        'supported values: "Wait", "DrainFirst"',
        "must be 'Wait' or 'DrainFirst'",
    ),
    Refusal(
        "an unknown disruption mode",
        "spec.disruption.mode",
        {"disruption.mode": "Allow"},
        {"disruption.mode": "Hold"},
        'supported values: "Budget", "Hold"',
        "must be 'Budget' or 'Hold'",
    ),
    bound("replicas", -1, 0),
    bound("replicas", 10_001, 10_000),
    bound("service.port", 0, 1),
    bound("service.port", 65_536, 65_535),
    bound("rollout.minReadySeconds", -1, 0),
    bound("rollout.progressDeadlineSeconds", 0, 1),
    bound("rollout.revisionHistoryLimit", -1, 0),
    bound("drain.budgetSeconds", 604_801, 604_800),
    bound("drain.propagationSeconds", 0, 1),
    bound("drain.quietSeconds", -1, 0),
    bound("drain.flushSeconds", 301, 300),
    bound("drain.stalledAfterSeconds", -1, 0),
    bound("drain.grace.teardownSeconds", -1, 0),
    bound("drain.grace.safetySeconds", -1, 0),
    bound("probes.startup.budgetSeconds", 0, 1),
    bound("probes.readiness.periodSeconds", 0, 1),
    bound("probes.liveness.terminationGracePeriodSeconds", 0, 1),
    Refusal(
        "a number in quotes",
        "spec.drain.budgetSeconds",
        {"drain.budgetSeconds": "900"},
        {"drain.budgetSeconds": 900},
        'must be of type integer: "string"',
        "must be a whole number without quotes",
    ),
    Refusal(
        "a boolean in quotes",
        "spec.rollout.paused",
        {"rollout.paused": "true"},
        {"rollout.paused": True},
        'must be of type boolean: "string"',
        "must be true or false without quotes",
    ),
    Refusal("port zero", "spec.port", {"port": 0}, {"port": 1}, PORT_SAYS),
    Refusal("port too high", "spec.port", {"port": 65_536}, {"port": 65_535}, PORT_SAYS),
    Refusal("a port number in quotes", "spec.port", {"port": "8000"}, {"port": 8000}, PORT_SAYS),
    Refusal(
        "a port name with --",
        "spec.drain.native.port",
        {"drain.native.port": "ad--min"},
        {"drain.native.port": "admin"},
        PORT_SAYS,
    ),
    Refusal(
        "a port name of 16 characters",
        "spec.port",
        {"port": "a-name-of-16-chr", "template.spec.containers.0.ports.0.name": "a-name-of-16-chr"},
        {"port": "a-name-of-15-ch", "template.spec.containers.0.ports.0.name": "a-name-of-15-ch"},
        PORT_SAYS,
    ),
    Refusal(
        "a port in upper case",
        "spec.probes.startup.port",
        {"probes.startup.port": "HTTP"},
        {"probes.startup.port": "http"},
        PORT_SAYS,
    ),
    Refusal("a port nobody declares", "spec.port", {"port": "https"}, {"port": "http"}, UNDECLARED),
    Refusal(
        "an admin port nobody declares",
        "spec.drain.native.port",
        {"drain.native.port": "drain"},
        {"drain.native.port": "admin"},
        UNDECLARED,
    ),
    Refusal(
        "a startup port nobody declares",
        "spec.probes.startup.port",
        {"probes.startup.port": "x"},
        {"probes.startup.port": "admin"},
        UNDECLARED,
    ),
    Refusal(
        "a readiness port nobody declares",
        "spec.probes.readiness.port",
        {"probes.readiness.port": "x"},
        {"probes.readiness.port": 9901},
        UNDECLARED,
    ),
    Refusal(
        "a liveness port nobody declares",
        "spec.probes.liveness.port",
        {"probes.liveness.port": "x"},
        {"probes.liveness.port": "admin"},
        UNDECLARED,
    ),
    Refusal(
        "a probe path that is a URL",
        "spec.probes.readiness.path",
        {"probes.readiness.path": "http://localhost/readyz"},
        {"probes.readiness.path": "/readyz"},
        "must start with '/': write the path alone",
    ),
    *(
        Refusal(
            f"a {probe} path without a slash",
            f"spec.probes.{probe}.path",
            {f"probes.{probe}.path": "livez"},
            {f"probes.{probe}.path": "/livez"},
            "must start with '/': write the path alone",
        )
        for probe in ("startup", "liveness")
    ),
    *(
        Refusal(
            f"a {probe} port that ends in -",
            f"spec.probes.{probe}.port",
            {f"probes.{probe}.port": "admin-"},
            {f"probes.{probe}.port": "admin"},
            PORT_SAYS,
        )
        for probe in ("readiness", "liveness")
    ),
    Refusal(
        "a container that is not there",
        "spec.container",
        {"container": "engine"},
        {"container": "server"},
        "write the name of one of them",
    ),
    Refusal(
        "a port of the other container",
        "spec.port",
        {"template.spec.containers": TWO, "container": "server", "port": "prom"},
        {"template.spec.containers": TWO, "container": "metrics", "port": "prom"},
        UNDECLARED,
    ),
    Refusal(
        "a drain port of the other container",
        "spec.drain.native.port",
        {"template.spec.containers": TWO, "drain.native.port": "prom"},
        {"template.spec.containers": TWO, "drain.native.port": "admin"},
        UNDECLARED,
    ),
    Refusal(
        "two containers with the same port",
        "spec.container",
        {"template.spec.containers": TWINS, "port": 80},
        {"template.spec.containers": TWINS, "port": 80, "container": "b"},
        "write the name of the one that serves",
    ),
    Refusal(
        "two containers, none with the port",
        "spec.container",
        {"template.spec.containers": TWO, "port": 8001},
        {"template.spec.containers": TWO, "port": 8000},
        "write the name of the one that serves",
    ),
    Refusal(
        "a template without containers",
        "spec.template.spec.containers",
        {"template.spec.containers": ABSENT},
        {},
        "Required value",
        "is required",
    ),
    Refusal(
        "an empty list of containers",
        "spec.template.spec.containers",
        {"template.spec.containers": []},
        {},
        "should have at least 1 items",
        "must have at least 1 entry",
    ),
    Refusal(
        "a container without a name",
        "spec.template.spec.containers[0].name",
        {"template.spec.containers.0.name": ABSENT},
        {},
        "Required value",
        "is required",
    ),
    Refusal(
        "a container port out of range",
        "spec.template.spec.containers[0].ports[0].containerPort",
        {"template.spec.containers.0.ports.0.containerPort": 70_000},
        {"template.spec.containers.0.ports.0.containerPort": 65_535},
        "should be less than or equal to 65535",
        "must be at most 65535",
    ),
    Refusal(
        "a Service that is described and not wanted",
        "spec.service.create",
        {"service": {"create": False, "port": 8080}},
        {"service": {"create": False}},
        "remove them, or set create to true",
    ),
    Refusal(
        "a Service name with a dot",
        "spec.service.name",
        {"service.name": "chat.v2"},
        {"service.name": "chat-v2"},
        "must be a DNS-1035 label",
    ),
    Refusal(
        "a surge of 101 %",
        "spec.rollout.maxSurge",
        {"rollout.maxSurge": "101%"},
        {"rollout.maxSurge": "100%"},
        SLOTS_SAY,
    ),
    Refusal(
        "a surge in quotes", "spec.rollout.maxSurge", {"rollout.maxSurge": "1"}, {"rollout.maxSurge": 1}, SLOTS_SAY
    ),
    Refusal("a negative surge", "spec.rollout.maxSurge", {"rollout.maxSurge": -1}, {"rollout.maxSurge": 0}, SLOTS_SAY),
    Refusal(
        "a percentage with a fraction",
        "spec.rollout.maxUnavailable",
        {"rollout.maxUnavailable": "2.5%"},
        {"rollout.maxUnavailable": "25%"},
        SLOTS_SAY,
    ),
    Refusal(
        "1001 unavailable",
        "spec.rollout.maxUnavailable",
        {"rollout.maxUnavailable": 1001},
        {"rollout.maxUnavailable": 1000},
        SLOTS_SAY,
    ),
    Refusal(
        "minReadySeconds of the whole deadline",
        "spec.rollout.minReadySeconds",
        {"rollout": {"minReadySeconds": 60, "progressDeadlineSeconds": 60}},
        {"rollout": {"minReadySeconds": 59, "progressDeadlineSeconds": 60}},
        "lower minReadySeconds, raise progressDeadlineSeconds, or leave the latter out",
    ),
    Refusal(
        "a deadline before the startup budget is over",
        "spec.rollout.progressDeadlineSeconds",
        {"rollout": {"progressDeadlineSeconds": 7199}, "probes": {"startup": {"budgetSeconds": 7200}}},
        {"rollout": {"progressDeadlineSeconds": 7200}, "probes": {"startup": {"budgetSeconds": 7200}}},
        "raise or leave out progressDeadlineSeconds, or lower the budget",
    ),
    Refusal(
        "restartedAt as a word",
        "spec.rollout.restartedAt",
        {"rollout.restartedAt": "now"},
        {"rollout.restartedAt": "2026-11-29T20:00:00.5+01:00"},
        "must be an RFC 3339 time",
    ),
    Refusal(
        "restartedAt in a thirteenth month",
        "spec.rollout.restartedAt",
        {"rollout.restartedAt": "2026-13-01T00:00:00Z"},
        {"rollout.restartedAt": "2026-12-01T00:00:00Z"},
        "must be an RFC 3339 time",
    ),
    Refusal(
        "tokens due before the drain begins",
        "spec.drain.flushSeconds",
        {"drain": {"mode": "Native", "flushSeconds": 30, "budgetSeconds": 30}},
        {"drain": {"mode": "Native", "flushSeconds": 29, "budgetSeconds": 30}},
        "lower flushSeconds or raise budgetSeconds",
    ),
    Refusal(
        "a budget that is over before a pod can be sealed",
        "spec.drain.budgetSeconds",
        {"drain.budgetSeconds": 7},
        {"drain.budgetSeconds": 8},
        "raise budgetSeconds",
    ),
    Refusal(
        "a grace period that its cap would cut",
        "spec.drain.grace",
        {"drain.grace.maxSeconds": 139},
        {"drain.grace.maxSeconds": 140},
        GRACE_SAYS,
    ),
    Refusal(
        "a propagation that the cap of the grace period would cut",
        "spec.drain.grace",
        {"drain": {"mode": "Native", "propagationSeconds": 300, "grace": {"initialSeconds": 286}}},
        {"drain": {"mode": "Native", "propagationSeconds": 300, "grace": {"initialSeconds": 285}}},
        GRACE_SAYS,
    ),
    *(
        Refusal(story, f"spec.drain.native.foreign.{at}", bad, good, says)
        for story, at, bad, good, says in FOREIGN_REFUSALS
    ),
    *(
        Refusal(
            f"a foreign endpoint without {field}",
            f"spec.drain.native.foreign.{field}",
            bad,
            foreign(),
            "Required value",
            "is required",
        )
        for field, bad in (
            ("method", foreign(method=ABSENT)),
            ("path", foreign(path=ABSENT)),
            ("count.path", counted(path=ABSENT)),
            ("count.pointer", counted(pointer=ABSENT)),
            ("header.secretKeyRef", foreign(header={"name": "X-Drain-Token"})),
        )
    ),
    Refusal(
        "a method that HTTP does not have",
        "spec.drain.native.foreign.method",
        foreign(method="post"),
        foreign(method="PUT"),
        'supported values: "GET", "POST", "PUT", "PATCH", "DELETE"',
        "must be 'GET', 'POST', 'PUT', 'PATCH' or 'DELETE'",
    ),
    Refusal(
        "a count that begins below zero",
        "spec.drain.native.foreign.count.offset",
        counted(offset=-1),
        counted(offset=0),
        "should be greater than or equal to 0",
        "must be at least 0",
    ),
    Refusal(
        "an offset beyond its bounds",
        "spec.drain.native.foreign.count.offset",
        counted(offset=1001),
        counted(offset=1000),
        "should be less than or equal to 1000",
        "must be at most 1000",
    ),
]

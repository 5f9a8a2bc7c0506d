"""The spec of an LLMService, as users write it and as the operator reads it.

The CRD is generated from these models. Defaults are set here and not in the schema, except for `replicas`, which the
scale subresource needs: the API server would store a schema default, and what the user did not write must stay absent
from the revision source.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import Field, StrictBool

from tidegate.api.drain import Drain, DrainMode
from tidegate.api.errors import InvalidSpec
from tidegate.api.gateway import Engine, Gateway
from tidegate.api.names import API_VERSION, CONTRACT_PORT, GATEWAY_PORT, KIND
from tidegate.api.ports import IntOrString, PortRef
from tidegate.api.probes import Probe, Probes, StartupProbe
from tidegate.api.rules import DAY, WEEK, Model, Rule, bounded, matching, unknown_fields
from tidegate.api.status import LLMServiceStatus
from tidegate.api.template import PodTemplate, Verbatim, container_names, declarers


class WhenNoCapacity(StrEnum):
    """What happens when a surge pod is Unschedulable."""

    WAIT = "Wait"
    DRAIN_FIRST = "DrainFirst"


class DisruptionMode(StrEnum):
    """What node drains may do."""

    BUDGET = "Budget"
    HOLD = "Hold"


DNS_1035 = r"^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$"
PERCENT = r"^(100|[1-9]?[0-9])%$"
RFC_3339 = (
    r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]{1,9})?"
    r"(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$"
)


def _resolves(value: int | str) -> bool:
    return 0 <= value <= 1000 if isinstance(value, int) else bool(re.fullmatch(PERCENT, value))


Slots = Annotated[
    IntOrString,
    Rule(
        cel=f"type(self) == int ? self >= 0 && self <= 1000 : self.matches(r'{PERCENT}')",
        message='must be a number of pods from 0 to 1000 without quotes, or a percentage from "0%" to "100%"',
        holds=_resolves,
    ),
]


class Service(Model):
    """The Service in front of the pods that serve."""

    create: StrictBool = True
    """Whether the operator creates the Service; absent: true. If false, your own Service must select
    tidegate.dev/state: serving."""
    name: (
        Annotated[
            str,
            Field(max_length=63),
            matching(
                DNS_1035,
                "must be a DNS-1035 label: at most 63 lower-case letters, digits and '-', starting with a letter and "
                "not ending with '-'",
            ),
        ]
        | None
    ) = None
    """Name of the Service; absent: the name of the LLMService. It cannot be changed."""
    port: int = bounded(80, 1, 65_535)
    """Port of the Service; absent: 80."""

    rules: ClassVar = (
        Rule(
            field="create",
            cel="!has(self.create) || self.create || !(has(self.name) || has(self.port))",
            message="name and port describe the Service that the operator creates: remove them, or set create to true",
            holds=lambda service: service.create or not service.model_fields_set & {"name", "port"},
        ),
    )


class Rollout(Model):
    """How a new revision replaces the old one."""

    max_surge: Slots = 1
    """Maximum number of pods above replicas during a rollout, as a number or a percentage rounded up; absent: 1."""
    max_unavailable: Slots = 0
    """Maximum number of pods below replicas during a rollout, as a number or a percentage rounded down; absent: 0. If
    maxSurge and maxUnavailable both resolve to 0, one pod may be unavailable. Evictions follow spec.disruption."""
    min_ready_seconds: int = bounded(0, 0, DAY)
    """Seconds that a new pod must stay Ready before an old pod drains; absent: 0."""
    progress_deadline_seconds: Annotated[int, Field(ge=1, le=WEEK, strict=True)] | None = None
    """Seconds that new pods may take to become Ready; time spent draining does not count; absent: 600 more than the
    startup probe and minReadySeconds allow, so 2400 without either."""
    when_no_capacity: WhenNoCapacity = WhenNoCapacity.WAIT
    """What happens when a surge pod is Unschedulable. Wait: the rollout waits. DrainFirst: an old pod is drained to
    make room; absent: Wait."""
    paused: StrictBool = False
    """Whether the rollout is paused; absent: false. Drains that have begun continue."""
    revision_history_limit: int = bounded(3, 0, 100)
    """Number of old revisions that are kept at 0 replicas for a rollback; absent: 3."""
    restarted_at: (
        Annotated[
            str,
            Field(max_length=40),
            matching(
                RFC_3339,
                'must be an RFC 3339 time such as "2026-11-29T20:00:00Z": '
                "write what `date -u +%Y-%m-%dT%H:%M:%SZ` prints",
            ),
        ]
        | None
    ) = None
    """Time of the last requested restart. A new value rolls all pods."""

    rules: ClassVar = (
        Rule(
            field="minReadySeconds",
            cel="!has(self.progressDeadlineSeconds) || (has(self.minReadySeconds) ? self.minReadySeconds : 0) < "
            "self.progressDeadlineSeconds",
            message="must be less than progressDeadlineSeconds, otherwise no rollout can succeed: lower "
            "minReadySeconds, raise progressDeadlineSeconds, or leave the latter out",
            holds=lambda rollout: (
                rollout.progress_deadline_seconds is None
                or rollout.min_ready_seconds < rollout.progress_deadline_seconds
            ),
        ),
    )


class Disruption(Model):
    """What node drains may do."""

    mode: DisruptionMode = DisruptionMode.BUDGET
    """Budget: an eviction is allowed while replicas - 1 healthy pods remain, whatever spec.rollout.maxUnavailable is.
    So with one replica the only pod may be evicted, and requests are refused until its replacement serves. Hold: node
    drains wait until you roll out or scale in; absent: Budget."""


def _declared(port: str) -> str:
    """CEL: whether container `c` declares the port at path `port`, by name or by number."""
    return (
        f"has(c.ports) && c.ports.exists(p, type({port}) == string ? has(p.name) && p.name == {port} : "
        f"has(p.containerPort) && p.containerPort == {port})"
    )


_SERVES = (
    "(has(self.container) ? c.name == self.container : size(self.template.spec.containers) == 1 || "
    f"{_declared('self.port')})"
)


def _candidates(spec: LLMServiceSpec) -> list[str]:
    """Names of the containers that may be the serving one; a rule refuses more than one, and none."""
    if spec.container is not None:
        return [spec.container]
    names = container_names(spec.template)
    return names if len(names) == 1 else list(declarers(spec.template, spec.port))


def _named_port(port: str, field: str, read: Callable[[LLMServiceSpec], int | str | None]) -> Rule:
    """A port given by name must exist in the serving container, otherwise the kubelet never finds it."""
    steps = field.split(".")
    present = " && ".join(f"has(self.{'.'.join(steps[: depth + 1])})" for depth in range(len(steps)))
    return Rule(
        field=field,
        cel=f"!({present}) || type(self.{field}) == int || self.template.spec.containers.exists(c, {_SERVES} && "
        f"has(c.ports) && c.ports.exists(p, has(p.name) && p.name == self.{field}))",
        message="is a port name that the serving container does not declare: "
        f"add a port named {port} to it in template, or write a port number",
        holds=lambda spec: (
            not isinstance(name := read(spec), str)
            or not set(_candidates(spec)).isdisjoint(declarers(spec.template, name))
        ),
    )


def _port_of(probe: Probe | None) -> int | str | None:
    return probe.port if probe else None


def _with_gateway(field: str) -> Rule:
    """A field that applies only with the gateway."""
    return Rule(
        field=field,
        cel=f"!has(self.{field}) || self.drain.mode == 'Gateway'",
        message="applies only to drain.mode Gateway: remove it, or set drain.mode to Gateway",
        holds=lambda spec: spec.drain.mode is DrainMode.GATEWAY or field not in spec.model_fields_set,
    )


def _free_port(field: str, default: int, read: Callable[[Gateway], int]) -> Rule:
    """A port of the gateway must not be the engine's: both listen in the same pod."""
    given = f"(has(self.gateway) && has(self.gateway.{field}) ? self.gateway.{field} : {default})"
    return Rule(
        field=f"gateway.{field}",
        cel=f"self.drain.mode != 'Gateway' || type(self.port) != int || self.port != {given}",
        message=f"(absent: {default}) must differ from spec.port, since gateway and engine listen in the same pod: set "
        "it to a free port",
        holds=lambda spec: spec.drain.mode is not DrainMode.GATEWAY or spec.port != read(spec.gateway),
    )


DEADLINE_MARGIN = 600
"""Seconds above the time that a container may take to start: for scheduling, pulling the image and mounting volumes."""


class LLMServiceSpec(Model):
    """Desired state of the service."""

    replicas: int = bounded(1, 0, 10_000)
    """Number of pods that serve when nothing is changing; autoscalers set it through the scale subresource."""
    port: PortRef
    """Number or name of the container port that carries requests."""
    container: Annotated[str, Field(max_length=63)] | None = None
    """Name of the container that serves; absent: the container that declares the port."""
    template: Annotated[dict[str, Any], Verbatim(PodTemplate)]
    """An ordinary pod template. Tidegate sets terminationGracePeriodSeconds and the serving container's preStop hook:
    leave both out."""
    engine: Engine = Engine.CUSTOM
    """The engine behind the gateway. It determines the probes and the flags that the engine needs; absent: Custom. Only
    with drain.mode: Gateway."""
    service: Service = Service()
    """The Service in front of the pods that serve."""
    rollout: Rollout = Rollout()
    """How a new revision replaces the old one."""
    drain: Drain
    """How a pod drains before it is deleted."""
    probes: Probes = Probes()
    """Probes of the serving container. A probe in the template itself takes precedence."""
    gateway: Gateway = Gateway()
    """The sidecar that counts requests for an engine. Only with drain.mode: Gateway."""
    disruption: Disruption = Disruption()
    """What node drains may do."""

    rules: ClassVar = (
        Rule(
            field="container",
            cel="!has(self.container) || self.template.spec.containers.exists(c, c.name == self.container)",
            message="is not the name of a container in template.spec.containers: write the name of one of them, or "
            "leave it out to use the one that declares port",
            holds=lambda spec: spec.container is None or spec.container in container_names(spec.template),
        ),
        Rule(
            field="container",
            cel="has(self.container) || size(self.template.spec.containers) == 1 || "
            f"size(self.template.spec.containers.filter(c, {_declared('self.port')})) == 1",
            message="is required unless exactly one container declares port: write the name of the one that serves",
            holds=lambda spec: len(_candidates(spec)) == 1,
        ),
        _named_port("http", "port", lambda spec: spec.port),
        _named_port("admin", "drain.native.port", lambda spec: spec.drain.native.port),
        _named_port("admin", "probes.startup.port", lambda spec: _port_of(spec.probes.startup)),
        _named_port("admin", "probes.readiness.port", lambda spec: _port_of(spec.probes.readiness)),
        _named_port("admin", "probes.liveness.port", lambda spec: _port_of(spec.probes.liveness)),
        _with_gateway("engine"),
        _with_gateway("gateway"),
        _free_port("listenPort", GATEWAY_PORT, lambda gateway: gateway.listen_port),
        _free_port("adminPort", CONTRACT_PORT, lambda gateway: gateway.admin_port),
        Rule(
            field="rollout.progressDeadlineSeconds",
            cel="!has(self.rollout) || !has(self.rollout.progressDeadlineSeconds) || !has(self.probes) || "
            "!has(self.probes.startup) || !has(self.probes.startup.budgetSeconds) || "
            "self.rollout.progressDeadlineSeconds >= self.probes.startup.budgetSeconds",
            message="must be at least probes.startup.budgetSeconds, otherwise a rollout is Stalled while its pods "
            "still start as they may: raise or leave out progressDeadlineSeconds, or lower the budget",
            holds=lambda spec: (
                spec.rollout.progress_deadline_seconds is None
                or spec.probes.startup is None
                or "budget_seconds" not in spec.probes.startup.model_fields_set
                or spec.rollout.progress_deadline_seconds >= spec.probes.startup.budget_seconds
            ),
        ),
        Rule(
            field="probes.readiness.port",
            cel="self.drain.mode != 'Gateway' || !has(self.probes) || !has(self.probes.readiness) || "
            "!has(self.probes.readiness.port)",
            message="does not apply with drain.mode: Gateway, where the gateway probes the engine on spec.port: remove "
            "it, or put a readinessProbe for that port into template",
            holds=lambda spec: spec.drain.mode is not DrainMode.GATEWAY or _port_of(spec.probes.readiness) is None,
        ),
    )

    @property
    def startup_seconds(self) -> int:
        """Seconds that the serving container may take to start, by its startup probe."""
        serving = _candidates(self)[0]
        own = next(c for c in self.template["spec"]["containers"] if c["name"] == serving).get("startupProbe")
        if not own:
            return (self.probes.startup or StartupProbe()).budget_seconds
        # The defaults are those of Kubernetes.
        failures, period = own.get("failureThreshold") or 3, own.get("periodSeconds") or 10
        return int((own.get("initialDelaySeconds") or 0) + failures * period)

    @property
    def progress_deadline_seconds(self) -> int:
        """Seconds that a new pod may take to become Ready, as declared, or else as follows from what it may take."""
        declared = self.rollout.progress_deadline_seconds
        if declared is not None:
            return declared
        return self.startup_seconds + self.rollout.min_ready_seconds + DEADLINE_MARGIN

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> LLMServiceSpec:
        """The spec of an LLMService from its `.spec`. Raises InvalidSpec with every problem found."""
        return cls.parse_at("spec", raw)


NAME = r"^[a-z]([-a-z0-9]{0,50}[a-z0-9])?$"


class Metadata(Model):
    """Metadata of the object."""

    name: Annotated[str, Field(max_length=253)] = ""


_SERVICE_NAME = "(has({0}.spec.service) && has({0}.spec.service.name) ? {0}.spec.service.name : {0}.metadata.name)"


class LLMService(Model):
    """An LLM service whose pods are deleted only when their streams have ended."""

    api_version: str = API_VERSION
    """API version of the object."""
    kind: str = KIND
    """Kind of the object."""
    metadata: Metadata
    spec: LLMServiceSpec
    """Desired state of the service."""
    status: LLMServiceStatus | None = None
    """Observed state of the service; only the operator writes it."""

    rules: ClassVar = (
        Rule(
            field="metadata.name",
            cel=f"self.metadata.name.matches(r'{NAME}')",
            message="must be a DNS-1035 label of at most 52 characters, since it names a Service and prefixes "
            "Deployments: use lower-case letters, digits and '-', with a letter first",
            message_expression="'must be a DNS-1035 label of at most 52 characters, since it names a Service and "
            "prefixes Deployments: use ' + ((self.metadata.name.matches('^[0-9]') ? 'llm-' : '') + "
            f"self.metadata.name.replace('.', '-')).find('{NAME.rstrip('$')}')",
            holds=lambda service: bool(re.fullmatch(NAME, service.metadata.name)),
        ),
        Rule(
            field="spec.service.name",
            cel=f"{_SERVICE_NAME.format('self')} == {_SERVICE_NAME.format('oldSelf')}",
            message="cannot be changed, since clients use it: create a second LLMService and move the clients to it",
            holds=lambda _: True,
        ),
    )

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> LLMService:
        """The complete object, as from a file. Raises InvalidSpec with every problem found.

        Unlike in the cluster, where the CRD may be newer, an unknown field is a problem here: it is a typo.
        """
        unknown = [problem for problem in unknown_fields(cls, raw) if _is_ours(problem.field)]
        try:
            parsed = cls.parse_at("", raw)
        except InvalidSpec as error:
            raise InvalidSpec([*unknown, *error.problems]) from None
        if unknown:
            raise InvalidSpec(unknown)
        return parsed


def _is_ours(field: str) -> bool:
    """Metadata and the template also have fields of Kubernetes, which these models do not list."""
    return field.startswith("spec.") and not field.startswith("spec.template.")

"""The spec as the operator reads it: defaults, refusals in the user's words, and the template left alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from pydantic import ValidationError

from refusal_table import ABSENT, REFUSALS, SPEC, TWINS, TWO, Refusal, edited, manifest
from tidegate.api.drain import DrainMode, OnExpiry
from tidegate.api.errors import InvalidSpec, Problem
from tidegate.api.resource import DisruptionMode, LLMService, LLMServiceSpec, WhenNoCapacity
from tidegate.core.planner.revision import source
from tidegate.core.render.validation import serving_container


def problems(spec: dict[str, Any]) -> tuple[Problem, ...]:
    with pytest.raises(InvalidSpec) as caught:
        LLMServiceSpec.parse(spec)
    return caught.value.problems


@pytest.mark.parametrize(
    ("said", "own", "seconds"),
    [
        ({}, None, 2400),
        ({"probes": {"startup": {"budgetSeconds": 7200}}}, None, 7800),
        ({"probes": {"startup": {"path": "/x"}}}, None, 2400),
        ({"rollout": {"minReadySeconds": 900}}, None, 3300),
        ({"rollout": {"progressDeadlineSeconds": 60}}, None, 60),
        # A probe in the template takes precedence, with Kubernetes' own defaults.
        ({"probes": {"startup": {"budgetSeconds": 7200}}}, {"failureThreshold": 60, "periodSeconds": 5}, 900),
        ({}, {"failureThreshold": 1000, "initialDelaySeconds": 50}, 10_650),
        ({}, {"httpGet": {"path": "/", "port": 80}}, 630),
    ],
)
def test_the_deadline_follows_the_time_that_a_pod_may_take(
    said: dict[str, Any], own: dict[str, Any] | None, seconds: int
):
    raw = copy.deepcopy(SPEC) | said
    if own is not None:
        raw["template"]["spec"]["containers"][0]["startupProbe"] = own
    assert LLMServiceSpec.parse(raw).progress_deadline_seconds == seconds


def test_what_is_absent_takes_the_documented_default():
    spec = LLMServiceSpec.parse(SPEC)
    assert (spec.replicas, spec.port, spec.container) == (1, "http", None)
    service, rollout, drain = spec.service, spec.rollout, spec.drain
    assert (service.create, service.name, service.port) == (True, None, 80)
    assert (rollout.max_surge, rollout.max_unavailable, rollout.min_ready_seconds) == (1, 0, 0)
    assert (spec.progress_deadline_seconds, rollout.revision_history_limit) == (2400, 3)
    assert (rollout.when_no_capacity, rollout.paused, rollout.restarted_at) == (WhenNoCapacity.WAIT, False, None)
    assert (drain.mode, drain.budget_seconds, drain.on_expiry) == (DrainMode.NATIVE, 1800, OnExpiry.RELEASE)
    assert (drain.propagation_seconds, drain.quiet_seconds, drain.flush_seconds) == (5, 2, 5)
    assert (drain.stalled_after_seconds, drain.native.port) == (300, 9901)
    grace = drain.grace
    assert (grace.initial_seconds, grace.teardown_seconds, grace.safety_seconds) == (120, 10, 5)
    assert (grace.max_seconds, drain.declared_grace_seconds) == (600, 140)
    assert (spec.probes.startup, spec.probes.readiness, spec.probes.liveness) == (None, None, None)
    assert spec.disruption.mode is DisruptionMode.BUDGET


def test_an_empty_block_means_the_same_as_none():
    blocks = ("service", "rollout", "drain.grace", "drain.native", "probes", "disruption")
    assert LLMServiceSpec.parse(edited(SPEC, {block: {} for block in blocks})) == LLMServiceSpec.parse(SPEC)


PARTS = ("service", "rollout", "drain.grace", "drain.native", "probes", "gateway", "disruption")


@pytest.mark.parametrize("part", [*PARTS, "rollout.maxSurge", "rollout.paused", "engine"])
def test_null_means_the_same_as_absent(part: str):
    """A null stays in the spec under server-side apply; elsewhere the API server drops it."""
    read = LLMServiceSpec.parse(edited(SPEC, {part: None}))
    assert read == LLMServiceSpec.parse(SPEC)
    assert source(edited(SPEC, {part: None})) == source(SPEC), "and rolls nothing"


def test_null_for_what_is_required_is_said_to_be_missing():
    assert problems(edited(SPEC, {"drain": None})) == (Problem("spec.drain", "is required: add it"),)


def test_a_probe_that_is_named_takes_the_defaults_of_its_kind():
    probes = LLMServiceSpec.parse(edited(SPEC, {"probes": {"startup": {}, "readiness": {}, "liveness": {}}})).probes
    assert probes.startup and probes.readiness and probes.liveness
    assert (probes.startup.path, probes.startup.port, probes.startup.budget_seconds) == (None, None, 1800)
    assert probes.readiness.period_seconds == 2
    assert probes.liveness.termination_grace_period_seconds == 10


@pytest.mark.parametrize("row", REFUSALS, ids=lambda row: row.story)
def test_a_refusal_names_field_and_remedy(row: Refusal):
    found = problems(edited(SPEC, row.bad))
    assert any(problem.field == row.at and (row.parser_says or row.says) in problem.message for problem in found)


@pytest.mark.parametrize("row", REFUSALS, ids=lambda row: row.story)
def test_its_nearest_neighbour_is_taken(row: Refusal):
    LLMServiceSpec.parse(edited(SPEC, row.good))


def test_all_problems_are_told_at_once_and_none_twice():
    found = problems(
        edited(
            SPEC,
            {
                "port": ABSENT,
                "drain": {"mode": "Metrics", "budgetSeconds": "long"},
                "rollout.maxSurge": True,
                "template.spec.containers.0.name": ABSENT,
            },
        )
    )
    assert sorted(problem.field for problem in found) == [
        "spec.drain.budgetSeconds",
        "spec.drain.mode",
        "spec.port",
        "spec.rollout.maxSurge",
        "spec.template.spec.containers[0].name",
    ]


def test_a_refusal_reads_as_a_sentence_and_not_as_a_trace():
    with pytest.raises(InvalidSpec) as caught:
        LLMServiceSpec.parse(edited(SPEC, {"drain.grace": "long", "rollout": []}))
    assert str(caught.value) == "spec.rollout: must be an object; spec.drain.grace: must be an object"
    assert not isinstance(caught.value, ValidationError) and caught.value.__cause__ is None


@pytest.mark.parametrize("rubbish", [None, [], "chat", 7])
def test_a_spec_that_is_no_object_is_a_problem_like_any_other(rubbish: Any):
    assert problems(rubbish) == (Problem("spec", "must be an object"),)


def test_fields_of_a_newer_version_do_not_stop_an_older_operator():
    newer = edited(SPEC, {"queue": "long", "drain.grace.learnFrom": "requests", "disruption": {"nodes": {"x": 1}}})
    assert LLMServiceSpec.parse(newer) == LLMServiceSpec.parse(SPEC)


def test_the_template_stays_as_it_was_written():
    written = {
        "metadata": {"annotations": {"b": "2", "a": "1"}, "labels": None},
        "spec": {"containers": [{"image": "i", "name": "c", "env": [], "ports": None}], "x-unknown": {"deep": [1]}},
    }
    spec = LLMServiceSpec.parse(edited(SPEC, {"template": copy.deepcopy(written), "port": 80}))
    assert spec.template == written
    assert list(spec.template["metadata"]["annotations"]) == ["b", "a"]


@pytest.mark.parametrize(
    ("edits", "serving"),
    [
        ({}, "server"),
        ({"port": 4711}, "server"),
        ({"template.spec.containers": TWO}, "server"),
        ({"template.spec.containers": TWO, "port": 9100}, "metrics"),
        ({"template.spec.containers": TWO, "port": "prom"}, "metrics"),
        ({"template.spec.containers": TWINS, "port": 80, "container": "b"}, "b"),
    ],
)
def test_the_serving_container_is_the_named_the_only_or_the_declaring_one(edits: dict[str, Any], serving: str):
    found = serving_container(LLMServiceSpec.parse(edited(SPEC, edits)))
    assert found is not None
    assert found["name"] == serving


def test_a_parsed_spec_cannot_be_changed():
    spec = LLMServiceSpec.parse(SPEC)
    with pytest.raises(ValidationError):
        spec.replicas = 2  # type: ignore[misc]


@pytest.mark.parametrize("name", ["llama-3.1-8b", "3b", "a" * 53, "a-", "Chat", "", "a\n"])
def test_a_name_that_no_service_can_have_is_refused(name: str):
    with pytest.raises(InvalidSpec) as caught:
        LLMService.parse(manifest(name=name))
    assert [problem.field for problem in caught.value.problems] == ["metadata.name"]


@pytest.mark.parametrize("name", ["llama-3-1-8b", "a", "a" * 52])
def test_a_name_that_a_service_can_have_is_taken(name: str):
    assert LLMService.parse(manifest(name=name)).metadata.name == name


def test_a_whole_object_names_its_fields_from_the_top():
    with pytest.raises(InvalidSpec) as caught:
        LLMService.parse(manifest({"drain.propagationSeconds": 0}))
    assert caught.value.problems == (Problem("spec.drain.propagationSeconds", "must be at least 1"),)

"""`tidegate plan`: the steps of a change, before anybody pushes it."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.stories import raw_spec
from tidegate.__main__ import main


def manifest(image: str = "v1", name: str = "chat", **changes: Any) -> dict[str, Any]:
    return {
        "apiVersion": "tidegate.dev/v1alpha1", "kind": "LLMService", "metadata": {"name": name},
        "spec": raw_spec(image, **changes),
    }  # fmt: skip


@pytest.fixture
def write(tmp_path: Path):
    """Write documents into a file and return its path."""

    def made(name: str, *documents: dict[str, Any], **more: Any) -> str:
        path = tmp_path / name
        path.write_text("---\n".join(yaml.safe_dump(d) for d in documents))
        return str(path)

    return made


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["plan", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_new_image_takes_these_steps(write, capsys):
    new, old = write("new", manifest("v2")), write("old", manifest("v1"))
    code, out, err = told(capsys, "-f", new, "--current", old, "--start-seconds", "60", "--drain-seconds", "30")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == ["AT", "PODS", "SERVING", "STEP"]
    assert sum("withdraw" in line for line in lines) == sum("is drained" in line for line in lines) == 3
    assert lines[-1] == (
        "About 285 s; no schedule could take less than 285 s, 1.00 of the time. 3 pods drained, never fewer than 3 "
        "serving, never more than 4 pods."
    )


def test_as_json_for_machines(write, capsys):
    new, old = write("new", manifest("v2")), write("old", manifest("v1"))
    code, out, _ = told(capsys, "-f", new, "--current", old, "-o", "json", "--drain-seconds", "30")
    found = json.loads(out)
    assert code == 0
    assert (found["drained"], found["leastServing"], found["mostPods"]) == (3, 3, 4)
    assert found["seconds"] == found["boundSeconds"] == 3 * (60 + 5 + 30)
    assert all(set(step) == {"at", "step", "pods", "serving"} for step in found["steps"])
    assert [step["at"] for step in found["steps"]] == sorted(step["at"] for step in found["steps"])


def test_without_a_current_one_it_is_a_first_creation(write, capsys):
    code, out, _ = told(capsys, "-f", write("new", manifest()))
    assert code == 0
    assert "create Secret chat-drain with the drain key" in out
    assert "0 pods drained" in out and "withdraw" not in out


def test_a_first_creation_without_pods_is_four_steps(write, capsys):
    code, out, _ = told(capsys, "-f", write("new", manifest(replicas=0)), "-o", "json")
    steps = [step["step"] for step in json.loads(out)["steps"]]
    assert code == 0 and len(steps) == 4
    assert not any("anew" in step for step in steps)


def test_no_change_is_said_to_be_none(write, capsys):
    new, old = write("new", manifest(drain={"budgetSeconds": 900})), write("old", manifest())
    code, out, _ = told(capsys, "-f", new, "--current", old)
    assert (code, out.strip()) == (0, "Nothing changes: no pod is replaced, started or drained.")


def test_the_drain_is_taken_from_the_declared_prior_and_the_start_as_measured(write, capsys):
    old = manifest()
    old["status"] = {"rollout": {"startSeconds": 17.0}}
    new = manifest("v2", drain={"grace": {"initialSeconds": 40}})
    code, out, _ = told(capsys, "-f", write("new", new), "--current", write("old", old), "-o", "json")
    assert (code, json.loads(out)["seconds"]) == (0, 3 * (17 + 5 + 40))


def test_measured_times_take_the_place_of_declared_ones(write, capsys):
    old = manifest()
    old["status"] = {"rollout": {"startSeconds": 17.0}, "drainTimes": {"p50Seconds": 8, "p99Seconds": 60}}
    found = {}
    for source in ("Declared", "Measured"):
        old["status"]["gracePeriod"] = {"terms": [{"name": "teardown", "seconds": 33, "source": source}]}
        new = manifest("v2", rollout={"maxSurge": 0, "maxUnavailable": 1})
        told_ = told(capsys, "-f", write("new", new), "--current", write("old", old), "-o", "json")
        found[source] = json.loads(told_[1])["seconds"]
    # Controllers take some tenths of a second for each pod.
    wanted = {"Declared": 3 * (17 + 5 + 8 + 10), "Measured": 3 * (17 + 5 + 8 + 33)}
    assert found == pytest.approx(wanted, abs=1)
    code, out, _ = told(
        capsys,
        "-f",
        write("new", manifest("v2")),
        "--current",
        write("old", old),
        "-o",
        "json",
        "--drain-seconds",
        "40",
    )
    assert (code, json.loads(out)["seconds"]) == (0, 3 * (17 + 5 + 40))


def test_other_kinds_in_the_file_are_passed_over_and_a_file_may_come_by_stdin(write, capsys, monkeypatch):
    both = write("both", {"kind": "ConfigMap", "metadata": {"name": "x"}}, manifest())
    assert told(capsys, "-f", both)[0] == 0
    monkeypatch.setattr("sys.stdin", io.StringIO(Path(both).read_text()))
    assert told(capsys, "-f", "-")[0] == 0


def test_a_change_that_would_get_stuck_says_why_and_exits_1(write, capsys):
    spec = raw_spec("v2")
    spec["template"]["spec"]["hostNetwork"] = True
    stuck = manifest() | {"spec": spec}
    code, out, err = told(capsys, "-f", write("new", stuck), "--current", write("old", manifest()))
    assert (code, out) == (1, "")
    assert err.startswith(
        "tidegate plan: this change would not get to its end: Cannot create the revision: spec.template"
    )
    assert "remove hostNetwork" in err


V1 = "apiVersion: tidegate.dev/v1alpha1\n"
UNUSABLE = {
    "another version": ("apiVersion: v1\nkind: LLMService", "apiVersion is not tidegate.dev/v1alpha1"),
    "no such file": (None, "cannot be read: No such file"),
    "not yaml": ("a: b: c", "is not YAML, line 1"),
    "nothing in it": ("", "holds 0 LLMServices; give a file with exactly one"),
    "only others": ("kind: Pod", "holds 0 LLMServices"),
    "two": ("kind: LLMService\n---\nkind: LLMService", "holds 2 LLMServices"),
    "no name": (V1 + "kind: LLMService", "metadata.name is missing; name the LLMService"),
    "not text": (b"\xff\xfe", "is not UTF-8 text, byte 0"),
    "metadata of text": (V1 + "kind: LLMService\nmetadata: a", "metadata is no object"),
    "spec of text": (V1 + "kind: LLMService\nmetadata: {name: a}\nspec: a", "spec is no object"),
    "status of text": (V1 + "kind: LLMService\nmetadata: {name: a}\nstatus: a", "status is no object"),
    "a number as its name": (
        V1 + "kind: LLMService\nmetadata: {name: 123}",
        "metadata.name is no text; put it in quotes",
    ),
    "no spec": (V1 + "kind: LLMService\nmetadata: {name: a}", "spec: is required: add it"),
}


@pytest.mark.parametrize(("content", "words"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_what_cannot_be_used_is_named_with_its_remedy_and_exits_2(tmp_path: Path, capsys, content, words):
    path = tmp_path / "file.yaml"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    code, out, err = told(capsys, "-f", str(path))
    assert (code, out) == (2, "")
    assert err.startswith("tidegate plan: ") and words in err and "Traceback" not in err


@pytest.mark.parametrize(
    ("status", "field"),
    [
        ({"gracePeriod": {"terms": [{"foo": 1}]}}, "status.gracePeriod.terms[0].name"),
        ({"drainTimes": 7}, "status.drainTimes"),
        ({"rollout": {"startSeconds": "soon"}}, "status.rollout.startSeconds"),
    ],
)
def test_a_status_that_no_operator_wrote_is_named_with_its_file(write, capsys, status, field):
    old = write("old", manifest() | {"status": status})
    code, out, err = told(capsys, "-f", write("new", manifest("v2")), "--current", old)
    assert (code, out) == (2, "") and f"in {old}: {field}: " in err


def test_a_broken_current_is_not_taken_for_the_wanted_one(write, capsys):
    old = write("old", manifest(replicas=-1))
    code, _, err = told(capsys, "-f", write("new", manifest("v2")), "--current", old)
    assert code == 2 and f"in {old}: spec.replicas: " in err


def test_replicas_that_are_left_out_stay_as_they_are(write, capsys):
    """As with an autoscaler: who applies a file without them changes none."""
    new = manifest("v2")
    del new["spec"]["replicas"]
    code, out, _ = told(capsys, "-f", write("new", new), "--current", write("old", manifest(replicas=5)), "-o", "json")
    found = json.loads(out)
    assert (code, found["drained"], found["leastServing"], found["mostPods"]) == (0, 5, 5, 6)


def test_a_service_that_is_not_whole_is_planned_as_if_it_were_and_that_is_said(write, capsys):
    old = write("old", manifest() | {"status": {"phase": "Stalled"}})
    code, out, err = told(capsys, "-f", write("new", manifest("v2")), "--current", old)
    assert code == 0 and "3 pods drained" in out
    assert err == f"tidegate plan: in {old} it is Stalled; the steps begin where it is whole\n"


def test_a_list_as_kubectl_prints_it_is_looked_into(write, capsys):
    old = {"apiVersion": "v1", "kind": "List", "items": [{"kind": "Pod"}, manifest()]}
    code, out, _ = told(capsys, "-f", write("new", manifest("v2")), "--current", write("old", old))
    assert code == 0 and "3 pods drained" in out


def test_a_pod_counts_after_min_ready_seconds_and_no_schedule_beats_that(write, capsys):
    slow = {"rollout": {"minReadySeconds": 100}}
    new, old = write("new", manifest("v2", **slow)), write("old", manifest(**slow))
    code, out, _ = told(
        capsys, "-f", new, "--current", old, "-o", "json", "--drain-seconds", "30", "--start-seconds", "60"
    )
    found = json.loads(out)
    assert (code, found["seconds"], found["boundSeconds"]) == (0, 3 * (60 + 100 + 5 + 30), 3 * (60 + 100 + 5 + 30))
    assert "counts, after 100 s of minReadySeconds" in out


def test_every_problem_of_a_spec_is_told_at_once(write, capsys):
    broken = manifest(replicas=-1, drain={"mode": "Guess"})
    code, _, err = told(capsys, "-f", write("new", broken))
    assert code == 2 and "spec.replicas" in err and "spec.drain.mode" in err


def test_a_field_that_does_not_exist_is_a_slip(write, capsys):
    """The API server would prune it, and the rollout would not be the one that was meant."""
    slip = manifest(replicas=-1, rollout={"maxSurge": 1, "maxUnavailble": 1})
    slip["spec"]["template"]["spec"]["hostname"] = "kubernetes-own"
    code, _, err = told(capsys, "-f", write("new", slip))
    assert code == 2 and "spec.rollout.maxUnavailble: is not a field" in err and "spec.replicas" in err
    assert "hostname" not in err


def test_a_change_without_a_spec_is_refused(write, capsys):
    code, _, err = told(capsys, "-f", write("new", manifest() | {"spec": None}), "--current", write("old", manifest()))
    assert code == 2 and "spec.template: is required" in err


def test_a_change_keeps_the_name(write, capsys):
    code, _, err = told(capsys, "-f", write("new", manifest("v2", "talk")), "--current", write("old", manifest()))
    assert code == 2 and "two LLMServices, chat and talk" in err


def test_a_paused_rollout_says_so(write, capsys):
    paused = manifest("v2", rollout={"paused": True})
    code, _, err = told(capsys, "-f", write("new", paused), "--current", write("old", manifest()))
    assert code == 1 and "spec.rollout.paused holds it" in err


@pytest.mark.parametrize("duration", ["-1", "nan", "inf", "1e9", "soon"])
def test_a_duration_is_a_number_of_seconds(write, capsys, duration):
    with pytest.raises(SystemExit) as caught:
        main(["plan", "-f", write("new", manifest()), f"--drain-seconds={duration}"])
    assert caught.value.code == 2
    assert f"argument --drain-seconds: '{duration}' is not a number of seconds" in capsys.readouterr().err


def test_current_and_cluster_exclude_each_other(write, capsys):
    path = write("new", manifest())
    with pytest.raises(SystemExit) as caught:
        main(["plan", "-f", path, "--current", path, "--cluster"])
    assert caught.value.code == 2


def test_with_a_cluster_that_is_not_there_it_says_so(write, capsys, monkeypatch, tmp_path):
    # The library reads KUBECONFIG once, when it is imported.
    nowhere = str(tmp_path / "none")
    monkeypatch.setattr("kubernetes.aio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", nowhere)
    code, out, err = told(capsys, "-f", write("new", manifest()), "--cluster")
    assert (code, out) == (2, "") and "the cluster does not answer: no access to a cluster" in err

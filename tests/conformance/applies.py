"""Server-side apply as the operator uses it: two managers, forced, with preconditions, tried by a dry run first."""

from typing import Any

from conformance.children import HASH, make_budget, make_revision, make_routes, make_service, raw_spec
from conformance.kubernetes import Kubernetes, eventually, refused
from conformance.rows import Rows
from tidegate.api import names
from tidegate.api.errors import Conflict, Denied, NotFound, Rejected
from tidegate.cluster import project
from tidegate.cluster.port import DEPLOYMENTS, PDBS, SERVICES, Object
from tidegate.core.render import objects

ROWS = Rows()
CREATE = "cluster.execute:Executor._create"
SCALE = "cluster.execute:Executor._scale"
CHILDREN = "core.planner.children:ensure_children"


def _note(body: dict[str, Any], value: str | None) -> dict[str, Any]:
    """The template with one more variable in its environment, or without."""
    env = body["spec"]["template"]["spec"]["containers"][0]["env"]
    env[:] = [item for item in env if item["name"] != "NOTE"]
    if value is not None:
        env.append({"name": "NOTE", "value": value})
    return body


def _env(deployment: Object) -> dict[str, str]:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return {item["name"]: item.get("value", "") for item in container["env"]}


@ROWS.row("each child comes back with all that was written into it, so it is not written again", CHILDREN)
async def _(k8s: Kubernetes) -> None:
    made = await make_service(k8s)
    routes, budget = await make_routes(made), await make_budget(made)
    assert objects.includes(routes, objects.service(made.owner, made.spec))
    assert objects.includes(budget, objects.disruption_budget(made.owner, made.spec))
    body = made.body(0)
    answer = await made.apply(body)
    assert objects.includes(answer, body)
    read = project.deployment(answer, made.owner.uid)
    assert (read.source, read.adopted) == (body["metadata"]["annotations"][names.SOURCE], True)
    assert read.grace_seconds == body["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]


@ROWS.row("an apply that changes nothing leaves the resourceVersion as it is", CHILDREN)
async def _(k8s: Kubernetes) -> None:
    made = await make_service(k8s)
    first = await make_routes(made)
    again = await make_routes(made)
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


@ROWS.row("a dry run answers with what would be, and stores nothing", CREATE)
async def _(k8s: Kubernetes) -> None:
    made = await make_service(k8s)
    body = made.body(1)
    answer = await made.apply(body, dry_run=True)
    assert objects.includes(answer, body)
    await refused(made.deployment(), NotFound)


@ROWS.row("a dry run refuses a template that cannot be, and names its field", CREATE)
async def _(k8s: Kubernetes) -> None:
    made = await make_service(k8s)
    body = made.body(1)
    body["spec"]["template"]["spec"]["containers"][0]["image"] = ""
    error = await refused(made.apply(body, dry_run=True), Rejected)
    assert isinstance(error, Rejected)
    assert [field for field, _ in error.causes] == ["spec.template.spec.containers[0].image"]


@ROWS.row("a dry run refuses a template field that Kubernetes does not know", CREATE)
async def _(k8s: Kubernetes) -> None:
    made = await make_service(k8s)
    body = made.body(1)
    body["spec"]["template"]["spec"]["containers"][0]["imagee"] = "x"
    error = await refused(made.apply(body, dry_run=True), Rejected)
    assert isinstance(error, Rejected)
    assert error.causes == (('spec.template.spec.containers[name="server"].imagee', "field not declared in schema"),)


@ROWS.row("a dry run refuses a template field of a wrong type", CREATE)
async def _(k8s: Kubernetes) -> None:
    made = await make_service(k8s)
    body = made.body(1)
    body["spec"]["template"]["spec"]["containers"][0]["image"] = 7
    error = await refused(made.apply(body, dry_run=True), Rejected)
    assert isinstance(error, Rejected)
    assert error.causes == (('spec.template.spec.containers[name="server"].image', "expected string"),)


@ROWS.row("a dry run meets the policies too", CREATE)
async def _(k8s: Kubernetes) -> None:
    made = await make_revision(k8s, 1)
    body = _note(made.body(1), "x")
    await refused(made.apply(body, dry_run=True), Denied)
    assert "NOTE" not in _env(await made.deployment())


@ROWS.row("a Deployment with an invalid name of a label is refused with the label's field", CREATE)
async def _(k8s: Kubernetes) -> None:
    made = await make_service(k8s)
    body = made.body(1)
    body["spec"]["template"]["metadata"]["labels"][names.SERVICE] = "other"
    error = await refused(made.apply(body, dry_run=True), Rejected)
    assert isinstance(error, Rejected)
    assert "spec.template.metadata.labels" in [field for field, _ in error.causes]


@ROWS.row("a count is written without a word of the template, which stays", SCALE)
async def _(k8s: Kubernetes) -> None:
    made = await make_service(k8s)
    before = await made.apply(made.body(1))
    after = await made.scale(2)
    assert after["spec"]["replicas"] == 2
    assert after["spec"]["template"] == before["spec"]["template"]
    kept = {k: v for k, v in before["metadata"]["annotations"].items() if k in (names.SOURCE, names.RENDERED)}
    assert kept.items() <= after["metadata"]["annotations"].items()
    assert after["metadata"]["annotations"][names.REPLICAS] == "2"
    assert after["metadata"]["labels"] == before["metadata"]["labels"]
    assert project.controller(after)["uid"] == made.owner.uid


@ROWS.row("a count written under the template's manager would be taken for the whole and refused", SCALE)
async def _(k8s: Kubernetes) -> None:
    made = await make_service(k8s)
    await made.apply(made.body(1))
    partial = objects.scale(made.name, k8s.namespace, 2, frozenset())
    await refused(made.apply(partial), Rejected)
    assert (await made.deployment())["spec"]["replicas"] == 1


@ROWS.row("a count decided on an older Deployment is a conflict, though the write forces", SCALE)
async def _(k8s: Kubernetes) -> None:
    made = await make_service(k8s)
    old = await made.apply(made.body(1))
    known = {key: old["metadata"][key] for key in ("uid", "resourceVersion")}
    await made.scale(2)
    await refused(made.scale(0, **known), Conflict)
    assert (await made.deployment())["spec"]["replicas"] == 2


@ROWS.row("a count for an earlier Deployment of the same name is a conflict", SCALE)
async def _(k8s: Kubernetes) -> None:
    made = await make_service(k8s)
    old = await made.apply(made.body(0))
    known = {key: old["metadata"][key] for key in ("uid", "resourceVersion")}
    await k8s.cluster.delete(DEPLOYMENTS, k8s.namespace, made.name, uid=known["uid"])
    await made.apply(made.body(0))
    await refused(made.scale(2, **known), Conflict)
    assert (await made.deployment())["spec"]["replicas"] == 0


@ROWS.row("an apply for another Deployment of the same name is refused by its uid alone", SCALE)
async def _(k8s: Kubernetes) -> None:
    made = await make_service(k8s)
    await made.apply(made.body(0))
    error = await refused(made.scale(2, uid="another-uid"), Rejected)
    assert isinstance(error, Rejected)
    assert {field for field, _ in error.causes} == {"metadata.uid"}, error.causes


@ROWS.row("a count for a Deployment that is gone is a conflict, and makes none", SCALE)
async def _(k8s: Kubernetes) -> None:
    made = await make_service(k8s)
    old = await made.apply(made.body(0))
    known = {key: old["metadata"][key] for key in ("uid", "resourceVersion")}
    await k8s.cluster.delete(DEPLOYMENTS, k8s.namespace, made.name, uid=known["uid"])
    await refused(made.scale(1, **known), Conflict)
    await refused(made.deployment(), NotFound)


@ROWS.row(
    "a template is written anew at 0: what it lacks now goes, and the count is the writer's",
    "core.planner.children:refresh",
)
async def _(k8s: Kubernetes) -> None:
    made = await make_service(k8s)
    await made.apply(_note(made.body(1), "x"))
    await made.have(1)
    await made.scale(0)
    fresh = _note(made.body(0), None)

    async def anew() -> Object:
        live = await made.deployment()
        fresh["metadata"] |= {key: live["metadata"][key] for key in ("uid", "resourceVersion")}
        await made.apply(fresh, dry_run=True)
        return await made.apply(fresh)

    answer = await eventually("no status of the controllers comes in between", anew)
    assert "NOTE" not in _env(answer)
    assert objects.includes(answer, {**fresh, "metadata": {"annotations": fresh["metadata"]["annotations"]}})
    assert (await made.scale(1))["spec"]["template"] == answer["spec"]["template"]


@ROWS.row("a template is not written anew on an older view of its Deployment", "core.planner.children:refresh")
async def _(k8s: Kubernetes) -> None:
    made = await make_service(k8s)
    old = await made.apply(made.body(0))
    await k8s.merge(DEPLOYMENTS, made.name, {"metadata": {"annotations": {"note": "x"}}})
    fresh = _note(made.body(0), "y")
    fresh["metadata"] |= {key: old["metadata"][key] for key in ("uid", "resourceVersion")}
    await refused(made.apply(fresh, dry_run=True), Conflict)
    await refused(made.apply(fresh), Conflict)


@ROWS.row(
    "what others put beside ours stays: a label, an annotation, a port of the Service", "core.render.objects:includes"
)
async def _(k8s: Kubernetes) -> None:
    made = await make_service(k8s)
    routes = await make_routes(made)
    name = routes["metadata"]["name"]
    more = {"name": "more", "port": 8081, "targetPort": 8081, "protocol": "TCP"}
    theirs = {"metadata": {"labels": {"team": "x"}, "annotations": {"note": "x"}}}
    await k8s.merge(SERVICES, name, {**theirs, "spec": {"ports": [*routes["spec"]["ports"], more]}})
    body = objects.service(made.owner, made.spec)
    answer = await make_routes(made)
    assert objects.includes(answer, body)
    assert objects.includes(answer, theirs)
    assert {p["name"] for p in answer["spec"]["ports"]} == {"http", "more"}


@ROWS.row("what others changed of ours is ours again after an apply", CHILDREN)
async def _(k8s: Kubernetes) -> None:
    made = await make_service(k8s)
    await make_budget(made)
    await k8s.merge(PDBS, k8s.name, {"spec": {"minAvailable": 0}})
    answer = await make_budget(made)
    assert answer["spec"]["minAvailable"] == 1


@ROWS.row("an object has one controller: an apply that would add a second is refused", "cluster.gather:conflict_over")
async def _(k8s: Kubernetes) -> None:
    made = await make_service(k8s)
    routes = await make_routes(made)
    other = made.owner.reference | {"uid": routes["metadata"]["uid"], "kind": "Service", "apiVersion": "v1"}
    await k8s.merge(SERVICES, routes["metadata"]["name"], {"metadata": {"ownerReferences": [other]}})
    error = await refused(make_routes(made), Rejected)
    assert "metadata.ownerReferences" in str(error)


@ROWS.row("the spec of a budget and of a Service may be changed by a later apply", CHILDREN)
async def _(k8s: Kubernetes) -> None:
    made = await make_service(k8s)
    first = await make_budget(made)
    await make_routes(made)
    made.raw = raw_spec(k8s.template("still"), replicas=5, service={"port": 8088})
    second, routes = await make_budget(made), await make_routes(made)
    assert (second["spec"]["minAvailable"], second["metadata"]["generation"]) == (
        4,
        first["metadata"]["generation"] + 1,
    )
    assert [p["port"] for p in routes["spec"]["ports"]] == [8088]
    assert made.hash == HASH

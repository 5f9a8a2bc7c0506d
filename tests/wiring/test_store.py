"""The store: what was last seen of each object, whatever order it is told in."""

from typing import Any

import pytest

from tidegate.cluster.port import DEPLOYMENTS, PDBS, PODS, Kind
from tidegate.cluster.store import Store


class Seen(Store):
    """A store that keeps what it announced."""

    def __init__(self) -> None:
        self.news: list[tuple[str, str]] = []
        super().__init__()
        self.subscribe(self._note)

    def _note(self, kind: Kind, raw: dict[str, Any]) -> None:
        self.news.append((kind.plural, raw["metadata"]["name"]))

    def version(self, name: str = "a", namespace: str = "shop") -> str | None:
        raw = self.get(DEPLOYMENTS, namespace, name)
        return raw["metadata"]["resourceVersion"] if raw else None


def made(version: int, name: str = "a", uid: str = "1", namespace: str = "shop", **labels: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name, "namespace": namespace, "uid": uid, "resourceVersion": str(version), "labels": labels,
            "managedFields": [{"manager": "x"}],
        },
        "spec": {"replicas": version},
    }  # fmt: skip


def test_an_older_object_is_dropped_and_not_announced():
    store = Seen()
    for version in (10, 9, 10, 2):
        store.put(DEPLOYMENTS, made(version))
    assert (store.version(), len(store.news)) == ("10", 1)
    store.put(DEPLOYMENTS, made(11))
    assert (store.version(), len(store.news)) == ("11", 2)


def test_versions_are_numbers_and_not_text():
    store = Seen()
    store.put(DEPLOYMENTS, made(9))
    store.put(DEPLOYMENTS, made(10))
    assert store.version() == "10"


def test_a_deleted_object_never_comes_back_by_a_late_event():
    store = Seen()
    store.put(DEPLOYMENTS, made(10))
    store.remove(DEPLOYMENTS, made(11))
    for late in (9, 10, 11):
        store.put(DEPLOYMENTS, made(late))
    assert store.version() is None and len(store.news) == 2
    assert store.replace(DEPLOYMENTS, [made(10)], "12") == 0 and store.version() is None


def test_a_deletion_told_at_the_last_version_seen_holds_up_to_that():
    # A DELETED event of a watch that began anew may carry an older version than the answer to our own write.
    store = Seen()
    store.put(DEPLOYMENTS, made(15))
    store.remove(DEPLOYMENTS, made(11))
    store.put(DEPLOYMENTS, made(15))
    assert store.version() is None


def test_an_object_that_only_left_the_selector_may_return():
    store = Seen()
    store.put(DEPLOYMENTS, made(10))
    store.remove(DEPLOYMENTS, made(11))
    store.put(DEPLOYMENTS, made(12))
    assert store.version() == "12"


def test_a_deletion_that_is_seen_before_the_object_holds_as_well():
    store = Seen()
    store.remove(DEPLOYMENTS, made(11))
    store.put(DEPLOYMENTS, made(10))
    assert store.version() is None and store.news == []


def test_its_successor_of_the_same_name_takes_its_place_and_a_late_deletion_leaves_that_alone():
    store = Seen()
    store.put(DEPLOYMENTS, made(10))
    store.put(DEPLOYMENTS, made(12, uid="2"))
    assert store.version() == "12"
    store.remove(DEPLOYMENTS, made(11))
    assert store.version() == "12"
    store.put(DEPLOYMENTS, made(10))
    assert store.version() == "12", "nor does a late event of the predecessor"


def test_deletions_are_not_remembered_without_end(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tidegate.cluster.store.MOST_GONE", 10)
    store = Seen()
    for n in range(50):
        store.remove(DEPLOYMENTS, made(n, uid=str(n)))
    store.put(DEPLOYMENTS, made(48, uid="49"))
    assert store.version() is None, "the latest are"
    store.put(DEPLOYMENTS, made(3, uid="3"))
    assert store.version() == "3"


def test_a_list_drops_ghosts_and_announces_them():
    store = Seen()
    for name, uid in (("a", "1"), ("b", "2"), ("c", "3")):
        store.put(DEPLOYMENTS, made(5, name, uid))
    store.news.clear()
    assert store.replace(DEPLOYMENTS, [made(5, "b", "2")], "20") == 2
    assert store.news == [("deployments", "a"), ("deployments", "c")]
    assert [raw["metadata"]["name"] for raw in store.all(DEPLOYMENTS)] == ["b"]


def test_what_is_newer_than_the_list_is_no_ghost():
    store = Seen()
    store.put(DEPLOYMENTS, made(21))
    assert store.replace(DEPLOYMENTS, [], "20") == 0 and store.version() == "21"
    assert store.replace(DEPLOYMENTS, [], "21") == 1


def test_a_list_brings_what_was_not_known_and_what_is_newer():
    store = Seen()
    store.put(DEPLOYMENTS, made(5))
    store.replace(DEPLOYMENTS, [made(7), made(6, "b", "2")], "8")
    assert (store.version(), store.version("b")) == ("7", "6")
    store.replace(DEPLOYMENTS, [made(6), made(6, "b", "2")], "8")
    assert store.version() == "7", "an answer to our own write may be newer than the list"


def test_a_list_without_a_number_for_version_drops_nothing():
    store = Seen()
    store.put(DEPLOYMENTS, made(5))
    assert store.replace(DEPLOYMENTS, [], "opaque") == 0 and store.version() == "5"


def test_kinds_are_kept_apart():
    store = Seen()
    store.put(DEPLOYMENTS, made(5))
    assert store.get(PODS, "shop", "a") is None and list(store.all(PODS)) == []


def test_selection_by_namespace_and_labels():
    store = Seen()
    store.put(DEPLOYMENTS, made(1, "a", "1", app="x", tier="y"))
    store.put(DEPLOYMENTS, made(1, "b", "2", app="x"))
    store.put(DEPLOYMENTS, made(1, "c", "3", namespace="other", app="x"))

    def names(**labels: str) -> list[str]:
        return [raw["metadata"]["name"] for raw in store.select(DEPLOYMENTS, "shop", labels)]

    assert (names(app="x"), names(app="x", tier="y"), names(app="z"), names()) == (["a", "b"], ["a"], [], ["a", "b"])


def test_managed_fields_are_not_kept_and_a_pod_is_trimmed():
    store = Seen()
    store.put(DEPLOYMENTS, made(1))
    assert "managedFields" not in store.get(DEPLOYMENTS, "shop", "a")["metadata"]
    big = made(1, uid="2") | {"spec": {"containers": [{"name": "s", "env": [{"name": "A"}]}], "volumes": [{}]}}
    big["metadata"]["annotations"] = {"tidegate.dev/drain": "{}", "example.com/huge": "x" * 1000}
    store.put(PODS, big)
    pod = store.get(PODS, "shop", "a")
    assert pod["spec"]["containers"] == [{"name": "s", "lifecycle": {"preStop": None}}] and "volumes" not in pod["spec"]
    assert pod["metadata"]["annotations"] == {"tidegate.dev/drain": "{}"}


def test_an_object_is_projected_once_per_version_and_forgotten_with_it():
    store, made_of = Seen(), []

    def project(raw: dict[str, Any]) -> str:
        made_of.append(raw["metadata"]["resourceVersion"])
        return str(made_of[-1])

    def look() -> str:
        return store.projected(store.get(DEPLOYMENTS, "shop", "a"), project)

    store.put(DEPLOYMENTS, made(5))
    assert (look(), look()) == ("5", "5")
    store.put(DEPLOYMENTS, made(6))
    assert (look(), look()) == ("6", "6")
    assert made_of == ["5", "6"]
    store.put(DEPLOYMENTS, made(7, uid="2"))
    assert look() == "7"
    store.remove(DEPLOYMENTS, made(8, uid="2"))
    assert store._projected == {}


def test_the_status_of_a_budget_is_neither_kept_nor_news():
    """It moves with every pod, of every application of the cluster."""
    store = Seen()
    store.put(PDBS, made(5) | {"status": {"currentHealthy": 3}})
    held = store.get(PDBS, "shop", "a")
    assert held is not None and "status" not in held
    store.put(PDBS, made(6) | {"spec": made(5)["spec"], "status": {"currentHealthy": 2}})
    assert store.news == [("poddisruptionbudgets", "a")]
    store.put(PDBS, made(5))
    held = store.get(PDBS, "shop", "a")
    assert held is not None and held["metadata"]["resourceVersion"] == "6", "it is the newer one all the same"
    store.put(PDBS, made(7))
    assert len(store.news) == 2, "its selector may have changed"
    store.put(PDBS, made(8, app="x") | {"spec": made(7)["spec"]})
    assert len(store.news) == 3, "and so may its labels"

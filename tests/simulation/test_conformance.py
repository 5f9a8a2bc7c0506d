"""What the operator believes of Kubernetes, against the cluster in memory; tests/cluster asks a real one."""

import importlib
from operator import attrgetter

import pytest

from conformance.rows import Row
from conformance_table import TABLE, title
from simulation.kubernetes import SimulatedKubernetes


@pytest.mark.parametrize("entry", TABLE, ids=title)
def test_row(entry: tuple[str, Row]) -> None:
    k8s = SimulatedKubernetes()
    k8s.run(entry[1].check(k8s))


@pytest.mark.parametrize("entry", TABLE, ids=title)
def test_the_code_that_needs_a_row_is_there(entry: tuple[str, Row]) -> None:
    assert entry[1].needed_by
    for place in entry[1].needed_by:
        module, _, name = place.partition(":")
        assert attrgetter(name)(importlib.import_module(f"tidegate.{module}"))

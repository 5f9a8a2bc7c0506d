"""The package is the same thing in the gateway, in an application and in a test, because of what it does not import."""

import json
import subprocess
import sys
from pathlib import Path

OPERATOR = Path(__file__).parents[2] / "operator"
LOADS = """
import importlib, json, pkgutil, sys
before = set(sys.modules)
import tidegate.contract
names = [found.name for found in pkgutil.walk_packages(tidegate.contract.__path__, "tidegate.contract.")]
for name in names:
    importlib.import_module(name)
print(json.dumps([names, sorted(set(sys.modules) - before)]))
"""
CLOCKS_AND_SOCKETS = {"asyncio", "selectors", "socket", "ssl", "threading", "time"}


def test_it_loads_the_standard_library_and_the_names_alone() -> None:
    # -S: without it, an editable installation's own modules would be among what is loaded.
    done = subprocess.run(
        [sys.executable, "-S", "-c", LOADS],
        env={"PYTHONPATH": str(OPERATOR)},
        capture_output=True,
        text=True,
        check=True,
    )
    modules, loaded = json.loads(done.stdout)
    assert len(modules) >= 5
    ours = {name for name in loaded if name.partition(".")[0] == "tidegate"}
    assert ours <= {"tidegate", "tidegate.api", "tidegate.api.names", "tidegate.contract", *modules}
    others = {name.partition(".")[0] for name in loaded} - {"tidegate"}
    assert others <= sys.stdlib_module_names
    assert not others & CLOCKS_AND_SOCKETS

"""The gateway's image is small because of what it does not import."""

import json
import subprocess
import sys
from pathlib import Path

OPERATOR = Path(__file__).parents[2] / "operator"
LOADS = """
import json, sys
from tidegate.__main__ import main
import tidegate.gateway.process
try:
    main(["gateway", "--help"])
except SystemExit:
    pass
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def test_the_gateway_loads_httptools_and_nothing_else_that_is_installed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADS], env={"PYTHONPATH": str(OPERATOR)}, capture_output=True, text=True, check=True
    )
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert {"tidegate", "httptools", "asyncio"} <= loaded
    # Names with an underscore are the interpreter's own, or of an editable installation; Cython names its runtime.
    others = {name for name in loaded - sys.stdlib_module_names - {"cython_runtime"} if not name.startswith("_")}
    assert others == {"tidegate", "httptools"}

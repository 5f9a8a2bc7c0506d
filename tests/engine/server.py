"""A real llama.cpp server as people run it: it knows nothing of Tidegate, and on SIGTERM it cuts its streams.

The engine's own C++ server runs inside this process, with its /health, /metrics and /v1 routes, on a model made at the
start. SIGTERM is left to its default: the process ends at once.
"""

import argparse
import tempfile
import threading
from pathlib import Path

from xllamacpp import CommonParams, Server

from engine.model import SMALL, Shape, write


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="0.0.0.0")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--parallel", type=int, default=4, help="streams at once; more are queued")
    parser.add_argument("--layers", type=int, default=SMALL.layers)
    parser.add_argument("--width", type=int, default=SMALL.width)
    options = parser.parse_args()
    path = Path(tempfile.mkdtemp()) / "tidegate-test.gguf"
    shape = Shape(layers=options.layers, width=options.width)
    write(path, shape)

    params = CommonParams()
    params.model.path = str(path)
    params.n_ctx = shape.context
    params.n_parallel = options.parallel
    params.endpoint_metrics = True
    params.hostnames = [options.host]
    params.port = options.port
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = Server(params)
    print(f"serving on {server.listening_address}", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()

"""The service's own record: one JSON object a line, to stdout and to LOG_DIR/POD.jsonl."""

import json
import sys
import time
from pathlib import Path
from typing import TextIO


class EventLog:
    """Writes each event with the wall-clock time `at`, the pod and the process's instance."""

    def __init__(self, pod: str, instance: str, directory: str | None) -> None:
        self._common = {"pod": pod, "instance": instance}
        self._files: list[TextIO] = [sys.stdout]
        if directory:
            try:
                self._files.append((Path(directory) / f"{pod}.jsonl").open("a", buffering=1))
            except OSError as error:
                self.write("log-dir-unwritable", message=f"LOG_DIR: {error}")

    def write(self, event: str, **fields: object) -> None:
        line = json.dumps({"at": round(time.time(), 4), "event": event, **self._common, **fields}) + "\n"
        for file in self._files:
            file.write(line)
            file.flush()

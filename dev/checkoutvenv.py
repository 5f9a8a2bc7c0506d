"""Scripts that need the checkout's .venv go on in it, whichever Python they were started with."""

import os
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]


def go_on_in_venv(script: str) -> None:
    """Return in the Python of .venv, in place of this process if need be; exit with the remedy where there is none."""
    environment = CHECKOUT / ".venv"
    if Path(sys.prefix).resolve() == environment:
        return
    python = environment / "bin" / "python"
    if not python.exists():
        sys.exit(f"dev/{Path(script).name}: there is no .venv yet: run `make setup`")
    os.execv(python, [str(python), script, *sys.argv[1:]])

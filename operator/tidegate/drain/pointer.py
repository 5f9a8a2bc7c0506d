"""JSON pointers, RFC 6901."""

from typing import Any


def pointed(document: Any, pointer: str) -> Any:
    """The value that a JSON pointer (RFC 6901) refers to; None if there is none."""
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(document, dict):
            document = document.get(name)
        elif isinstance(document, list) and name.isascii() and name.isdigit() and (name == "0" or name[0] != "0"):
            document = document[int(name)] if int(name) < len(document) else None
        else:
            return None
    return document

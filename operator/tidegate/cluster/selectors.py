"""Label selectors, as Kubernetes evaluates them."""

from collections.abc import Mapping
from typing import Any

Labels = Mapping[str, str]


def selects(selector: Mapping[str, Any] | None, labels: Labels) -> bool:
    """Whether a LabelSelector selects an object with these labels: None selects nothing, an empty one everything."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_holds(expression, labels) for expression in selector.get("matchExpressions") or [])


def _holds(expression: Mapping[str, Any], labels: Labels) -> bool:
    key, values = str(expression.get("key")), expression.get("values") or []
    match expression.get("operator"):
        case "In":
            return key in labels and labels[key] in values
        case "NotIn":
            # As the API server has it, an object without the key is not in.
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case _:
            return False

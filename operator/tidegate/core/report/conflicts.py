"""What keeps the operator from using an object by its name, and what to do: its Secret, its ConfigMap, any child."""


def not_ours(kind: str, name: str) -> str:
    """Of an object that nobody controls and Tidegate has not made."""
    return f"{kind} {name} exists and does not belong to Tidegate; {_remedy(kind)}."


def owned(kind: str, name: str, owner: str) -> str:
    """Of an object that `owner`, a kind and a name, controls."""
    return f"{kind} {name} belongs to {owner}; {_remedy(kind)}."


def predecessor(kind: str, name: str, service: str) -> str:
    """Of a child of a deleted LLMService with the same name."""
    return f"Waiting for {kind} {name} of the deleted LLMService {service} to be deleted."


def without_key(name: str) -> str:
    """Of a drain key that no header can carry."""
    return (
        f"Secret {name} has no key `current` of printable ASCII characters; add it, or delete the Secret to get a new "
        "one."
    )


def drain_times_ignored(name: str, reason: str) -> str:
    """Of a ConfigMap whose content is not what the operator wrote."""
    return (
        f"ConfigMap {name} cannot be read: {reason}. Restore its content, or delete it to start over; until then, no "
        "drain times are counted and the declared terms apply."
    )


def drain_times_unusable(conflict: str) -> str:
    """Of a ConfigMap that is not ours."""
    return f"{conflict} Until then, no drain times are counted and the declared terms apply."


def drain_times_refused(name: str, error: str) -> str:
    """Of a ConfigMap that the API server does not let the operator read or write."""
    return (
        f"ConfigMap {name} cannot be read or written: {error}. Until it can, no drain times are counted. If the "
        "operator's role does not allow get, create and patch of configmaps, apply manifests/cluster."
    )


def _remedy(kind: str) -> str:
    return f"delete the {kind}, or rename the LLMService"

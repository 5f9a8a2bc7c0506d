"""RFC 3339 times in status and annotations, to the millisecond, always UTC."""

from datetime import UTC, datetime


def text(seconds: float) -> str:
    """To the millisecond, for annotations and for what is subtracted later."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def short(seconds: float) -> str:
    """To the second, for people and for metav1.Time fields."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def clock(seconds: float) -> str:
    """Time of day, for sentences."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%S UTC")


def parse(value: object) -> float | None:
    """Unix seconds of an RFC 3339 text; None for anything else."""
    if not isinstance(value, str):
        return None
    try:
        parsed = datetime.fromisoformat(value.replace("Z", "+00:00"))
    except ValueError:
        return None
    return parsed.timestamp() if parsed.tzinfo else None

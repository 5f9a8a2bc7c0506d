"""What the operator relies on, row by row: the same assertions run in simulation and on a real API server.

A row is there because operator code depends on it, which it names. Where the two clusters disagree the simulation has
to be mended, since the operator is proved in it; where both disagree with the row, the operator.
"""

from conformance import applies, endings, evictions, pods, policies, replicasets, routes, services, watches, writes
from conformance.rows import Row

SUBJECTS = {
    "writes": writes.ROWS,
    "applies": applies.ROWS,
    "services": services.ROWS,
    "replica sets": replicasets.ROWS,
    "pods": pods.ROWS,
    "routes": routes.ROWS,
    "evictions": evictions.ROWS,
    "endings": endings.ROWS,
    "watches": watches.ROWS,
    "policies": policies.ROWS,
}
TABLE: tuple[tuple[str, Row], ...] = tuple((subject, row) for subject, rows in SUBJECTS.items() for row in rows)


def title(entry: tuple[str, Row]) -> str:
    """For reports."""
    return f"{entry[0]}: {entry[1].sentence}"

"""How the service is told to be wrong, so that a test can see what the operator makes of it."""

from dataclasses import dataclass, field

WITHOUT_VALUE = frozenset({
    "ignore-drain", "lie-zero", "lie-sealed", "lie-id", "lie-negative", "lie-early", "sequence-falls", "hang",
    "status-500", "status-404", "rubbish", "endless", "redirect", "foreign-id", "crash-at-start", "never-ready", "flap",
    "stall-streams", "exit-on-sigterm",
})  # fmt: skip
WITH_SECONDS = frozenset({"crash-after", "slow-start"})
FLAP_PROBES = 4
"""`flap` is ready for one probe out of so many. By the others a kubelet is sure to notice, and between two that are
good it cannot have been Ready for long, however far apart a busy one sends them."""
FALLS_FROM = 1_000_000


@dataclass(frozen=True, slots=True)
class Misbehaviour:
    """The ways in force, each with its seconds where it has any."""

    ways: dict[str, float] = field(default_factory=dict)

    def __contains__(self, way: str) -> bool:
        return way in self.ways

    @classmethod
    def parse(cls, text: str) -> "Misbehaviour":
        """Read a comma list such as `lie-zero,crash-after=20`; raises ValueError that names what is not known."""
        ways = {}
        for word in filter(None, (part.strip() for part in text.split(","))):
            name, equals, value = word.partition("=")
            if (name in WITH_SECONDS) != bool(equals) or name not in WITH_SECONDS | WITHOUT_VALUE:
                known = ", ".join(sorted(WITHOUT_VALUE) + sorted(f"{way}=SECONDS" for way in WITH_SECONDS))
                raise ValueError(f"MISBEHAVE: {word} is not one of {known}")
            ways[name] = float(value) if equals else 0.0
        return cls(ways)

    def alter(self, answer: dict[str, object], calls: int) -> dict[str, object]:
        """The lies about a state; `calls` is the number of answers given before."""
        if "lie-zero" in self and answer["drainId"] is not None:
            answer |= {
                "state": "sealed",
                "inFlight": 0,
                "streams": 0,
                "queued": 0,
                "oldestSeconds": 0.0,
                "agesSeconds": [],
            }
        if "lie-sealed" in self and answer["drainId"] is not None:
            answer["state"] = "sealed"
        if "lie-id" in self and answer["drainId"] is not None:
            answer["drainId"] = "somebody-elses"
        if "lie-negative" in self:
            answer |= {"inFlight": -1, "streams": -1}
        if "sequence-falls" in self:
            sequence = answer["sequence"]
            assert isinstance(sequence, int)
            answer["sequence"] = FALLS_FROM + sequence - calls
        return answer
